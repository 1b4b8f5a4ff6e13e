# %% [markdown]
# # Joint: does the gradient know a device's cluster before the loss does?
#
# Lin, Chen, Yang, Wu and Liu, *A Joint Gradient and Loss Based Clustered Federated Learning Design*, [arXiv
# 2311.13665](https://arxiv.org/abs/2311.13665), 2023.
#
# **What the paper claims.** In clustered federated learning by IFCA (Ghosh et al.) a server keeps one model per
# cluster, every device receives all of them, and takes the one with the smallest loss on its data. In the beginning
# all models are equally bad, and the losses say little. The paper lets each device also ask whether its gradient
# agrees with the step that a cluster's model has just taken, and weighs the two with a number $\lambda$. With that
# the devices are said to find their clusters in up to 99 % fewer iterations, and to reach 80 % accuracy in 14 %
# fewer.
#
# This notebook repeats every figure with several seeds where the paper shows one run, and judges each claim by a rule
# written down beforehand (`papers/joint.toml`). Then it asks what the size of the effect hangs on, the learning rate
# first of all: the cosine of two vectors does not depend on it, the time that losses need to differ does.

# %% tags=["parameters"]
tier = "quick"  # smoke (seconds, drawn glyphs) | quick (minutes, real data) | paper (the paper's sizes)
seeds = None  # how many, or a list; None here and below: what papers/joint.toml says for the tier
jobs = 2  # worker processes
backend = "loky"  # where they run: loky (here), ray or dask (a cluster)
data = None  # "real" | "glyphs"
devices = None  # a quarter of them per cluster
iterations = None  # of figs. 4a-4c and the learning-rate axis
lr = None  # learning rate
batch = None  # images per device and iteration
sign = None  # Eq. 3 with minus the gradient ("descent") or as "printed"
loss = None  # Eq. 1 as "mean" or "sum"
similarity = None  # "cosine" | "euclidean"
rescue = None  # K random devices fill empty clusters
inits = None  # K models "independent", or one "perturbed"
relabel = None  # number a cluster's labels anew (8 outputs) or keep the true ones (10)
normalised = None  # standardise the pixels

# %%
from dataclasses import replace

import numpy as np
import pandas as pd
from IPython.display import Markdown

import fedclust as fc
from fedclust import decision, plots, studies
from fedclust.experiments import Trial
from fedclust.metrics import rounds_saved, rounds_to
from fedclust.report import Report, spread

paper, p = fc.papers.start("joint", globals())
report = Report(paper, p)
few, pair = p.seeds[: p.panel_seeds], (0.0, p.named_lambda)

# %% [markdown]
# ## The method
#
# One iteration $t$ (Algorithm 1). The server sends the $K$ models $w_1^t, \dots, w_K^t$ to every device. Device $i$
# draws one mini-batch $\mathcal Z_i^t$ and computes for each model the loss (Eq. 1), the gradient, and the gradient's
# cosine with the last change of that model (Eqs. 2 and 3):
#
# $$\mathcal L_{i,k} = \sum_{z \in \mathcal Z_i} \ell(w_k, z), \qquad \Delta w_k^{t-1} = w_k^t - w_k^{t-1}, \qquad
# S_{i,k} = \frac{\langle \nabla \mathcal L_{i,k}, \Delta w_k^{t-1} \rangle}
# {|\nabla \mathcal L_{i,k}|\,|\Delta w_k^{t-1}|}$$
#
# It picks the model with the largest weighted sum (Eq. 4), takes one gradient step from it (Eq. 5), and the server
# averages the devices of each cluster without weights (Eq. 7):
#
# $$s_i = \arg\max_k\; \lambda S_{i,k} - (1 - \lambda)\, \mathcal L_{i,k}, \qquad
# w_i = w_{s_i} - \alpha \nabla \mathcal L_{i,s_i}, \qquad
# w_k^{t+1} = \frac{1}{|\mathcal M_k|} \sum_{i \in \mathcal M_k} w_i$$
#
# With $\lambda = 0$ this is IFCA, number for number (a test of this package says so). If a cluster is picked by
# nobody, $K$ random devices are sent to one cluster each.
#
# Nothing of size devices x models x parameters is ever built: for a dense layer with inputs $a$ and deltas $\delta$,
# the products $\langle \delta^\top a, V \rangle = \sum \delta \odot (a V^\top)$ and $|\delta^\top a|^2 = \sum (a
# a^\top) \odot (\delta \delta^\top)$ need no gradient (`fedclust/decision.py`).
#
# The score of a clustering is its *purity*: the share of devices that belong to the largest true group of their
# cluster, $P = \frac{1}{M} \sum_k \max_j |\mathcal M_j^* \cap \mathcal M_k|$. It has a trap: if two true clusters
# share one model and another model is empty, it is still 0.75. The adjusted Rand index and the number of empty
# clusters stand beside it below.
#
# ## What was open, and how we read it
#
# The paper gives the data, the models and $\lambda$, but neither learning rate, batch size nor the number of
# iterations, and its figures have no numbers in our copy. The delicate readings (all numbered in `papers/joint.md`):
#
# - **The sign.** $\Delta w$ is a step *down* the gradient. As printed, Eq. 3 rewards devices whose gradient *opposes*
#   the way their cluster goes. The text speaks of similarity, so we compare $-\nabla \mathcal L$; the printed sign is
#   run below.
# - **Sum or mean.** A sum of losses over a batch would make $\lambda$ meaningless; Eq. 1 is read as the mean.
# - **Eight outputs, ten classes.** Labels must have been numbered anew in each cluster: the same digit can be label 7
#   in one cluster and 6 in another. That makes clusters contradict each other, which is more than a difference of
#   label mixes.
# - **The learning rate** is an axis. The headline runs use the rate at which the *baseline* ends most accurate.

