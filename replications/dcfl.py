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
few, short = p.seeds[: p.extra_seeds], min(p.rounds, p.extra_rounds)

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
    angles = [
        torch.rad2deg(torch.acos(torch.cosine_similarity(ends[i] - starts[i], s * gap, dim=0)))
        for i, s in ((0, 1), (1, -1))
    ]
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
ax.set(
    xlabel="angle between the updates (degrees)",
    ylabel="divergence $\\omega$",
    ylim=(0, 1.03),
    xticks=range(0, 181, 30),
)
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
sources = {"emnist": {"name": "emnist", "stand_in": "mnist"}, "mnist": {"name": "mnist"}, "glyphs": {"name": "glyphs"}}
dcfl = {"kind": "DCFL", "preference": p.preference, "power": p.power, "new_models": p.new_models}
methods = {
    "DCFL": dcfl,
    "CFL": {"kind": "CFL", "eps1": p.eps1 * p.clip, "eps2": p.eps2 * p.clip, "warmup": p.split_from},
    "FedAvg": {"kind": "FedAvg"},
    "Local": {"kind": "LocalOnly"},
}
federated = ["DCFL", "CFL", "FedAvg"]
unscaled = methods["CFL"] | {"eps1": p.eps1_unclipped, "eps2": p.eps2_unclipped}
newcomers = len(range(p.join_every, p.rounds, p.join_every))
base = {
    "data": sources[p.data] | {"shrink": p.shrink, "mean": [0.5], "std": [0.5]},
    "partition": {
        "kind": "dirichlet_rotated",
        "clients": p.clients + newcomers,
        "alpha": p.alpha,
        "samples": p.samples,
    },
    "model": {"kind": "cnn", "channels": p.channels, "kernel": p.kernel, "hidden": [p.hidden]},
    "train": {
        "lr": p.lr,
        "momentum": p.momentum,
        "decay": p.decay,
        "batch": p.batch,
        "epochs": p.epochs,
        "steps": p.steps or None,
    },
    "rounds": p.rounds,
    "eval_every": p.eval_every,
}
joins = {"start": p.clients, "join_every": p.join_every}
drifts = {"drift_from": p.drift_from, "drift_every": p.drift_every}


def trial(
    label,
    seed,
    method=None,
    *,
    join=True,
    drift=True,
    privacy=p.mechanism,
    epsilon=p.epsilon,
    samples=None,
    rounds=None,
    **tags,
):
    """One run of the paper's experiment with some of it changed; `tags` become columns of its record."""
    privacy = "none" if label == "Local" else privacy  # what is not sent needs no noise
    method = method or (unscaled if label == "CFL" and privacy == "none" else methods[label])
    budget = {"epsilon": epsilon, "delta": p.delta, "clip": p.clip}
    guard = {
        "none": None,
        "update": {"kind": "UpdateNoise"} | budget,
        "dpsgd": {"kind": "DPSGD", "participations": p.rounds} | budget,
    }
    changed = {
        "partition": base["partition"] | {"samples": samples or p.samples} | ({} if join else {"clients": p.clients}),
        "train": base["train"] | {"privacy": guard[privacy]},
        "method": method,
        "events": (joins if join else {}) | (drifts if drift else {}),
        "rounds": rounds or p.rounds,
    }
    return Trial(base | changed, seed, label, tags)


kinds = ("complete", "divergence", "euclidean", "cosine")
main = report.sweep([trial(m, s) for s in p.seeds for m in methods])
others = [trial(k, s, dcfl | ({} if k == "complete" else {"distance": k})) for s in p.seeds for k in kinds]
distances = report.sweep(others)


