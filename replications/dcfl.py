# %% [markdown]
# # DCFL: clusters that are redrawn while clients join, drift and hide behind noise
#
# Augello, Falzone and Lo Re, *DCFL: Dynamic Clustered Federated Learning under Differential Privacy Settings*, PerCom
# Workshops 2023, [10.1109/PerComWorkshops56833.2023.10150285](https://doi.org/10.1109/PerComWorkshops56833.2023.10150285).
#
# **What the paper claims.** When every client's data have their own label mix and their own rotation, one global model
# suits nobody. Clients should share models in groups, and the groups must be free to change: a client may join late, its
# data may drift, and the noise of differential privacy may have put it into the wrong group. The paper gives the server two
# tools for that, a distance between model updates that looks at where they start, where they end and whether they run
# towards each other, and a test after every round whether the groups still make sense. On EMNIST this is said to end at
# 72 % accuracy, against 64 % for divisive clustering (CFL) and 54 % for FedAvg, with a third of FedAvg's spread over clients.
#
# This notebook repeats every figure and table, adds one line the paper leaves out (every client training *alone*), and judges
# each claim by a rule that was written down before the runs (`papers/dcfl.toml`).

# %% tags=["parameters"]
tier = "quick"  # smoke (seconds, drawn glyphs) | quick (minutes, real data) | paper (the paper's sizes)
seeds = None  # how many, or a list; None here and below: what papers/dcfl.toml says for the tier
jobs = 2  # worker processes
backend = "loky"  # where they run: loky (here), ray or dask (a cluster)
data = None  # "emnist" | "mnist" | "glyphs"
rounds = None  # communication rounds
clients = None  # at the start
samples = None  # images per client, a fifth of them held out
alpha = None  # label skew: Dirichlet over clients
model = None  # "cnn" | "mlp"
lr = None  # learning rate
batch = None  # batch size
epsilon = None  # privacy budget (per round for "update", for the whole training for "dpsgd")
clip = None  # clip norm of updates ("update") or of single samples' gradients ("dpsgd")
mechanism = None  # "update" | "dpsgd" | "none"
preference = None  # affinity propagation: quantile of the similarities
power = None  # affinity propagation: similarity is -d ** power
new_models = None  # Eq. 5 averages "clients" or "clusters"

# %%
import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown

import fedclust as fc
from fedclust import plots
from fedclust.experiments import Trial
from fedclust.report import Report

paper, p = fc.papers.start("dcfl", globals())
report = Report(paper, p)
side, few = p.seeds[: p.side_seeds], p.seeds[: p.extra_seeds]

# %% [markdown]
# ## The method
#
# ### A distance between updates
#
# Client $i$ receives a model $A$ and returns a model $B$; client $j$ goes from $C$ to $D$. With $\alpha$ the angle between
# $AB$ and the direction from $D$ to $B$, and $\beta$ likewise at the other end, the *divergence* is (Eq. 1)
#
# $$\omega = \frac{|AB|\cos\alpha + |CD|\cos\beta}{|AB| + |CD|} \in [-1, 1]$$
#
# and it scales the gap between the two trained models (Eq. 2): $d = |BD|\,e^{2\omega}$. Angles are not needed. Since
# $|AB|\cos\alpha = \langle AB, DB\rangle / |BD|$ and $|CD|\cos\beta = -\langle CD, DB\rangle / |BD|$,
#
# $$\omega = \frac{\langle AB - CD,\; B - D\rangle}{|BD|\,(|AB| + |CD|)},$$
#
# so that all pairs of $n$ clients come from one $n \times n$ Gram matrix (`fedclust.geometry.distance`).
#
# ### Figure 1: what the divergence measures
#
# Drawn by the library's own functions from vectors in the plane. The dotted line is $BD$.