# %%
paper.settings_table(p.tier)

# %%
sets = {  # data set, usual mean and deviation, devices, clusters
    "MNIST": ("mnist", [0.1307], [0.3081], p.devices, p.clusters),
    "FashionMNIST": ("fashion_mnist", [0.2860], [0.3530], p.devices, p.clusters),
    "CIFAR10": ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], p.devices, p.clusters),
    "EMNIST": ("emnist", [0.1736], [0.3317], p.devices_emnist, 2 * p.clusters),
}
EMNIST = (47, 2 * p.clusters, 40)  # classes, clusters, classes of a cluster
nets = {
    "MLP": {"kind": "mlp", "hidden": p.hidden},
    "CNN": {"kind": "cnn", "channels": p.channels, "kernel": 3, "pool": "last", "hidden": p.cnn_hidden},
}


def source(d, shrink):
    """A data set's settings: the real one, or glyphs with as many classes and colours."""
    name, mean, std, *_ = sets[d]
    classes = {"classes": 47} if d == "EMNIST" else {}
    glyphs = {"name": "glyphs", "n": 600, "n_test": 10, "color": d == "CIFAR10"} | classes
    real = {"name": name} | ({"stand_in": "glyphs"} if d == "EMNIST" else {})
    chosen = {"real": real, "glyphs": glyphs}[p.data] | {"shrink": shrink}
    return chosen | ({"mean": mean, "std": std} if p.normalised else {})


def split(d, seed):
    table = fc.partition.draw_table(*EMNIST, seed).tolist() if d == "EMNIST" else fc.partition.TABLES[sets[d][0]]
    return {"kind": "class_table", "table": table, "devices": sets[d][3], "relabel": p.relabel}


def trial(lam, seed, d="MNIST", m="MLP", label=None, rounds=p.panel_iterations, relabel=p.relabel, **how):
    """One run; `how` changes the training (lr, batch) or the method."""
    lr, batch = how.pop("lr", p.lr), how.pop("batch", p.batch)
    usual = {"sign": p.sign, "loss": p.loss, "similarity": p.similarity, "rescue": p.rescue, "inits": p.inits}
    settings = {
        "data": source(d, p.shrink),
        "partition": split(d, seed) | {"holdout": p.holdout or None, "relabel": relabel},
        "model": {"kind": "mlp", "hidden": p.hidden_cifar} if (d, m) == ("CIFAR10", "MLP") else nets[m],
        "train": {"lr": lr, "batch": batch},
        "method": {"kind": "Joint", "k": sets[d][4], "lam": lam} | usual | how,
        "rounds": rounds,
        "eval_every": p.eval_every,
    }
    tags = {"data": d, "model": m, "lam": lam, "lr": lr}
    return Trial(settings, seed, label or name(lam), tags, "averaged")


