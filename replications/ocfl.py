# %% [markdown]
# # OCFL: one look at what clients learn alone, then a federation for each cluster
#
# Lu, Deng, Wu, Zhou and Ma, *Federated Learning Based on OPTICS Clustering Optimization*, Discrete Dynamics in Nature
# and Society 2022, [10.1155/2022/7151373](https://doi.org/10.1155/2022/7151373). (Not the later "One-Shot Clustered
# Federated Learning", which goes by the same letters.)
#
# **What the paper claims.** A hundred clients share out MNIST or CIFAR-10 so that each holds the images of about one
# label. One model averaged over all of them suffers, and the more so the fewer labels a client has. But what a client
# learns *alone* betrays what it holds: let everybody train once from the same start, put the parameter vectors into
# OPTICS, a density clustering that needs no number of clusters, and average inside the clusters only. OPTICS is said
# to find the ten labels without a fault on MNIST after a single local epoch; with the clusters merged down to three,
# OCFL is said to be far more accurate than FedAvg in every one of them, sooner, and more evenly.
#
# This notebook repeats every table and figure, with several seeds where the paper shows one run, and judges each
# claim by a rule that was written down before the runs shown here, though after a few trial runs (`papers/ocfl.toml`;
# `papers/ocfl.md` says which). Then it asks what the paper leaves aside: how much hangs on the parameter that OPTICS
# is said not to be sensitive to, whether it does keep malicious clients apart, and what "more accurate in every
# cluster" means when clusters have few labels.

# %% tags=["parameters"]
tier = "quick"  # smoke (seconds, drawn glyphs) | quick (minutes, real data) | paper (the paper's sizes)
seeds = None  # how many, or a list; None here and below: what papers/ocfl.toml says for the tier
jobs = 2  # worker processes
backend = "loky"  # where they run: loky (here), ray or dask (a cluster)
first = None  # "mnist" | "fashion_mnist" | "emnist" | "glyphs"
second = None  # "cifar10" | "glyphs"
momentum = None  # of the local SGD
lr = None  # learning rate of fig. 3
rounds = None  # rounds of fig. 3
rounds_ocfl = None  # rounds of figs. 5 and 7; rate times rounds stays
lr_alone = None  # learning rate of the training that is clustered
xi_first = None  # OPTICS' steepness on the first data set
xi_second = None  # and on the second
metric = None  # OPTICS' metric: "euclidean" | "cosine"
merge = None  # clusters left after the merge
merge_on = None  # what the merge compares: "updates" | "parameters"

# %%
import pandas as pd
from IPython.display import Markdown

import fedclust as fc
from fedclust import plots, studies
from fedclust.experiments import Trial
from fedclust.report import Report

paper, p = fc.papers.start("ocfl", globals())
report = Report(paper, p)

# %% [markdown]
# ## The method
#
# **Algorithm 1, once.** The server sends one initial model $\theta$; every client $k$ trains it on its own data,
# $\theta_k \leftarrow \mathrm{SGD}(\theta, D_k)$, and OPTICS clusters the flattened $\theta_1, \dots, \theta_N$.
# OPTICS puts the points in an order in which each follows its densest neighbourhood, and notes how far the next point
# is to reach. Clusters are valleys in that curve: a valley begins and ends where it falls and rises by a factor of $1
# - \xi$. This is the parameter $\xi$. Points in no valley are *noise*.
#
# **The merge.** Ten clusters of one label each would be poor federations, so the paper joins those whose parameters
# have a high cosine similarity (Eq. 1) until three are left:
#
# $$\alpha_{i,j} = \frac{\langle \theta_i, \theta_j \rangle}{\lVert\theta_i\rVert\,\lVert\theta_j\rVert}$$
#
# **Algorithm 2, every round, in every cluster $C$.** A random share of its clients, $m = \max(\mathit{frac} \cdot
# |C|, 1)$, trains from the cluster's model. The cluster's next model is their mean by number of samples,
#
# $$w_{t+1} = \sum_k \frac{n_k}{n}\, w_{t+1}^k .$$
#
# That is FedAvg, once per cluster: with one cluster the two agree number for number, which a test of this package
# checks. `fedclust/algorithms/ocfl.py` carries the paper's tags at its lines.
#
# ### Table 1: the symbols

# %%
report.static("table1")