def ends_and_averages(record):
    """Mean and deviation over clients, at the end and averaged over training: a row per seed, columns (method, value)."""
    over = fc.metrics.over_clients(record).rename(columns={"algorithm": "method"})
    last = (
        over[over["round"] == over["round"].max()].set_index(["seed", "method"])[["mean", "std"]].add_prefix("final ")
    )
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
settings5 = report.sweep(
    [trial(m, s, case=c, **how) for s in p.seeds for c, (_, how) in cases.items() for m in federated]
)
fig, axes = plots.panels(2, 2, height=2.2, sharex=True, sharey=True)
for ax, (case, (title, _)) in zip(axes.flat, cases.items(), strict=True):
    part = settings5[settings5.case == case]
    for name in federated:
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
changes = moved[moved["round"] >= half].pivot_table(
    index="seed", columns="algorithm", values="regrouped", observed=True
)
server = distances[distances.client == -1].pivot_table(
    index=["algorithm", "seed", "round"], columns="metric", values="value", observed=True
)
steps = distances[(distances.metric == "accuracy")].pivot_table(
    index=["algorithm", "seed", "round"], columns="client", values="value", observed=True
)
jumps = (
    steps.groupby(level=[0, 1], observed=True)
    .diff()
    .abs()
    .mean(axis=1)
    .groupby(level=[0, 1], observed=True)
    .mean()
    .unstack(0)
)
fig, axes = plots.panels(1, 2, height=2.3)
for ax, (metric, label) in zip(
    axes, (("clusters", "number of clusters"), ("dunn", "Dunn index before reclustering")), strict=True
):
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
    rows.append(
        [
            kind,
            run.clusters.mean(),
            late.reclustered.mean(),
            changes[kind].mean(),
            late.dunn.median(),
            int((run.converged == 0).sum()),
            jumps[kind].mean(),
        ]
    )
names = [
    "distance",
    "clusters",
    "asked for new clusters",
    "clusters changed",
    "Dunn index (median)",
    "rounds without convergence",
    "jump of a client's accuracy",
]
report.table(
    "table-extra-clusters",
    pd.DataFrame(rows, columns=names),
    "Shares of rounds and the Dunn index are of the second half of training; a jump is the mean change of one client's accuracy from round to round",
)

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
    alone = [trial(when, s, dcfl, join=False, drift=False, privacy=guard, private=guard != "none") for s in few]
    found += [Trial(t.settings | {"rounds": at}, t.seed, t.label, t.tags, task="pairs") for t in alone]
seen = report.sweep(found)
ranks = seen.groupby(["algorithm", "private", "seed", "metric"], observed=True)[
    ["value", "angle", "labels", "together"]
].corr("spearman")
ranks = ranks["value"].unstack()[["angle", "labels"]].groupby(level=[0, 1, 3], observed=True).mean().reset_index()
ranks.columns = ["round", "privacy noise", "distance", "with the angle", "with the label mix"]
report.table(
    "table-extra-distances",
    ranks,
    "Rank correlation of updates' distances with differences of the clients' data (DCFL, no newcomers, no drift)",
)

# %% [markdown]
# ## The claims
#
# A claim is *reproduced* if the interval of every test excludes the contrary and sizes agree within half of the printed
# effect, *direction* if only the size differs, *inconclusive* if an interval includes no effect, *not reproduced* if it
# excludes the claim.