def name(lam):
    return f"lambda {lam:g}" if lam else "IFCA"


named = name(p.named_lambda)


def lines(record, metric, said=""):
    """All lambdas' means; IFCA and the lambda that the text names with their 95 % intervals over seeds."""
    fig, ax = plots.panels(width=4.8, height=2.6)
    for k, label in enumerate(map(name, p.lambdas)):
        if label in set(record.algorithm):
            frame, shown = plots.by_round(record[record.algorithm == label], metric), label in ("IFCA", named)
            plots.band(ax, frame if shown else frame.mean().to_frame().T, label, k=k, lw=1.8 if shown else 1.0)
    plots.round_axis(ax, {"train_loss": "training loss"}.get(metric, metric), x="iteration")
    title = f"{record.seed.nunique()} seeds"
    if metric in ("purity", "accuracy"):
        goal = p.purity_goal if metric == "purity" else p.accuracy_goal
        ax.axhline(goal, color="black", lw=0.7, ls=":")
        gain = rounds_saved(record, metric, goal, "IFCA").mean()
        label = gain.fillna(-np.inf).idxmax() if "up to" in said else named
        ours = f"{gain[label]:.0%} ({label})" if gain.notna()[label] else "unknown"
        title += f", iterations saved to {goal:g}: ours {ours}" + (f", paper {said}" if said else "")
    ax.set_title(title, fontsize=8)
    plots.legend(fig)
    return fig


# %% [markdown]
# ### Figure 1: one iteration, with its numbers
#
# A real iteration of a small federation: two devices of each true cluster A to D, early in training. Frames mark what
# each device picked, the numbers over the bars whose steps a model averages.

# %%
toy = trial(p.named_lambda, p.seeds[0]).settings
toy |= {"partition": toy["partition"] | {"devices": 2 * p.clusters}}
report.uses(toy)
fed = studies.federation(toy, p.seeds[0])
model = studies.network(toy, fed)
joint = studies.method(toy, model)
state = joint.init(model.init(p.seeds[0]), fed, p.seeds[0])
for t in range(p.shown):
    state, _ = joint.step(state, fed, p.seeds[0], t)
x, y, mask = joint.batch(fed, p.seeds[0], p.shown)
dw = state.models - state.memory["previous"]
found, count = decision.decisions(model, state.models, dw, x, y, mask), mask.sum(1, keepdim=True)
after, _ = joint.step(state, fed, p.seeds[0], p.shown)
panes = {
    "1  loss L": found[0],
    "2  similarity S": replace(joint, lam=1.0).score(*found, dw, count),
    f"3  {p.named_lambda:g} S $-$ {1 - p.named_lambda:g} L": joint.score(*found, dw, count),
}
fig, axes = plots.panels(1, 4, height=2.6)
devices = [f"{i + 1} ({'ABCD'[g]})" for i, g in enumerate(fed.group.tolist())]
for ax, (title, values) in zip(axes, panes.items(), strict=False):
    low, high = float(values.min()), float(values.max())
    plots.heat(ax, values, devices, range(1, 5), xlabel="model k", form="{:.2f}", vmin=low, vmax=high + (high - low))
    for i, k in enumerate(after.labels.tolist()):
        ax.add_patch(plots.frame(k, i))
    ax.set_title(title)
axes[0].set_ylabel("device (true cluster)")
moved = (after.models - state.models).norm(dim=1)
axes[3].bar(range(1, 5), moved, color=plots.PALETTE[1], width=0.6)
for k, length in enumerate(moved.tolist()):
    who = [devices[i].split()[0] for i in (after.labels == k).nonzero()[:, 0].tolist()]
    axes[3].text(k + 1, length, ",".join(who) or "none", ha="center", va="bottom", fontsize=7.5)
axes[3].set(xlabel="model k", ylabel="length of its step", xticks=range(1, 5))
axes[3].set_title("4  models move")
report.figure("fig1", fig)

# %% [markdown]
# ### Figure 2: who holds what
#
# Counted in the partitioner's output. MNIST's classes do not have 6,000 images each; a printed 1,500 of 6,000 is read
# as a quarter of what there is.