# %%
shapes = {  # starts A, C; ends B, D
    "any two updates": ([[0.0, 0.0], [3.0, 0.2]], [[0.6, 1.6], [2.0, 1.5]]),
    "running apart": ([[1.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]),
    "running together": ([[0.0, 0.0], [3.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]]),
    "side by side": ([[0.0, 0.0], [1.5, 0.0]], [[0.0, 1.2], [1.5, 1.2]]),
}


def measured(starts, ends):
    starts, ends = torch.tensor(starts).double(), torch.tensor(ends).double()
    (omega, d), gap = (f(starts, ends)[0, 1] for f in (fc.geometry.divergence, fc.geometry.distance)), ends[0] - ends[1]
    angles = [torch.rad2deg(torch.acos(torch.cosine_similarity(ends[i] - starts[i], s * gap, dim=0))) for i, s in ((0, 1), (1, -1))]
    return f"$\\alpha$ = {angles[0]:.0f}°, $\\beta$ = {angles[1]:.0f}°\n$\\omega$ = {omega:.2f}, gap = {gap.norm():.2f}, d = {d:.2f}"


fig, axes = plots.panels(1, 4, height=1.9)
for ax, (name, (starts, ends)) in zip(axes, shapes.items(), strict=True):
    plots.arrows(ax, starts, ends, ("AB", "CD"), ("$\\alpha$", "$\\beta$"))
    ax.set_title(f"{name}\n{measured(starts, ends)}", fontsize=7.5)
report.figure("fig1", fig)

# %% [markdown]
# ### Figure 2: two clients of one cluster
#
# They start from one model. If their updates have one length too, the triangle is isosceles, $\alpha = \beta$ and
# $\omega = \sqrt{(1 - \cos\gamma)/2}$, so that the cosine distance of the updates is $2\omega^2$.

# %%
fig, axes = plots.panels(1, 3, height=2.0)
for ax, gamma, length in zip(axes, (30, 90, 90), (1.0, 1.0, 0.4), strict=True):
    g = np.deg2rad(gamma)
    start, ends = [[0.0, 0.0]] * 2, [[0.0, 1.0], [length * np.sin(g), length * np.cos(g)]]
    plots.arrows(ax, start, ends, ("AB", "AC"), ("$\\alpha$", "$\\beta$"))
    note = f"$\\sqrt{{(1-\\cos\\gamma)/2}}$ = {np.sqrt((1 - np.cos(g)) / 2):.2f}"
    ax.set_title(f"$\\gamma$ = {gamma}°, |AC|/|AB| = {length:g}, {note}\n{measured(start, ends)}", fontsize=7.5)
report.figure("fig2", fig)

# %% [markdown]
# ### Figure 3: length matters as well as angle
#
# The closed form says at once what the paper shows by drawing. With one origin ($A = C$) the numerator is $|BD|^2$, hence
# $\omega = |BD| / (|AB| + |CD|)$: the gap in units of the longest it could be.
#
# A consequence that the paper does not mention: where all updates start from one model and have one length, as after
# clipping, the complete distance, the divergence, the Euclidean and the cosine distance all put the pairs into the *same order*.
# As long as there is one cluster the choice of distance hardly matters; it can matter only between clients of different clusters.

# %%
angle, ratios = np.linspace(0, 180, 181), (1.0, 0.5, 0.25, 0.1)
turn = torch.tensor(np.deg2rad(angle))
curves = {}
for ratio in ratios:
    others = ratio * torch.stack([turn.cos(), turn.sin()], 1)
    ends = torch.cat([torch.tensor([[1.0, 0.0]]).double(), others])  # (182, 2)
    curves[ratio] = fc.geometry.divergence(torch.zeros_like(ends), ends)[0, 1:].numpy()
fig, ax = plots.panels(height=2.6, width=4.6)
for k, ratio in enumerate(ratios):
    ax.plot(angle, curves[ratio], label=f"{ratio:g}", **plots.look(k) | {"marker": ""})
ax.set(xlabel="angle between the updates (degrees)", ylabel="divergence $\\omega$", ylim=(0, 1.03), xticks=range(0, 181, 30))
ax.legend(title="shorter / longer", loc="lower right")
report.figure("fig3", fig)
inner = slice(1, -1)  # at 0 degrees equal vectors coincide, at 180 all curves meet in 1
rise = min((curves[b] - curves[a])[inner].min() for a, b in zip(ratios, ratios[1:]))
gap = np.abs(2 * curves[1.0] ** 2 - (1 - np.cos(np.deg2rad(angle)))).max()

# %% [markdown]
# ### The algorithm
#
# `fedclust/algorithms/dcfl.py` carries the line numbers of the paper's Algorithm 1. In words, one round:
#
# 1. A newcomer trains once from the mean of the cluster models, $W_G$, and joins the cluster whose model lies nearest to its
#    update, as seen from $W_G$ (Eq. 6).
# 2. Every client trains from its cluster's model; each cluster averages what its members return.
# 3. From all updates the server computes all distances, and from them the Dunn index (Eq. 3), the smallest distance *between*
#    clusters over the largest *within* one.
# 4. With one cluster, or an index below 1, affinity propagation clusters all clients anew, and each new cluster starts
#    from the mean of its members' models (Eq. 5).
#
# **FedAvg** has step 2 with one cluster. **CFL** (Sattler et al. 2021) splits a cluster in two where the mean update is
# short and some client's update is long, and never joins clusters again. **Local** has no server at all.
#
# ## What was open, and how we read it
#
# The paper leaves much to the reader: the network, the optimiser, the number of clients, their amount of data, the
# privacy mechanism and its clip norm, and affinity propagation's preference. *Source* says where each value is from: the
# paper, the public code it most likely grew from (`likely-base`), or us (`assumed`). The numbered deviations are in
# `papers/dcfl.md`.

# %%
paper.settings_table(p.tier)

# %% [markdown]
# ### The trials
#
# Methods that are compared share, seed by seed, the split, the rotations, the initial model, the batches, the privacy noise
# and the drifts: differences between them are paired. Intervals are 95 % t-intervals over seeds.

# %%
source = {"emnist": {"name": "emnist", "stand_in": "mnist"}, "mnist": {"name": "mnist"}, "glyphs": {"name": "glyphs"}}[p.data]
nets = {"cnn": {"kind": "cnn", "channels": [6, 16], "kernel": 5, "hidden": [p.hidden]}, "mlp": {"kind": "mlp", "hidden": [p.hidden]}}
dcfl = {"kind": "DCFL", "preference": p.preference, "power": p.power, "new_models": p.new_models}
methods = {
    "DCFL": dcfl,
    "CFL": {"kind": "CFL", "eps1": p.eps1 * p.clip, "eps2": p.eps2 * p.clip, "warmup": p.split_from},
    "FedAvg": {"kind": "FedAvg"},
    "Local": {"kind": "LocalOnly"},
}
unscaled = methods["CFL"] | {"eps1": p.eps1_unclipped, "eps2": p.eps2_unclipped}
newcomers = len(range(p.join_every, p.rounds, p.join_every))


def trial(label, seed, method=None, *, join=True, drift=True, privacy=p.mechanism, epsilon=p.epsilon, samples=p.samples, **tags):
    """One run of the paper's experiment; `tags` are kept as columns."""
    privacy = "none" if label == "Local" else privacy  # what is not sent needs no noise
    method = method or (unscaled if label == "CFL" and privacy == "none" else methods[label])
    guards = {
        "none": None,
        "update": {"kind": "UpdateNoise", "epsilon": epsilon, "delta": p.delta, "clip": p.clip},
        "dpsgd": {"kind": "DPSGD", "epsilon": epsilon, "delta": p.delta, "clip": p.clip, "rounds": p.rounds},
    }
    events = {"start": p.clients, "join_every": p.join_every} if join else {}
    settings = {
        "data": source | {"mean": [0.5], "std": [0.5]},
        "partition": {"kind": "dirichlet_rotated", "clients": p.clients + newcomers * join, "alpha": p.alpha, "samples": samples},
        "model": nets[p.model],
        "train": {"lr": p.lr, "momentum": p.momentum, "decay": p.decay, "batch": p.batch, "epochs": p.epochs, "privacy": guards[privacy]},
        "method": method,
        "events": events | ({"drift_from": p.drift_from, "drift_every": p.drift_every} if drift else {}),
        "rounds": p.rounds,
    }
    return Trial(settings, seed, label, tags)


kinds = ("complete", "divergence", "euclidean", "cosine")
main = report.sweep([trial(m, s) for s in p.seeds for m in methods])
distances = report.sweep([trial(k, s, dcfl | {"distance": k}) for s in p.seeds for k in kinds])


def ends_and_averages(record):
    """Mean and deviation over clients, at the end and averaged over training: a row per seed, columns (method, value)."""
    over = fc.metrics.over_clients(record).rename(columns={"algorithm": "method"})
    last = over[over["round"] == over["round"].max()].set_index(["seed", "method"])[["mean", "std"]].add_prefix("final ")
    average = over.groupby(["seed", "method"], observed=True)[["mean", "std"]].mean().add_prefix("average ")
    return last.join(average).unstack("method").swaplevel(axis=1)


# %% [markdown]
# ## Figure 4: accuracy by round
#
# One seed; newcomers' lines start late, drift shows as a drop of one line.

# %%
def client_panels(record, names, titles):
    fig, axes = plots.panels(1, len(names), height=2.3, sharey=True)
    for ax, name in zip(axes, names, strict=True):
        plots.client_curves(ax, record[record.algorithm == name], title=titles.get(name, name))
    for ax in axes[1:]:
        ax.set_ylabel("")
    plots.legend(fig)
    return fig


report.figure("fig4", client_panels(main, list(methods), {"Local": "Local (not in the paper)"}))

# %% [markdown]
# ## Table I

# %%
table1 = ends_and_averages(main)
report.compare("table1", table1)

# %% [markdown]
# ## Figure 5: four easier settings
#
# Lines are means over clients and seeds. Without newcomers the first clients stay among themselves; without privacy nothing
# is clipped, and CFL has its public thresholds.

# %%
cases = {
    "static": ("no newcomers, no drift, no privacy", {"join": False, "drift": False, "privacy": "none"}),
    "noiseless": ("newcomers, drift, no privacy", {"privacy": "none"}),
    "joins": ("newcomers, no drift, privacy", {"drift": False}),
    "drifts": ("no newcomers, drift, privacy", {"join": False}),
}
settings5 = report.sweep([trial(m, s, case=c, **how) for s in side for c, (_, how) in cases.items() for m in methods])
fig, axes = plots.panels(2, 2, height=2.2, sharex=True, sharey=True)
for ax, (case, (title, _)) in zip(axes.flat, cases.items(), strict=True):
    part = settings5[settings5.case == case]
    for name in methods:
        plots.band(ax, plots.by_round(part[part.algorithm == name]), name)
    plots.round_axis(ax)
    ax.label_outer()
    ax.set_title(title)
plots.legend(fig)
report.figure("fig5", fig)
finals5 = {case: ends_and_averages(settings5[settings5.case == case]) for case in cases}

# %% [markdown]
# ## Figure 6: DCFL with other distances

# %%
report.figure("fig6", client_panels(distances, kinds, {}))

# %% [markdown]
# ## Table II

# %%
table2 = ends_and_averages(distances)
report.compare("table2", table2)

# %% [markdown]
# ## Do the clusters still move?
#
# The paper explains its distances by how the clustering behaves: with the Euclidean distance the clusters get so far apart
# that nothing can change any more; with the divergence alone clients are thrown from cluster to cluster.

# %%
half = p.rounds // 2
moved = fc.metrics.regrouped(pd.concat([distances, main[main.algorithm == "CFL"]]))
changes = moved[moved["round"] >= half].pivot_table(index="seed", columns="algorithm", values="regrouped", observed=True)
server = distances[distances.client == -1].pivot_table(index=["algorithm", "seed", "round"], columns="metric", values="value", observed=True)
steps = distances[(distances.metric == "accuracy")].pivot_table(index=["algorithm", "seed", "round"], columns="client", values="value", observed=True)
jumps = steps.groupby(level=[0, 1], observed=True).diff().abs().mean(axis=1).groupby(level=[0, 1], observed=True).mean().unstack(0)
fig, axes = plots.panels(1, 2, height=2.3)
for ax, (metric, label) in zip(axes, (("clusters", "number of clusters"), ("dunn", "Dunn index before reclustering")), strict=True):
    for kind in kinds:
        plots.band(ax, plots.by_round(distances[distances.algorithm == kind], metric), kind)
    plots.round_axis(ax, label)
axes[1].set_yscale("log")
axes[1].axhline(1, color="black", lw=0.8)
plots.legend(fig)
report.figure("fig-extra-clusters", fig, "Clusters and Dunn index by round; below the line at 1 DCFL clusters anew")
rows = []
for kind in kinds:
    run = server.loc[kind]
    late = run[run.index.get_level_values("round") >= half]
    rows.append([kind, run.clusters.mean(), late.reclustered.mean(), changes[kind].mean(), late.dunn.median(), int((run.converged == 0).sum()), jumps[kind].mean()])
names = ["distance", "clusters", "asked for new clusters", "clusters changed", "Dunn index (median)", "rounds without convergence", "jump of a client's accuracy"]
report.table("table-extra-clusters", pd.DataFrame(rows, columns=names), "Shares of rounds and the Dunn index are of the second half of training; a jump is the mean change of one client's accuracy from round to round")

# %% [markdown]
# ### What a distance sees
#
# Every client has an angle of its own: there are no groups to be found, only neighbours on a circle who may share a model
# with profit. So how well does the distance of two updates follow the angle between two clients' images, or the
# difference of their label mixes? Rank correlation over all pairs of clients, in the first round and in the middle of training.

# %%
looks = [("first", 0, "none"), ("first", 0, p.mechanism), ("middle", half, "none"), ("middle", half, p.mechanism)]
found = []
for when, at, guard in looks:
    alone = [trial(when, s, dcfl, join=False, drift=False, privacy=guard, private=guard != "none") for s in side]
    found += [Trial(t.settings | {"rounds": at}, t.seed, t.label, t.tags, task="pairs") for t in alone]
seen = report.sweep(found)
ranks = seen.groupby(["algorithm", "private", "seed", "metric"], observed=True)[["value", "angle", "labels", "together"]].corr("spearman")
ranks = ranks["value"].unstack()[["angle", "labels"]].groupby(level=[0, 1, 3], observed=True).mean().reset_index()
ranks.columns = ["round", "privacy noise", "distance", "with the angle", "with the label mix"]
report.table("table-extra-distances", ranks, "Rank correlation of updates' distances with differences of the clients' data (DCFL, no newcomers, no drift)")

# %% [markdown]
# ## The claims
#
# A claim is *reproduced* if the interval of every test excludes the contrary and sizes agree within half of the printed
# effect, *direction* if only the size differs, *inconclusive* if an interval includes no effect, *not reproduced* if it
# excludes the claim.

# %%
early = fc.metrics.over_clients(main[main["round"] < p.rounds // 6]).groupby(["seed", "algorithm"], observed=True)["mean"].mean().unstack()
measures = pd.DataFrame(index=pd.Index(p.seeds, name="seed"))
for name in ("DCFL", "CFL", "FedAvg", "Local"):
    low = name.lower()
    measures[f"{low}_final"], measures[f"{low}_std"] = table1[name, "final mean"], table1[name, "final std"]
    measures[f"{low}_average"], measures[f"{low}_early"] = table1[name, "average mean"], early[name]
    for case, values in finals5.items():
        measures[f"{low}_{case}"] = values[name, "final mean"]
for kind in kinds:
    measures[f"{kind}_final"], measures[f"{kind}_changes"] = table2[kind, "final mean"], changes[kind]
    measures[f"{kind}_jumps"] = jumps[kind]
measures["omega_least_rise"], measures["omega_cosine_gap"] = rise, gap
verdicts = report.judge(measures)

# %% [markdown]
# ## How much hangs on our readings
#
# Each row changes one open value of the headline run and leaves everything else, seeds included, as it is.

# %%
readings = {
    "preference: 0.9 quantile (more clusters)": ("DCFL", {"method": dcfl | {"preference": 0.9}}),
    "similarity: squared distance": ("DCFL", {"method": dcfl | {"power": 2.0}}),
    "Eq. 5: means of cluster models": ("DCFL", {"method": dcfl | {"new_models": "clusters"}}),
    "CFL: thresholds of its public code": ("CFL", {"method": unscaled}),
}
read = report.sweep([trial(m, s, reading=name, **how) for s in side for name, (m, how) in readings.items()])
rows = []
for name, (m, _) in readings.items():
    part = read[read.reading == name]
    values, base = ends_and_averages(part)[m], table1[m].loc[side]
    mean, low, high = fc.papers.interval(values["final mean"] - base["final mean"])
    clusters = plots.by_round(part, "clusters").iloc[:, -1].mean()
    rows.append([name, values["final mean"].mean(), values["final std"].mean(), f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]", clusters])
names = ["reading", "final mean", "final std", "against the headline, same seeds", "clusters at the end"]
report.table("table-extra-readings", pd.DataFrame(rows, columns=names), "Open values read in another way")

# %% [markdown]
# ### Images per client
#
# Not stated in the paper, and decisive: the more images a client has, the less it needs the others, and the less noise
# it adds, since the noise is scaled by one over the number of images.

# %%
sizes = [p.samples // 2, p.samples, 2 * p.samples]
some = ("DCFL", "FedAvg", "Local")
by_size = report.sweep([trial(m, s, samples=n, images=n) for s in few for n in sizes for m in some])


def sweep_panel(ax, record, tag, values, names, xlabel):
    """Final accuracy over a quantity, one line per method."""
    for name in names:
        part = record[record.algorithm == name]
        finals = {v: plots.by_round(part[part[tag] == v]).iloc[:, -1] for v in values}
        plots.band(ax, pd.DataFrame(finals), name, k=list(methods).index(name), x=range(len(values)))
    ax.set(xlabel=xlabel, ylabel="final accuracy", ylim=(0, 1), xticks=range(len(values)))
    ax.set_xticklabels([f"{v:g}" for v in values])


fig, ax = plots.panels(width=4.6)
sweep_panel(ax, by_size, "images", sizes, some, "images per client")
plots.legend(ax, cols=3)
report.figure("fig-extra-samples", fig, "Final accuracy over the number of images per client")

# %% [markdown]
# ## What it cost
#
# Models sent and bytes as the runs counted them. A newcomer of DCFL and CFL trains once more than the others, from the mean model.

# %%
counted = main[main.metric.isin(["down", "up", "extra", "bytes"])].groupby(["algorithm", "seed", "metric"], observed=True).value.sum()
spent = counted.unstack().groupby(level=0, observed=True).mean().loc[list(methods)].reset_index()
spent["bytes"] /= 1e6
spent.columns = ["method", "MB", "models down", "extra trainings", "models up"]
report.table("table-extra-cost", spent, "Traffic of one training, mean over seeds")
n, m = p.clients + newcomers, int(0.8 * p.samples)
Markdown(
    f"The server's clustering is cheap: for a dense model all distances of {n} clients take about $4 n^2 P$ operations, a round "
    f"of training about $6 P m n$, a ratio of $2n/3m$ = {2 * n / 3 / m:.1%} whatever the model. Communication is FedAvg's, "
    "plus one model down and one up for each newcomer."
)