# %% [markdown]
# ## What was open, and how we read it
#
# The networks, the optimiser, the scaling of the pixels and the test protocol are not described. They come from the
# public FedAvg code the paper most likely grew from (`likely-base`), and were kept because with them the *baseline*
# comes out near the printed numbers of table 2. The numbered deviations are in `papers/ocfl.md`. The delicate ones:
#
# - $\xi$ is 0.2 in Algorithm 1 and 0.1 in the caption of fig. 4. Both are run.
# - How clusters are joined is not said beyond "similar". We take average linkage on the cosine between the clusters'
#   mean *updates* $\theta_k - \theta$; on raw parameters, which share their start, one cluster gets nearly everybody
#   (shown below).
# - "The test set" of a cluster is read as the held-out images with its clients' labels; FedAvg's model is scored on
#   the same images.
#
# **How the quick tier shrinks the work.** Clients, images per client, networks, batch size and $\mathit{frac}$ stay.
# In figs. 3, 5 and 7 a client's epoch is cut to a few steps, new ones each round, and the learning rate raised until
# the steps lead as far as the epoch would under an unchanging gradient (`studies.stretched` counts the momentum in).
# Where rounds are fewer, the rate rises once more so that rate times rounds stays: at rates like $5 \cdot 10^{-6}$
# SGD follows the gradient flow, and only that product matters. What is clustered (figs. 1, 4, 6) is trained by whole
# epochs at the printed rate.

# %%
paper.settings_table(p.tier)

# %%
use = {  # data set, usual mean and deviation, CNN, rate of figs. 5 and 7, xi
    "MNIST": (p.first, [0.1307], [0.3081], p.first_cnn, p.lr_first, p.xi_first),
    "CIFAR-10": (p.second, [0.5] * 3, [0.5] * 3, p.second_cnn, p.lr_second, p.xi_second),
}
sgd = {"batch": p.batch, "momentum": p.momentum, "optimizer": p.optimizer}
alone = sgd | {"lr": p.lr_alone}  # Algorithm 1: whole epochs
panels = [(d, m) for d in use for m in ("MLP", "CNN")]
data, nets, full, splits, methods = {}, {}, {}, {}, {}


def optics(xi, metric=p.metric):
    return {"kind": "OPTICS", "min_samples": p.min_samples, "xi": xi, "metric": metric}