# %%
fig, axes = plots.panels(3, 1, height=1.85)
common, rows = [], []
for ax, d in zip(axes, ("MNIST", "FashionMNIST", "CIFAR10"), strict=True):
    table = fc.partition.TABLES[sets[d][0]]
    whole = {"data": source(d, 4), "partition": split(d, 0) | {"devices": 80, "relabel": False}}
    report.uses(whole)
    fed = studies.federation(whole, 0)
    counts = np.stack([fc.partition.class_counts(fed)[fed.group == k].sum(0).numpy() for k in range(4)])
    plots.heat(ax, counts, "ABCD", studies.dataset(whole).classes, ylabel=f"{d}\ncluster")
    common += [int(((a > 0) & (b > 0)).sum()) for i, a in enumerate(counts) for b in counts[:i]]
    off = np.abs(counts - np.array(table)).max(1)
    rows += [[d, "ABCD"[k], sum(table[k]), int(counts[k].sum()), int(off[k])] for k in range(4)]
report.figure("fig2", fig)
columns = ["data", "cluster", "images in the paper", "ours", "largest difference of a cell"]
report.table("table-extra-split", pd.DataFrame(rows, columns=columns), "Images per cluster, printed and ours")

# %% [markdown]
# ### Figure 3: the models
#
# Read off the real modules at the paper's size, with their numbers of parameters; in brackets what the paper prints.

# %%
at_paper, printed, cells = paper.at("paper"), paper.printed("fig3"), {}
for d in sets:
    grey, outputs = d != "CIFAR10", 40 if d == "EMNIST" else 8
    shape, mine = ((1, 28, 28), "") if grey else ((3, 32, 32), "_cifar")
    top = ("last", at_paper["cnn_hidden"], 3) if grey else ("each", at_paper["cnn_hidden_cifar"], 5)
    mlp = fc.models.mlp(shape, outputs, at_paper[f"hidden{mine}"])
    cnn = fc.models.cnn(shape, outputs, at_paper[f"channels{mine}"], pool=top[0], hidden=top[1], kernel=top[2])
    for m, model in (("MLP", mlp), ("CNN", cnn)):
        cells[f"{m} input", d] = " x ".join(map(str, shape[grey:]))
        for row, text, size in fc.models.layers(model):
            cells[f"{m} {row}", d] = f"{text}: {size:,}" if size else text
        cells[f"{m} parameters", d] = f"{model.parameters:,}"
rows = [row[0] for row in paper.tables["fig3"]["rows"]]
rows = [r for m in ("MLP", "CNN") for r in [*(r for r in rows if r.startswith(m)), f"{m} parameters"]]
body = [[r, *(f"{cells.get((r, d), '/')} [{printed.get((r, d), 'not printed')}]" for d in sets)] for r in rows]
report.table("fig3", pd.DataFrame(body, columns=["", *sets]))

# %% [markdown]
# ## The trials
#
# Runs that are compared share, seed by seed, the split, the initial models and every mini-batch. Purity and accuracy
# are measured in every iteration. Intervals are 95 % t-intervals over seeds.
#
# ### First the learning rate
#
# IFCA on MNIST with the MLP at each rate. The rule, set beforehand: the headline uses the rate at which IFCA is most
# accurate in the last iteration.

# %%
axis = report.sweep([trial(lam, s, lr=r, rounds=p.iterations) for s in few for r in p.lrs for lam in pair])
last = axis[(axis.metric == "accuracy") & (axis["round"] == p.iterations - 1)]
ends = last.pivot_table(index="seed", columns=["lam", "lr"], values="value")
Markdown(
    "IFCA's accuracy at the end, by learning rate: "
    + ", ".join(f"{ends[0.0, r].mean():.3f} at {r:g}" for r in p.lrs)
    + f". Best at {ends[0.0].mean().idxmax():g}; the headline runs use {p.lr:g}."
)

# %% [markdown]
# ## Figures 4a to 4c: MNIST, MLP

# %%
main = report.sweep([trial(lam, s, rounds=p.iterations) for s in p.seeds for lam in p.lambdas])
shown = {"a": ("purity", "99 %"), "b": ("train_loss", ""), "c": ("accuracy", "14 %")}
for letter, (metric, said) in shown.items():
    report.figure(f"fig4{letter}", lines(main, metric, said))