# %%
early = (
    fc.metrics.over_clients(main[main["round"] < p.rounds // 6])
    .groupby(["seed", "algorithm"], observed=True)["mean"]
    .mean()
    .unstack()
)
measures = pd.DataFrame(index=pd.Index(p.seeds, name="seed"))
for name in federated:
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
# Each row changes one open value of the headline run and leaves everything else, seeds included, as it is. Compared with the
# headline run at the same round.

# %%
readings = {
    "preference: 0.9 quantile (more clusters)": ("DCFL", {"method": dcfl | {"preference": 0.9}}),
    "similarity: squared distance": ("DCFL", {"method": dcfl | {"power": 2.0}}),
    "Eq. 5: means of cluster models": ("DCFL", {"method": dcfl | {"new_models": "clusters"}}),
    "half as many images per client": ("DCFL", {"samples": p.samples // 2}),
    "twice as many images per client": ("DCFL", {"samples": 2 * p.samples}),
    "half as many images per client, alone": ("Local", {"samples": p.samples // 2}),
    "twice as many images per client, alone": ("Local", {"samples": 2 * p.samples}),
    "CFL: thresholds of its public code": ("CFL", {"method": unscaled}),
    "DP-SGD, epsilon 10 in all": ("DCFL", {"privacy": "dpsgd", "epsilon": 10.0}),
    "DP-SGD, epsilon 10 in all, FedAvg": ("FedAvg", {"privacy": "dpsgd", "epsilon": 10.0}),
    "DP-SGD, epsilon 100 in all": ("DCFL", {"privacy": "dpsgd", "epsilon": 100.0}),
}
read = report.sweep(
    [trial(m, s, reading=name, rounds=short, **how) for s in few for name, (m, how) in readings.items()]
)
until = main[main["round"] < short]
rows = []
for name, (m, _) in readings.items():
    part = read[read.reading == name]
    values, headline = ends_and_averages(part)[m], ends_and_averages(until)[m].loc[few]
    difference = (values["final mean"] - headline["final mean"]).mean()
    clusters = plots.by_round(part, "clusters").iloc[:, -1].mean()
    rows.append([name, m, values["final mean"].mean(), values["final std"].mean(), f"{difference:+.3f}", clusters])
names = ["changed", "method", "final mean", "final std", "against the headline", "clusters at the end"]
report.table(
    "table-extra-readings",
    pd.DataFrame(rows, columns=names),
    f"Open values read in another way: means over {len(few)} seeds, after {short} rounds",
)

# %% [markdown]
# ### What the privacy budget means
#
# The headline mechanism scales its noise by $2C/m$, as if the clipped update were the mean of $m$ separately clipped samples.
# It is not: one sample can move a clipped update by up to $2C$. The table gives what Opacus' accountant makes of the same noise
# over the whole training in both cases; DP-SGD is the mechanism whose account holds.

# %%
m, c = round(0.8 * p.samples), np.sqrt(2 * np.log(1.25 / p.delta))
accounts = [
    ["as printed, each round", p.epsilon],
    ["composed over the rounds, sensitivity 2C/m", fc.privacy.epsilon_of(c / p.epsilon, 1.0, p.rounds, p.delta)],
    ["composed over the rounds, sensitivity 2C", fc.privacy.epsilon_of(c / p.epsilon / m, 1.0, p.rounds, p.delta)],
]
accounts = pd.DataFrame(
    [[how, f"{value:.3g}"] for how, value in accounts], columns=["account of the headline's noise", "epsilon"]
)
report.table(
    "table-extra-privacy", accounts, f"Epsilon at delta = {p.delta:g} of a client that trains in all {p.rounds} rounds"
)

# %% [markdown]
# ## What it cost
#
# Models sent and bytes, as the runs counted them.

# %%
counted = main[main.metric.isin(["down", "up", "extra", "bytes"])]
spent = (
    counted.groupby(["algorithm", "seed", "metric"], observed=True)
    .value.sum()
    .unstack()
    .groupby(level=0, observed=True)
    .mean()
)
spent = pd.DataFrame(
    {
        "models down": spent["down"],
        "models up": spent["up"],
        "extra trainings": spent["extra"],
        "MB": spent["bytes"] / 1e6,
    }
)
report.table(
    "table-extra-cost", spent.loc[list(methods)].reset_index(names="method"), "Traffic of one training, mean over seeds"
)
n = p.clients + newcomers
Markdown(
    f"DCFL sends what FedAvg sends, and one model down and one up for each newcomer. Its clustering is cheap: the distances of "
    f"{n} clients with $P$ numbers each take about $4n^2P$ operations, a round of training at least $6Pmn$, so the server adds "
    f"at most $2n/3m$ = {2 * n / 3 / m:.1%} of the clients' work. It grows with the number of clients, the clients' own work does not."
)

# %% [markdown]
# ## Beyond the paper
#
# The paper names two directions for later: other privacy budgets, and rounds in which only some clients take part.

# %%
beyond = report.sweep(
    [trial(m, s, epsilon=e, budget=e, rounds=short) for s in few for e in p.budgets for m in federated]
    + [trial(m, s, methods[m] | {"fraction": 0.5}, budget=0.0, rounds=short) for s in few for m in federated]
)
until = until[until.seed.isin(few)].assign(budget=p.epsilon)
beyond = pd.concat([beyond, until[until.algorithm.isin(federated)]])
at_end = beyond[(beyond.metric == "accuracy") & (beyond["round"] == short - 1)]
finals = at_end.groupby(["algorithm", "seed", "budget"], observed=True).value.mean().unstack()
fig, ax = plots.panels(width=4.6)
budgets = sorted({*p.budgets, p.epsilon})
for name in federated:
    plots.band(ax, finals.loc[name, budgets], name, x=range(len(budgets)), seeds=True)
ax.set(xlabel="epsilon per round (clip norm unchanged)", ylabel="accuracy", ylim=(0, 1), xticks=range(len(budgets)))
ax.set_xticklabels([f"{e:g}" for e in budgets])
plots.legend(ax, cols=3)
report.figure(
    "fig-extra-epsilon", fig, f"Accuracy after {short} rounds over the privacy budget; thin lines are single seeds"
)
shares = pd.DataFrame(
    [[m, finals.loc[m, p.epsilon].mean(), finals.loc[m, 0.0].mean()] for m in federated],
    columns=["method", "all clients", "half of them"],
)
report.table(
    "table-extra-participation",
    shares,
    f"Accuracy after {short} rounds when all, or a random half, of the clients train in a round: means over {len(few)} seeds",
)
report.close()