for d, (name, mean, std, conv, _, xi) in use.items():
    drawn = {"n": 50 * p.clients, "n_test": 10, "color": d == "CIFAR-10"} if name == "glyphs" else {}
    data[d] = {"name": name, **drawn} | ({"mean": mean, "std": std} if p.normalised else {})
    nets[d, "MLP"] = {"kind": "mlp", "hidden": [p.hidden]}
    nets[d, "CNN"] = {"kind": "cnn", "channels": conv[:2], "kernel": 5, "hidden": conv[2:]}
    images = len(studies.dataset({"data": data[d]}).y) * (1 - paper.settings["holdout"]["value"])
    full[d] = int(images / p.clients / p.batch)  # steps of a client's epoch
    same = {"clients": p.clients, "holdout": p.holdout, "limit": full[d] * p.batch}
    sliced = {"kind": "label_slices"} | same
    splits[d, "IID"] = {"kind": "iid"} | same
    splits[d, "non-IID"] = sliced | {"slices_per_client": p.slices // p.clients}
    splits[d, "non-IID2"] = sliced | {"slices_per_client": 1}
    methods[d, "FedAvg"] = {"kind": "FedAvg", "fraction": p.frac}
    methods[d, "OCFL"] = {"kind": "OCFL", "fraction": p.frac, "pretrain": alone, "estimator": optics(xi)}
    methods[d, "OCFL"] |= {"merge": p.merge, "merge_on": p.merge_on}


def local(d, lr, how=sgd):
    """A client's training in a round: the printed epoch, or few steps that lead as far."""
    rate = studies.stretched(lr, how["momentum"], full[d], p.steps) if p.steps else lr
    return how | {"lr": rate, "steps": p.steps or None}


def trial(label, seed, d="MNIST", m="MLP", dist="non-IID2", task="train", **settings):
    """One run; by default of FedAvg, OCFL or a variant as in figs. 5 and 7."""
    usual = {"data": data[d], "partition": splits[d, dist], "model": nets[d, m], "method": methods[d, "OCFL"]}
    if task in ("train", "restricted"):
        usual |= {"train": local(d, use[d][4] * p.rounds_printed / p.rounds_ocfl), "rounds": p.rounds_ocfl}
        usual |= {"eval_every": p.every_ocfl}
    return Trial(usual | settings, seed, label, {"data": d, "model": m, "dist": dist}, task)


# %% [markdown]
# ## Figure 1: the cosine between clients' parameters
#
# The figure itself is missing from our copy. Its caption says that the cosine stays about constant for pairs with the
# same data and falls quickly for pairs with different data. Two readings: each client goes on training *alone* from
# the common start, or all return their models to FedAvg in every round. Twenty clients on MNIST, two per label, MLP,
# rate of fig. 3.

# %%
twenty = splits["MNIST", "non-IID2"] | {"clients": p.clients_cosine}
how = {"partition": twenty, "train": sgd | {"lr": p.lr}, "rounds": p.rounds_cosine, "task": "alignment"}
readings = {"alone": {"kind": "LocalOnly"}, "in FedAvg": {"kind": "FedAvg", "fraction": 1.0}}
cosines = report.sweep([trial(name, s, method=kind, **how) for s in p.seeds for name, kind in readings.items()])
drawn = {}
for reading, part in cosines.groupby("algorithm", observed=True):
    for what in ("parameters", "updates"):
        pairs = {f"pairs with {pair} labels": plots.by_round(part, f"{what}, {pair}") for pair in ("same", "different")}
        drawn[f"{reading}: {what}"] = pairs
del drawn["alone: updates"]
report.figure("fig1", plots.curves(drawn, "cosine similarity", height=2.3))
same, different = drawn["alone: parameters"].values()
Markdown(
    f"Alone, the cosine falls from {same[0].mean():.4f} to {same.iloc[:, -1].mean():.4f} for pairs with the same "
    f"label, from {different[0].mean():.4f} to {different.iloc[:, -1].mean():.4f} for others: the caption holds, on a "
    "fine scale."
)

# %% [markdown]
# Inside a federation that averages every round the models that come back are closer still, and pairs with different
# labels grow *more* similar: the common model has learned, and moves less. There it is the cosine of the *updates*
# that tells the labels apart, by a wide margin.
#
# ## Figure 2: who holds which labels
#
# Ten clients of MNIST. Two slices per client give about two labels, one slice about one. Labels are not equally
# frequent, so a cut can run through two of them.

# %%
for letter, dist in zip("abc", ("IID", "non-IID", "non-IID2"), strict=True):
    ten = splits["MNIST", dist] | {"clients": 10, "holdout": 0.2, "limit": None}
    fed = studies.federation({"data": data["MNIST"], "partition": ten}, p.seeds[0])
    fig, ax = plots.panels(width=4.4, height=2.5)
    plots.heat(ax, fc.partition.class_counts(fed), range(10), range(10), xlabel="label", ylabel="client")
    ax.set_title(f"{dist}: images per client and label")
    report.figure(f"fig2{letter}", fig)

# %% [markdown]
# ## Figure 3: what skew does to FedAvg
#
# Lines are means over seeds with a 95 % interval, diamonds are the paper's numbers after 100 rounds.

# %%
how = {"rounds": p.rounds, "eval_every": p.every}
grid = [(s, d, m, dist) for s in p.seeds for d, dist in splits for m in ("MLP", "CNN")]
runs = [trial("FedAvg", *at, method=methods[at[1], "FedAvg"], train=local(at[1], p.lr), **how) for at in grid]
skewed = {key: plots.by_round(part) for key, part in report.sweep(runs).groupby(["data", "model", "dist"])}
printed = paper.printed("table2")
for letter, (d, m) in zip("abcd", panels, strict=True):
    title = f"{d}, {m}"
    frames = {dist: skewed[d, m, dist] for dist in ("IID", "non-IID", "non-IID2")}
    numbers = {(title, dist): printed[d, f"{m} {dist}"] for dist in frames}
    report.figure(f"fig3{letter}", plots.curves({title: frames}, printed=numbers, width=4.8, height=2.5))

# %% [markdown]
# ## Table 2

# %%
final = {key: frame.iloc[:, -1] for key, frame in skewed.items()}
report.compare("table2", pd.DataFrame({(d, f"{m} {dist}"): value for (d, m, dist), value in final.items()}))

# %% [markdown]
# ## Figures 4 and 6: does OPTICS find the labels?
#
# All clients train alone, epoch after epoch, and after each one OPTICS is asked. The adjusted Rand index (ARI)
# compares its clusters with the labels: 1 is perfect, 0 is chance; noise points count as clusters of one. Thin lines
# are single seeds. Below the ARI stand the number of clusters (of two clients or more) and of noise points, since it
# is noise that costs the ARI. Diamonds: the paper's ARI and number of clusters, at the $\xi$ of its caption.

# %%
epochs = {"MLP": p.epochs_mlp, "CNN": p.epochs_cnn}
asked = {f"xi {xi:g}": optics(xi) for xi in sorted({p.xi_first, p.xi_second, 0.1, 0.2})}
how = {"train": alone, "estimators": asked, "task": "alone"}
lonely = report.sweep([trial("", s, d, m, epochs=epochs[m], **how) for s in p.seeds for d, m in panels])
found = lonely.groupby(["data", "model", "metric", "algorithm"], observed=True)
found = {key: part.pivot(index="seed", columns="round", values="value") for key, part in found}
scores = {"ari": "ARI", "found": "clusters", "noise": "noise points"}
for name, d, ari in (("fig4", "MNIST", 1.0), ("fig6", "CIFAR-10", 0.86)):
    rows = [(f"{m}: {said}", m, what) for what, said in scores.items() for m in epochs]
    drawn = {title: {xi: found[d, m, what, xi] for xi in asked} for title, m, what in rows}
    captioned = f"xi {use[d][5]:g}"
    numbers = {(f"{m}: {said}", captioned): v for said, v in (("ARI", ari), ("clusters", 10)) for m in epochs}
    how = {"rows": 3, "height": 1.5, "sharex": "col", "sharey": "row", "looks": {xi: {"seeds": True} for xi in asked}}
    fig = plots.curves(drawn, "", x="local epochs", printed=numbers, at=1, **how)
    for ax in fig.axes:
        ax.set_ylim(0, 1.05 if "ARI" in ax.get_title(loc="left") else None)
    report.figure(name, fig)
summary = {}
for (d, m, what, xi), frame in found.items():
    for e in sorted({1, epochs[m]}):
        summary[f"{d} {m}, {xi}, epoch {e}", scores[what]] = frame[e]
report.summary("table-extra-ari", pd.DataFrame(summary), "OPTICS after the first and the last local epoch", 2)

# %% [markdown]
# ## Figures 5 and 7, tables 3 and 4: FedAvg and OCFL, cluster by cluster
#
# Clusters are those after the merge. Their numbers in the paper name the clusters of one run; here they go by OCFL's
# last accuracy, seed by seed (the order that the printed tables have, but for the CNN on CIFAR-10). Lines are means
# over seeds, whose intervals stand in the tables. Dotted: FedAvg's single model on the same clients. Diamonds: the
# paper's values after 500 rounds, filled for OCFL.

# %%
runs = [trial(a, s, d, m, method=methods[d, a]) for s in p.seeds for d, m in panels for a in ("FedAvg", "OCFL")]
runs = report.sweep(runs)
served, members = {}, {}
styles = {"FedAvg": {"ls": ":", "marker": ""}, "OCFL": {"ls": "-", "marker": ""}}
for name, table, d in (("fig5", "table3", "MNIST"), ("fig7", "table4", "CIFAR-10")):
    drawn, looks, ends = {}, {}, {}
    for m in ("MLP", "CNN"):
        served[d, m], members[d, m] = plots.by_cluster(runs[(runs.data == d) & (runs.model == m)], of="OCFL")
        for (a, k), part in served[d, m].groupby(level=[0, 1], observed=True):
            frame = part.droplevel([0, 1]).unstack()
            looks[f"{a}, cluster {k}"] = styles[a] | {"color": plots.PALETTE[k % 8]}
            drawn.setdefault(m, {})[f"{a}, cluster {k}"] = frame.mean().to_frame().T
            ends[f"Cluster {k}", f"{m} {a}"] = frame.iloc[:, -1]
    numbers = {(c[:3], f"{c[4:]}, {row.lower()}"): value for (row, c), value in paper.printed(table).items()}
    report.figure(name, plots.curves(drawn, printed=numbers, looks=looks, height=2.9, cols=4, sharey=True))
    report.compare(table, pd.DataFrame(ends))

# %% [markdown]
# ### What is in the clusters
#
# The tables cannot be read without this one. A cluster whose clients all have one label scores nearly 1 with a model
# that always says that label, and the fewer labels a cluster has the easier it is. The first cluster is mostly the
# smallest.

# %%
groups = []
for (d, m), who in members.items():
    for (s, k), part in who.groupby(["seed", "cluster"]):
        groups.append([f"{d} {m}", s, k, len(part), ", ".join(map(str, sorted(part.group.unique())))])
groups = pd.DataFrame(groups, columns=["", "seed", "cluster", "clients", "labels"])
report.table("table-extra-groups", groups, "The merged clusters of every seed: clients, and the labels they hold")

# %% [markdown]
# ## Claims
#
# A verdict is the weakest of a claim's tests. *Reproduced*: the 95 % interval over seeds lies on the claimed side
# and, where the paper prints a size, ours is within half of it; *direction*: only the side is right; *inconclusive*:
# the interval does not tell.

# %%
measures = {f"{d}_{m}_{dist}": value for (d, m, dist), value in final.items()}
for (d, m, dist), frame in skewed.items():
    measures[f"{d}_{m}_{dist}_jumps"] = frame.diff(axis=1).abs().iloc[:, frame.shape[1] // 2 :].mean(axis=1)
for d, m in panels:
    own, this = f"xi {use[d][5]:g}", f"{d}_{m}_"
    measures[this + "lost"] = 1 - final[d, m, "non-IID2"] / final[d, m, "IID"]
    measures[this + "ari_last"] = found[d, m, "ari", own][epochs[m]]
    measures[this + "found"] = found[d, m, "found", own][1]
    for xi, name in ((own, "ari"), ("xi 0.1", "ari_xi1"), ("xi 0.2", "ari_xi2")):
        measures[this + name] = found[d, m, "ari", xi][1]
    end = served[d, m].unstack("round").iloc[:, -1].unstack("cluster")
    gain = end.loc["OCFL"] - end.loc["FedAvg"]
    measures |= {this + "gain": gain.mean(axis=1), this + "gain_least": gain.min(axis=1)}
    for a in ("FedAvg", "OCFL"):
        measures[f"{this}gap_{a}"] = end.loc[a].max(axis=1) - end.loc[a].min(axis=1)
    part = runs[(runs.data == d) & (runs.model == m)]
    fedavg, ocfl = (plots.by_round(part[part.algorithm == a]) for a in ("FedAvg", "OCFL"))
    there = ocfl.ge(fedavg.iloc[:, -1], axis=0)
    measures[this + "needed"] = ((there.idxmax(axis=1) + 1) / p.rounds_ocfl).where(there.any(axis=1), 1.0)
for pair, frame in (("same", same), ("different", different)):
    measures[f"cosine_lost_{pair}"] = frame.iloc[:, 0] - frame.iloc[:, -1]

# %% [markdown]
# The last claim needs an experiment that the paper does not have: some of the clients are malicious. They send
# Gaussian noise as long as their update, or their update reversed, or they train on random labels. Other clusterers
# get the same vectors; k-means alone is told that there are ten labels. (MNIST, MLP, one local epoch.)

# %%
rivals = {
    "OPTICS": optics(p.xi_first),
    "OPTICS, xi 0.2": optics(0.2),
    "DBSCAN": {"kind": "DBSCAN", "min_samples": p.min_samples},
    "HDBSCAN": {"kind": "HDBSCAN", "min_cluster_size": p.min_samples, "copy": True},
    "affinity propagation": {"kind": "AffinityPropagation", "random_state": 0},
    "k-means, k = 10": {"kind": "KMeans", "n_clusters": 10, "n_init": 10, "random_state": 0},
}
attacks = {None: "nobody malicious", "noise": "Gaussian noise", "flip": "reversed", "labels": "random labels"}
how = {"train": alone, "estimators": rivals, "epochs": 1, "task": "alone", "poisoned": p.poisoned}
stands = {}
for a, said in attacks.items():
    attacked = report.sweep([trial("", s, attack=a, **how) for s in p.seeds])
    for (rival, what), part in attacked.groupby(["algorithm", "metric"], observed=True):
        stands[rival, said, what] = part.set_index("seed").value
measures |= {f"apart_{a}": stands["OPTICS", said, "apart"] for a, said in attacks.items() if a}
measures = pd.DataFrame(measures).rename(columns=lambda name: name.lower().replace("-", ""))
verdicts = report.judge(measures)

# %% [markdown]
# ## Beyond the paper
#
# ### Clusterers and malicious clients
#
# *ARI* is that of the honest clients; *apart* is the share of malicious clients that share no cluster with an honest
# one. DBSCAN's radius is half of the median distance between clients, everything else is scikit-learn's default.

# %%
samples = {}
for rival in rivals:
    samples |= {(rival, f"ARI: {said}"): stands[rival, said, "ari"] for said in attacks.values()}
    samples |= {(rival, f"apart: {said}"): stands[rival, said, "apart"] for a, said in attacks.items() if a}
report.summary("table-extra-attacks", pd.DataFrame(samples), "Clusterers of the same vectors under three attacks", 2)

# %% [markdown]
# ### Where does the gain come from?
#
# MLP. *Told the labels* is a control: FedAvg's own model, unchanged, which on a client of cluster $C$ may only answer
# labels that somebody in $C$ holds. It knows no more than the clusters tell, and has learned nothing that FedAvg has
# not. *Alone* has no server: with one label per client, a client that always says its label is right. The rest of the
# table varies, on MNIST, what we had to read into the paper.

# %%
adam = sgd | {"optimizer": "adam", "momentum": 0.0}
samples = {}
for d, (_, _, _, _, rate, xi) in use.items():
    fedavg, ocfl = methods[d, "FedAvg"], methods[d, "OCFL"]
    by_adam = {"train": local(d, rate * p.rounds_printed / p.rounds_ocfl, adam)}
    variants = {
        "FedAvg": {"method": fedavg},
        "OCFL": {},
        "FedAvg, told the labels": {"task": "restricted"},
    }
    if d == "MNIST":  # how much the readings matter
        variants |= {
            "alone": {"method": {"kind": "LocalOnly"}},
            "OCFL, no merge": {"method": ocfl | {"merge": None}},
            "OCFL, merged on parameters": {"method": ocfl | {"merge_on": "parameters"}},
            "OCFL, cosine metric": {"method": ocfl | {"estimator": optics(xi, "cosine")}},
            "OCFL, the other xi": {"method": ocfl | {"estimator": optics(0.2 if xi < 0.15 else 0.1)}},
            "OCFL, Adam": {"method": ocfl | {"pretrain": adam | {"lr": p.lr_alone}}} | by_adam,
            "FedAvg, Adam": {"method": fedavg} | by_adam,
        }
    tried = report.sweep([trial(name, s, d, **how) for s in p.seeds for name, how in variants.items()])
    tried = tried[(tried.metric == "accuracy") & (tried["round"] == p.rounds_ocfl - 1)]
    for name in variants:
        by_seed = tried[tried.algorithm == name].groupby("seed")
        samples[name, f"{d}: accuracy"] = by_seed.value.mean()
        samples[name, f"{d}: clusters"] = by_seed.cluster.nunique()
        samples[name, f"{d}: largest"] = by_seed.cluster.agg(lambda cluster: cluster.value_counts().max())
caption = "Mean accuracy over clients after the last round, number of clusters, clients in the largest one (MLP)"
report.summary("table-extra-variants", pd.DataFrame(samples), caption)
mean = pd.DataFrame(samples).mean()
told, gained = (
    {d: mean[name, f"{d}: accuracy"] - mean["FedAvg", f"{d}: accuracy"] for d in use}
    for name in ("FedAvg, told the labels", "OCFL")
)
Markdown(
    f"Telling FedAvg's model which labels a cluster has gives {told['MNIST']:+.3f} on MNIST, {told['CIFAR-10']:+.3f} "
    f"on CIFAR-10; OCFL as a whole gives {gained['MNIST']:+.3f} and {gained['CIFAR-10']:+.3f}. Clients alone end at "
    f"{mean['alone', 'MNIST: accuracy']:.3f} on MNIST."
)

# %% [markdown]
# ## What it cost
#
# OCFL pays once for the training alone: every client gets a model, trains a whole epoch and sends one back. After
# that a round is as dear as FedAvg's.

# %%
paid = runs[(runs.client == -1) & runs.metric.isin(["down", "up", "extra", "bytes"])]
paid = paid.groupby(["data", "model", "algorithm", "seed", "metric"], observed=True).value.sum().unstack()
paid = paid.groupby(level=[0, 1, 2], observed=True).mean().reset_index()
paid["bytes"] /= 1e6
paid.columns = ["data", "model", "method", "megabytes", "models down", "trainings beforehand", "models up"]
report.table("table-extra-cost", paid, f"What {p.rounds_ocfl} rounds cost, mean over seeds; run times are in run.json")
report.close()

# %% [markdown]
# ## What we learned
#
# **Skew hurts, as the paper says, and the MLP's numbers come out close to the printed ones.** That the MLP of table 2
# fits, at the printed rate and batch, is what makes the readings of the optimiser and the pixels credible. At three
# seeds the steps from IID to non-IID and on to non-IID2 are often smaller than the jumps of the last rounds, so
# single tests of c1 to c3 stay open where the picture is clear; the paper shows one run of one round. Reading one
# round's accuracy off a curve that jumps by more than the effect is the weak point of table 2.
#
# **The CNN on CIFAR-10 does not learn at the printed rate** (c1, c2). Our bug? The same loop, model code and data
# give the MLP's numbers, and convolutional training is tested against `torch.optim`. The short rounds of the quick
# tier? One run of 100 rounds with whole epochs ended at the same accuracy as the short ones. The optimiser? One run
# with Adam, same rate, ended far above the printed 0.40, where SGD ended far below: the printed value lies between
# the two, and the network is not described. A learning rate a few times higher, or a smaller network, would make it
# true. The same holds for figs. 5 and 7, where rates of a few millionths leave our CNNs close to their start: the
# printed 0.69 of FedAvg's CNN on MNIST needs another optimiser, another rate or both.
#
# **OPTICS finds the labels, and $\xi$ decides whether it does** (c4, c6, c11). With $\xi = 0.2$, the value of
# Algorithm 1, nearly every seed is perfect on both data sets. With the 0.1 of fig. 4's caption the ARI depends on the
# seed: the ten clusters are there, but a part of the clients is declared noise. So the two values the paper prints
# are not interchangeable; how far apart they are differs so much from seed to seed that three seeds leave c4 and c11
# open. On CIFAR-10 we find *more* than the paper's 0.86 at its own $\xi$. An error that makes clusters better is hard
# to think of (labels are used for scoring only: a test shuffles them and gets the same run); the likeliest difference
# are the pixels: without normalisation one run gave about 0.9, ten clusters and a dozen noise points. What *is* sound
# in the paper's figures is that one local epoch is enough (c5): more of them change little, and mostly for the worse.
#
# **OCFL beats FedAvg cluster by cluster, but look at what the clusters are** (c7, c8). Merged by similarity, the
# clusters are uneven, and the best one often has a single label, on which a model that always says that label is
# right. Our control makes the point: FedAvg's own model, merely told which labels a cluster holds, collects a good
# part of the gain (less than half of it, for the MLP) without any training in clusters, and clients that train alone,
# with no federation at all, are better still. On this benchmark, accuracy on one's own labels rewards small clusters;
# it does not show that the clusters learned more. Evenness (c8) is measured in the same coin: the gap between
# clusters says more about how many labels each got than about fairness.
#
# **The merge needs updates.** On raw parameters, as the text can be read, average linkage leaves one cluster with
# most of the clients.
#
# **Fig. 1 holds where its set-up is favourable** (c9). Clients that never meet drift apart as the caption says, on a
# scale of a few hundredths. Our rule for "about constant" is too lenient to carry this verdict alone: even pairs with
# different labels would pass it. That the different ones lose more is what the claim rests on. In a running
# federation the cosine of the parameters shows next to nothing; the cosine of the updates shows everything, from the
# first round on.
#
# **Malicious clients do end apart** (c12): the paper is right about OPTICS, though it never looked. But so they do
# with DBSCAN and HDBSCAN, which also find the ten labels on every seed here and have no $\xi$ to get wrong; k-means,
# which must put everybody somewhere, keeps nearly all of them among the honest. The case is for density clustering,
# not for OPTICS among its kind.