# %% [markdown]
# ## Figures 4d to 4f: MNIST, CNN

# %%
cnn = report.sweep([trial(lam, s, m="CNN", rounds=p.cnn_iterations) for s in few for lam in p.few_lambdas])
for letter, metric in {"d": "purity", "e": "train_loss", "f": "accuracy"}.items():
    report.figure(f"fig4{letter}", lines(cnn, metric))

# %% [markdown]
# ## Figure 5: FashionMNIST, CIFAR-10, EMNIST
#
# All with the MLP: the text does not say which model these panels show.

# %%
others = {d: report.sweep([trial(lam, s, d) for s in few for lam in p.few_lambdas]) for d in list(sets)[1:]}
for letter, d, said in (("a", "FashionMNIST", 98), ("b", "CIFAR10", 21), ("c", "EMNIST", 97)):
    report.figure(f"fig5{letter}", lines(others[d], "purity", f"up to {said} %"))

# %% [markdown]
# ## Iterations to purity and to accuracy
#
# The paper's numbers are read off such curves. Iterations are counted from 1. A run that never arrives is *censored*:
# it counts as what it proves, a baseline's as the least saving, the method's as the most; where neither arrives
# nothing is known. *Reached* says how many seeds arrive; the iterations are the median over seeds. Where the paper
# says "up to", its number stands beside the $\lambda$ with our largest mean saving, a choice that favours the
# method.

# %%
curves = {"MNIST, MLP": main, "MNIST, CNN": cnn} | {f"{d}, MLP": r for d, r in others.items()}
goals = {"purity": p.purity_goal, "accuracy": p.accuracy_goal}
claimed = {"MNIST, MLP": 0.99, "FashionMNIST, MLP": 0.98, "CIFAR10, MLP": 0.21, "EMNIST, MLP": 0.97}
saved, best, rows = {}, {}, []
for panel, record in curves.items():
    for metric, goal in goals.items() if "MNIST, " in panel[:7] else [("purity", p.purity_goal)]:
        there, gain = fc.metrics.arrivals(record, metric, goal), rounds_saved(record, metric, goal, "IFCA")
        saved[panel, metric] = gain
        best[panel] = named if panel == "MNIST, MLP" else saved[panel, "purity"].mean().fillna(-np.inf).idxmax()
        beside = {"purity": claimed.get(panel, ""), "accuracy": 0.14 if panel == "MNIST, MLP" else ""}
        for label in [label for label in map(name, p.lambdas) if label in there.index]:
            reached, total, count = there.loc[label]
            count = f"{count:g}" if np.isfinite(count) else f"> {record['round'].max() + 1}"
            share = spread(gain[label], 2) if label in gain and gain[label].notna().any() else ""
            says = beside[metric] if label == best[panel] else ""
            rows.append([panel, f"{metric} {goal:g}", label, f"{reached:g}/{total:g}", count, share, says])
columns = ["", "goal", "method", "reached", "iterations", "share of IFCA's iterations saved", "paper"]
report.table("table-extra-iterations", pd.DataFrame(rows, columns=columns), "Iterations until a goal is first reached")

# %% [markdown]
# ## The learning rate decides the size of the effect
#
# Same runs at five rates: IFCA and the $\lambda$ that the text names. Dots are seeds, open triangles runs that never
# arrive. The similarity needs no learning to be there; losses need models that differ, and those take the longer the
# smaller the rate.

# %%
fig, axes = plots.panels(1, 3, height=2.5)
beginning = axis[(axis.metric == "purity") & axis["round"].between(1, p.early)]
beginning = beginning.pivot_table(index="seed", columns=["lam", "lr"], values="value")
for (lam, r), part in axis.groupby(["lam", "lr"]):
    for row in rounds_to(part, "purity", p.purity_goal).itertuples():
        look = {"color": plots.PALETTE[pair.index(lam)], "marker": "^" if row.censored else "o"}
        axes[0].plot(r * (1.08 if lam else 0.93), row.round + 1, ls="", **look, mfc="white" if row.censored else None)
for lam in pair:
    for ax, frame in ((axes[1], beginning), (axes[2], ends)):
        plots.band(ax, frame[lam][sorted(p.lrs)], name(lam), seeds=True)
titles = (f"iterations to purity {p.purity_goal:g}", f"purity, iterations 1 to {p.early}", "accuracy at the end")
for ax, title in zip(axes, titles, strict=True):
    ax.set(xscale="log", xlabel="learning rate", ylim=(0, p.iterations * 1.05 if ax is axes[0] else 1))
    ax.set_title(title)
plots.legend(fig)
caption = f"What the learning rate does to both methods (MNIST, MLP, {len(few)} seeds)"
report.figure("fig-extra-rate", fig, caption)

# %% [markdown]
# ## Claims
#
# A verdict is the weakest of a claim's tests. *Reproduced*: the 95 % interval over seeds lies on the claimed side
# and, where the paper prints a size, ours is within half of it; *direction*: only the side is right; *inconclusive*:
# the interval does not tell.

# %%
rescue = report.sweep([trial(p.named_lambda, s, rescue=False, rounds=p.ablation_iterations) for s in few])


def over_run(record, lam, metric, first=0, until=None):
    """Mean over iterations, by seed."""
    rows = record[(record.lam == lam) & (record.metric == metric) & (record["round"] >= first)]
    return (rows if until is None else rows[rows["round"] < until]).groupby("seed").value.mean()


early = pd.DataFrame({lam: over_run(main, lam, "purity", 1, p.early + 1) for lam in p.lambdas})
weighed = [lam for lam in p.lambdas if lam > 0]
at = np.array(weighed) - np.mean(weighed)
measures = pd.DataFrame(index=pd.Index(p.seeds, name="seed"))
measures["mnist_saved"] = saved["MNIST, MLP", "purity"][named]
for measure, d in (("fashion_saved", "FashionMNIST"), ("cifar_saved", "CIFAR10"), ("emnist_saved", "EMNIST")):
    measures[measure] = saved[f"{d}, MLP", "purity"][best[f"{d}, MLP"]]
measures["accuracy_saved"] = saved["MNIST, MLP", "accuracy"][named]
measures["early_slope"] = early[weighed] @ at / (at @ at)
for lam, said in ((0.0, "0"), (weighed[0], "01"), (weighed[-1], "05")):
    measures[f"early_{said}"] = early[lam]
for metric, said in (("purity", "purity"), ("accuracy", "accuracy"), ("train_loss", "loss")):
    measures[f"cnn_{said}"] = over_run(cnn, p.named_lambda, metric)
    measures[f"cnn_{said}_0"] = over_run(cnn, 0.0, metric)
empty = main[(main.lam == p.named_lambda) & (main.metric == "empty")]
measures["empty_share"] = (empty.set_index("seed").value > 0).groupby("seed").mean()
measures["rescue_accuracy"] = over_run(main, p.named_lambda, "accuracy", 0, p.ablation_iterations)
measures["no_rescue_accuracy"] = over_run(rescue, p.named_lambda, "accuracy")
measures["least_common"] = float(min(common))
unseen = f"no run reaches the goal in {p.panel_iterations} iterations, with IFCA or with any lambda"
compared = {"c1": "mnist_saved", "c1b": "fashion_saved", "c1c": "cifar_saved", "c1d": "emnist_saved"}
verdicts = report.judge(measures, {claim: unseen for claim, m in compared.items() if measures[m].isna().all()})

# %% [markdown]
# ### How the curves go on
#
# A first crossing says little about what follows. Purity, ARI and empty clusters at the beginning and in the last
# fifth of the run, and how many of the iterations after the first crossing are at or above the goal.

# %%
late, summary = int(0.8 * p.iterations), {}
for lam in p.lambdas:
    part = main[main.lam == lam]
    pure = part[part.metric == "purity"].pivot(index="seed", columns="round", values="value")
    above = pure >= p.purity_goal
    held = [row[row.idxmax() :].mean() if row.any() else np.nan for _, row in above.iterrows()]
    summary[name(lam), f"purity, iterations 1-{p.early}"] = early[lam]
    summary[name(lam), "purity, last fifth"] = over_run(main, lam, "purity", late)
    summary[name(lam), "ARI, last fifth"] = over_run(main, lam, "ari", late)
    nobody = part[part.metric == "empty"].set_index("seed").value > 0
    summary[name(lam), "iterations with an empty cluster"] = nobody.groupby("seed").mean()
    summary[name(lam), "stays there"] = pd.Series(held, index=pure.index)
    summary[name(lam), "accuracy at the end"] = over_run(main, lam, "accuracy", p.iterations - 1)
summary = pd.DataFrame(summary)
report.summary("table-extra-course", summary, "Beginning and end of the runs of figs. 4a-4c", 2)

# %% [markdown]
# ## How much hangs on our readings
#
# Each row changes one open value of the headline runs (MNIST, MLP) and leaves everything else, seeds included, as it
# is. Where the change touches the baseline too, both are run.

# %%
swapped = "true labels, 10 outputs" if p.relabel else "labels numbered anew, 8 outputs"
readings = {
    "headline": {},
    "Eq. 3 with the printed sign": {"sign": "printed"},
    "Eq. 1 as a sum": {"loss": "sum"},
    "minus the Euclidean distance": {"similarity": "euclidean"},
    "empty clusters stay empty": {"rescue": False},
    "one initial model, perturbed": {"inits": "perturbed"},
    "batches twice as large": {"batch": 2 * p.batch},
    swapped: {"relabel": not p.relabel},
}
alike = ("Eq. 3", "Eq. 1", "minus")  # lambda = 0 does not see them
length = {"headline": p.iterations}
runs = [
    trial(lam, s, label=f"{what}|{name(lam)}", rounds=length.get(what, p.ablation_iterations), **how)
    for what, how in readings.items()
    for s in few
    for lam in pair
    if lam or not what.startswith(alike)
]
read = report.sweep(runs)
read = read[read["round"] < p.ablation_iterations]
late, samples = int(0.8 * p.ablation_iterations), {}
for label in dict.fromkeys(read.algorithm):
    part, lam = read[read.algorithm == label], 0.0 if label.endswith("IFCA") else p.named_lambda
    what = label.replace("|", ", ")
    samples[what, f"purity, iterations 1-{p.early}"] = over_run(part, lam, "purity", 1, p.early + 1)
    samples[what, f"purity, iterations {late + 1}-{p.ablation_iterations}"] = over_run(part, lam, "purity", late)
    samples[what, "empty clusters"] = over_run(part, lam, "empty")
    samples[what, "accuracy at the end"] = over_run(part, lam, "accuracy", p.ablation_iterations - 1)
caption = f"Open values read in another way: {len(few)} seeds, {p.ablation_iterations} iterations"
report.summary("table-extra-readings", pd.DataFrame(samples), caption, 2)

# %% [markdown]
# ## What it cost
#
# All methods send the same: $K$ models down to each device and one up, in every iteration. What joint adds is work on
# the devices: gradients of all $K$ models instead of one.

# %%
paid = main[main.metric.isin(["down", "up", "bytes"]) & main.lam.isin(pair)]
paid = paid.groupby(["algorithm", "metric"], observed=True).value.sum().unstack() / len(p.seeds)
paid["bytes"] /= 1e6
k = p.clusters
paid["passes"] = [p.devices * p.iterations * (k + 2 if label == "IFCA" else 3 * k) for label in paid.index]
columns = ["method", "megabytes", "models down", "models up", "passes of a batch (a backward counts as two)"]
paid = paid.reset_index().set_axis(columns, axis=1)
report.table("table-extra-cost", paid, f"What {p.iterations} iterations cost; run times are in run.json")
report.close()

# %% [markdown]
# ## Beyond the paper: what do the devices differ in?
#
# With labels numbered anew the clusters *contradict* each other: one image has different labels in different clusters,
# so that a model cannot serve two of them. With the true labels only the mix of classes differs, and one model could
# serve all. The table of readings has both; here is what that does to purity.

# %%
mean = pd.DataFrame(samples).mean()


def reading(what, lam, value=0):
    """One cell of the table of readings: purity at the beginning, purity at the end, empty clusters, accuracy."""
    return mean[f"{what}, {name(lam)}"].iloc[value]


anew, true = ("headline", swapped) if p.relabel else (swapped, "headline")
Markdown(
    f"Labels numbered anew: purity at the beginning {reading(anew, 0.0):.2f} for IFCA, "
    f"{reading(anew, pair[1]):.2f} for {named}, at the end {reading(anew, 0.0, 1):.2f} and "
    f"{reading(anew, pair[1], 1):.2f}. True labels: "
    f"at the beginning {reading(true, 0.0):.2f} and {reading(true, pair[1]):.2f}, "
    f"at the end {reading(true, 0.0, 1):.2f} and {reading(true, pair[1], 1):.2f}."
)

# %% [markdown]
# ## What we learned

# %%
gap = {r: beginning[pair[1]][r].mean() - beginning[0.0][r].mean() for r in p.lrs}
printed_sign = "Eq. 3 with the printed sign"
course, top = summary.mean(), name(p.lambdas[-1])
end = {label: course[label, "purity, last fifth"] for label in ("IFCA", named, top)}
got = {label: fc.metrics.arrivals(main, "purity", p.purity_goal).loc[label] for label in ("IFCA", named)}
reached = " and ".join(f"{label} in {got[label].reached:g} of {got[label].seeds:g} runs" for label in got)
saw = {label: course[label, "iterations with an empty cluster"] for label in ("IFCA", named)}
Markdown(
    f"""*The sentences are about the quick tier, the numbers are of this run.*

**The idea is right, early on.** In iterations 1 to {p.early} the gradient's direction sorts devices better than the
loss: purity {early[0.0].mean():.2f} for IFCA, {early[p.named_lambda].mean():.2f} for {named},
{early[p.lambdas[-1]].mean():.2f} for {top}.

**The size is a matter of the learning rate.** What {named} adds at the beginning is
{", ".join(f"{gap[r]:+.2f} at {r:g}" for r in p.lrs)}. The method is nearly indifferent to the rate, as a cosine
must be; it is IFCA that slows down with it. So the advantage is largest where the training learns next to nothing
(accuracy {ends[pair[1], min(p.lrs)].mean():.2f} at {min(p.lrs):g}), and where neither method comes to purity
{p.purity_goal:g} in {p.iterations} iterations.

**Sorted early is not sorted for good.** Purity {p.purity_goal:g} is reached by {reached}. Late in the run purity is
{end["IFCA"]:.2f} for IFCA, {end[named]:.2f} for {named}, {end[top]:.2f} for {top}. A possible reason, which we have
not measured: the gradients of a model that fits are small and noisy, and a cosine does not see that they are small.
A lambda that fades might help; the paper does not have it.

**Empty clusters are no exception:** {saw["IFCA"]:.0%} of the iterations have one with IFCA, {saw[named]:.0%} with
{named}. Purity near 0.75 with an empty cluster means that two true clusters share a model; most runs that miss the
goal end there or below, with either method. The rescue does not mend it: purity at the end of the table's runs is
{reading("headline", pair[1], 1):.2f} with it and {reading("empty clusters stay empty", pair[1], 1):.2f} without,
for {named}.

**The sign in print is hardly the one that was run.** With it {named} starts at
{reading(printed_sign, pair[1]):.2f}, against {reading("headline", 0.0):.2f} without any gradient and
{reading("headline", pair[1]):.2f} with ours, and ends at {reading(printed_sign, pair[1], 1):.2f}.

**What matters besides lambda.** A gradient of more images is a better witness: with batches twice as large {named}
begins at {reading("batches twice as large", pair[1]):.2f} and ends at
{reading("batches twice as large", pair[1], 1):.2f} ({len(few)} seeds, wide intervals). The paper gives neither
batch size nor learning rate; both decide how large its effect is."""
)

# %% [markdown]
# ### Where a claim is not reproduced or undecided
#
# *Our bug?* $\lambda = 0$ equals IFCA number for number, losses and cosines equal those of one backward pass per pair
# of device and model, the step equals averaging the devices' models: tests of this package, with hand-computed
# values. *Other readings* stand in the table above: the printed sign, the summed loss, the Euclidean distance,
# perturbed initial models, larger batches, true labels. *What would make the claims true:* savings near 99 % need a
# baseline that takes a hundred times as long, hence a learning rate far below the one at which it learns well, and a
# run long enough to wait for it. Whether a run gets to purity 0.9 at all hangs mostly on its initial models, so
# claims about that goal need many seeds; the paper shows one. The quick tier has fewer devices, smaller models and
# short runs; the `paper` tier has 80 devices and 1,000 iterations.
