# %% [markdown]
# # FedAC: a cluster splits when its loss stands still and its clients disagree
#
# Hsu, Keoy, Chen, Chao and Lai, *Personalized Federated Learning Algorithm with Adaptive Clustering for Non-IID IoT
# Data Incorporating Multi-Task Learning and Neural Network Model Characteristics*, Sensors 2023, 23, 9016,
# [10.3390/s23229016](https://doi.org/10.3390/s23229016).

# %% tags=["parameters"]
tier = "quick"  # smoke (seconds, drawn glyphs) | quick (minutes, real data) | paper (the paper's sizes)
seeds = None  # how many, or a list; None here and below: what papers/fedac.toml says for the tier
jobs = 2  # worker processes
backend = "loky"  # where they run: loky (here), ray or dask (a cluster)
data = None  # "cifar10" | "glyphs"
clients = None  # spread evenly over the client clusters
rounds = None  # communication rounds
fraction = None  # share of a cluster's clients that train in a round
lr = None  # learning rate, for the printed number of local steps
alpha = None  # the loss may change by less than this, for 10,000 images
loss = None  # what changes: the "sum" of the losses of test batches | "mean"
beta = None  # some cosine must be below this
reading = None  # of what: "aggregate" (a client's update and the mean) | "pairwise" (two clients' updates)
warmup = None  # rounds without splits

# %%
import numpy as np
import pandas as pd
from IPython.display import Markdown

import fedclust as fc
from fedclust.experiments import Trial, build
from fedclust.report import Report, multiverse, plots, readings
from fedclust.report.drawings import fedac as figures

paper, p = fc.papers.start("fedac", globals())
report = Report(paper, p)
few = p.seeds[: p.side_seeds]
report.opening("fig4a")

# %% [markdown]
# **What the paper claims.** A hundred clients hold CIFAR-10, in groups that have no class in common. One model
# averaged over all of them never comes to rest, since every round's draw of ten clients pulls it to other classes.
# FedAC starts as FedAvg and watches each cluster's loss and the angles between its clients' updates. When the loss
# hardly changes any more while somebody pulls away from the mean, the cluster is cut in two. So the number of
# clusters need not be known, IID clients are never cut and lose nothing, and after the last cut the oscillation is
# over. A cheaper variant, FedACP, is drawn in the figures; the paper calls it less exact and never defines it.
#
# The paper shows single runs and prints neither an accuracy nor a table. This notebook redraws every figure over
# several seeds, adds the missing numbers, judges each claim by a rule written down before the runs
# (`papers/fedac.toml`), and opens the method to see *which of its two conditions decides*.

# %% [markdown]
# ## The method
#
# Clients minimise $F(\omega) = \sum_k p_k F_k(\omega)$ with $p_k = n_k / n$ (Eq. 1). In a round, each cluster $C$
# draws a tenth of its clients, $S^t$; each goes some epochs of $\omega_k \leftarrow \omega_k - \eta \nabla
# F_k(\omega_k)$ (Eq. 3); the cluster's next model is $\omega^{t+1} = \sum_{k \in S^t} p_k\, \omega_k^{t+1}$ (Eq. 5).
# That is FedAvg (Algorithm 1). FedAC (Algorithm 2) then looks at two numbers,
#
# $$\Delta\mathrm{loss} = \mathrm{evaluate}(\omega^{t+1}) - \mathrm{evaluate}(\omega^{t}), \qquad
# \theta = \min_{k \in S^t} \cos\bigl(\Delta\omega^{t+1}, \Delta\omega_k^{t+1}\bigr),$$
#
# and splits $C$ if $|\Delta\mathrm{loss}| < \alpha$ *and* $\theta < \beta$. The two participants whose updates are
# farthest apart become anchors; every client of $C$ goes to the nearer anchor. Clients that did not take part are
# asked for a training of their own, just for that. Splits are for ever. `fedclust/algorithms/fedac.py` carries the
# line numbers of the listing.
#
# ### Figure 1: why wait at all?
#
# The paper's argument for the first condition, as a toy that really runs: clients have optima in the plane, around
# two points, one per group. Their common model starts far to the left and moves as FedAvg does; in three rounds the
# library's split is applied to all updates. From afar the groups lie one behind the other: the updates run alike, and
# what the split finds is the scatter of the optima. From between the two points the groups run apart.

# %%
report.figure("fig1", figures.plane(), seeds=[])

# %% [markdown]
# Note that on the left $\theta$ is far above 0: in the toy the *angle* forbids the early split by itself.
#
# ## What was open, and how we read it
#
# Most delicate are three. (a) $\alpha = 5$ makes sense only if *evaluate* sums the losses of test batches, as the
# framework's quick-start does: over 10,000 images the mean loss may then change by 0.016. (b) The listing takes the
# pair with the *largest* similarity as anchors, the text the farthest: we follow the text. (c) FedACP has no
# definition. Ours places the participants of the round only; every other client is placed when it next takes part, by
# an update from the model that was split. The numbered deviations are in `papers/fedac.md`.
#
# **How the quick tier shrinks the work.** Clients, participation and network stay. A client's 80 local steps become a
# few, with the learning rate raised until they lead as far under an unchanging gradient (`build.stretched`), so
# that a round moves the model as far as a round of the paper; batches are larger, so that updates do not disagree by
# mere noise; only the first rounds are run; and fewer images are held out. $\alpha$ is scaled by their number and by
# how much less the loss changes in a short round. A table near the end compares both conditions with those at whole size.

# %%
report.settings()

# %% [markdown]
# What $\alpha$ is at the quick tier was settled on FedAvg alone:

# %%
report.static("table-calibration")

# %%
title = {"iid": "IID", "two": "two clusters", "three": "three clusters", "four": "four clusters"}
number = {"iid": 1, "two": 2, "three": 3, "four": 4}
source = dict(name=p.data, mean=[0.5] * 3, std=[0.5] * 3)
if p.data == "glyphs":
    source.update(color=True, n=40 * p.clients, n_test=10 * p.clients)
images = build.dataset({"data": source})
trained = round((1 - p.holdout) * len(images.y))
read = round(p.validation * trained) or round(p.holdout * len(images.y)) or len(images.y_test)  # by the gate
scale = p.loss_scale * read / 10_000 if p.loss == "sum" else 1.0  # alpha is for 10,000 images
mine = (1 - p.validation) * (1 - p.holdout) * len(images.y) / p.clients  # images of a client
full = p.epochs * int(np.ceil(mine / paper.at("paper")["batch"]))  # steps of a whole local training
local = dict(momentum=p.momentum, batch=p.batch)
if p.steps:
    pace = dict(lr=build.stretched(p.lr, p.momentum, full, p.steps), steps=p.steps)
else:
    pace = dict(lr=p.lr, epochs=p.epochs)
net = dict(kind="cnn", channels=p.channels, kernel=5, hidden=p.hidden)
groups = dict(kind="class_groups", clients=p.clients, holdout=p.holdout or None)
if p.validation:
    groups["validation"] = p.validation

# %%
alpha = p.alpha * scale
gates = dict(alpha=alpha, beta=p.beta, loss=p.loss, reading=p.reading, warmup=p.warmup)
fedavg = dict(kind="FedAvg", fraction=p.fraction)
fedac = dict(kind="FedAC", fraction=p.fraction, **gates)
methods = {"FedAvg": fedavg, "FedAC": fedac, "FedACP": dict(fedac, kind="FedACP")}
never = dict(fedac, alpha=0.0)  # FedAvg, number for number, that writes down both conditions


def trial(case, label, seed, method, task="train", train=None, **settings):
    """One run of the paper's experiment, or of one that differs in the settings given."""
    usual = dict(data=source, model=net, method=method, rounds=p.rounds)
    usual["partition"] = dict(groups, groups=number[case])
    usual["train"] = dict(local, **pace) if train is None else train
    usual.update(settings)
    return Trial(usual, seed, label, {"case": case}, task)


def side(name, method, **train):
    """Shorter runs with four clusters that differ in something."""
    how = dict(local, **pace)
    how.update(train)
    return [trial("four", name, s, method, train=how, rounds=p.side_rounds) for s in few]


# %%
plans = {"runs": [], "map": [], "readings": [], "forced": [], "whole": []}
for case in title:
    last = p.side_rounds if case == "three" else p.rounds
    for seed in few if case == "three" else p.seeds:
        plans["runs"] += [trial(case, m, seed, methods[m], rounds=last) for m in methods]
        plans["runs"].append(trial(case, "watched", seed, never, rounds=last))
for name, value in {"5": 5.0, "50": 50.0, "any": 1e9}.items():
    for beta in (-0.5, 0.0, 0.5):
        plans["map"] += side(f"{name}, {beta}", dict(fedac, alpha=value * scale, beta=beta))
late = f"no split in the first {p.delay} rounds"
plans["readings"] += side("theta between pairs of clients", dict(fedac, reading="pairwise"))
plans["readings"] += side("mean loss in place of the sum", dict(fedac, loss="mean", alpha=p.alpha))
plans["readings"] += side(late, dict(fedac, warmup=p.delay))
plans["readings"] += side("the same, and no condition on the loss", dict(fedac, warmup=p.delay, alpha=1e9))
plans["readings"] += side("FedProx inside FedAC", fedac, prox=p.mu)
plans["readings"] += side("FedProx alone", fedavg, prox=p.mu)
asked = dict(fedac, warmup=0)
for case in ("two", "four"):
    plans["forced"] += [trial(case, "forced", s, asked, "forced", asked=p.asked) for s in p.seeds]

# %%
whole = dict(momentum=p.momentum, batch=paper.at("paper")["batch"], lr=p.lr, epochs=p.epochs)
for case in ("iid", "two", "four"):
    for seed in few:
        plans["whole"].append(trial(case, "whole", seed, never, train=whole, rounds=p.check_rounds))
ran = report.sweeps(plans)
runs = dict(iter(ran["runs"].groupby(["case", "algorithm"], observed=True)))

# %% [markdown]
# ### Figure 2: the clustering process
#
# The tree of one real run: what was split, when, and which clients went where.

# %%
report.figure("fig2", figures.tree(runs["four", "FedAC"], f"{title['four']}, FedAC"), seeds=p.seeds[:1])


# %% [markdown]
# ## Figure 3: IID clients
#
# Left one run, as in the paper (triangles: splits), right the mean over seeds with its 95 % interval. The paper prints
# no numbers to compare with these curves.

# %%
def draw(name, case, names, metric, seeds=p.seeds):
    caption = None if name in paper.figures else f"{title[case].capitalize()}: {metric}"
    fig = figures.curves({m: runs[case, m] for m in names}, metric, title[case])
    report.figure(name, fig, caption, seeds)


draw("fig3a", "iid", [*methods], "accuracy")
draw("fig3b", "iid", [*methods], "loss")

# %% [markdown]
# ## Figures 4 and 5: two clusters of clients
#
# Five classes each.

# %%
draw("fig4a", "two", ["FedAvg", "FedAC"], "accuracy")
draw("fig4b", "two", ["FedAvg", "FedAC"], "loss")
draw("fig5a", "two", ["FedAvg", "FedACP"], "accuracy")
draw("fig5b", "two", ["FedAvg", "FedACP"], "loss")

# %% [markdown]
# ## Figures 6 and 7: four clusters of clients
#
# Two, two, three and three classes.

# %%
draw("fig6a", "four", ["FedAvg", "FedAC"], "accuracy")
draw("fig6b", "four", ["FedAvg", "FedAC"], "loss")
draw("fig7a", "four", ["FedAvg", "FedACP"], "accuracy")
draw("fig7b", "four", ["FedAvg", "FedACP"], "loss")

# %% [markdown]
# ### Three clusters, defined in the paper but not drawn
#
# Three, three and four classes.

# %%
draw("fig-extra-3clusters", "three", [*methods], "accuracy", few)

# %% [markdown]
# ## The numbers that the paper does not print
#
# *Final* is the mean accuracy over the last tenth of the rounds, *wobble* the standard deviation of the accuracy
# around its trend in the last quarter. ARI, the adjusted Rand index, compares the clusters with the true groups (1:
# the same). A run that never splits has its number of rounds in *first split*. A message is one model, down or up.

# %%
scores = {(case, m): readings.course(runs[case, m]) for case in title for m in methods}
kinds = ["final accuracy", "wobble", "loss wobble", "ARI", "first split", "splits", "extra trainings", "messages", "MB"]
bounded = {"final accuracy", "ARI"}
rows = []
for (case, m), course in scores.items():
    rows.append([title[case], m, *(fc.report.spread(course[kind], bounded=kind in bounded) for kind in kinds)])
caption = f"After {p.rounds} rounds (three clusters: {p.side_rounds}): mean over seeds [95 % interval]"
report.table("table-extra-results", pd.DataFrame(rows, columns=["", "method", *kinds]), caption)

# %% [markdown]
# ## Which of the two conditions decides?
#
# The runs called *watched* never split ($\alpha = 0$ is FedAvg, number for number) and write down both quantities in
# every round. Since all runs of a seed are the same until the first split, these two series say *exactly* when FedAC
# would first split, for any $\alpha$ and $\beta$.

# %%
watched = {case: readings.conditions(runs[case, "watched"]) for case in title}
shown = {title[case]: watched[case] for case in ("iid", "two", "four")}
fig = figures.both(shown, alpha, p.beta)
caption = f"Both conditions in runs that never split, seed {p.seeds[0]}; they hold below the thick lines"
report.figure("fig-extra-gates", fig, caption, p.seeds[:1])
tables = {name: readings.held(seen, alpha, p.beta, max(2, p.rounds // 20)) for name, seen in shown.items()}
tables = pd.concat(tables, names=[""]).reset_index(0)
report.table("table-extra-gates", tables, "Shares of the watched rounds, all seeds")

# %% [markdown]
# ### What the angle to the mean can see
#
# $\theta$ compares a client with the mean *that contains it*. With two groups of equally long updates, cosine $c$
# between the groups and share $p < 1/2$ of the smaller group in the draw, the smaller group's cosine to the mean is
#
# $$\theta = \frac{p + (1-p)\,c}{\sqrt{p^2 + (1-p)^2 + 2p(1-p)\,c}} < 0 \quad\text{only if}\quad c < \frac{-p}{1-p}.$$
#
# So, if updates were equally long, an even draw could not fire, nor could a draw of two; a mixed cluster of fewer
# than 30 clients, of which two are drawn, would stay mixed for ever. Left: the draws of all watched rounds with two
# clusters. Right: how often a draw from an evenly mixed cluster can fire at all, by the size of the cluster, a tenth
# of which is drawn.

# %%
seen = readings.drawn(runs["two", "watched"])
caption = "The angle to the mean, measured and for equal updates; how often a draw can fire"
report.figure("fig-extra-angle", figures.angles(seen, alpha, p.fraction, p.clients), caption)
held = 100 * (seen.theta < p.beta).groupby(np.digitize(seen.smaller, (0.35, 0.45))).mean().reindex(range(3))
Markdown(
    f"The angle condition held in {held[2]:.0f} % of the even draws, in {held[0]:.0f} % of the lopsided (below 0.35)."
)

# %% [markdown]
# An even draw that fires is no contradiction: updates are not equally long. The group that the last draws neglected
# has the larger loss and the longer update, so it turns the mean to its side and the other group's cosine below 0.

# %% [markdown]
# ### When would the first split come?
#
# Left and middle: rounds until the first split for any pair of thresholds, read from the watched runs (median over
# seeds; empty: not within these rounds). $\alpha$ on the printed scale, 10,000 images. Right: ARI after real
# runs with four clusters, shorter than those above. The frame is the paper's choice.

# %%
alphas = (0.05, 0.5, 5, 50, 500)
betas = (-0.9, -0.6, -0.3, 0.0, 0.3)
ends = {}
for name, run in ran["map"].groupby("algorithm", observed=True):
    ends[name] = readings.by_round(run, "ari").iloc[:, -1].mean()
ari = [[ends[f"{name}, {level}"] for name in ("5", "50", "any")] for level in (-0.5, 0.0, 0.5)]
shown = {title[case]: watched[case] for case in ("two", "four")}
fig = figures.sensitivity(shown, alphas, betas, scale, ari, f"ARI after {p.side_rounds} rounds,\n{title['four']}")
report.figure("fig-extra-map", fig, f"Sensitivity to both thresholds; ARI: mean over {len(few)} of the seeds")

# %% [markdown]
# ### What is waiting worth?
#
# The first condition exists because the paper calls an early split wrong. So we ask for a split of all clients in some
# round of FedAvg's training, thresholds aside. *Kept* is the share of clients that end on the side of most of their
# true group; chance is a little above one half. A split that leaves a single client alone keeps nearly all: so the
# ARI is shown as well, which is 1 at best with two groups, and about a half with four groups in two halves.

# %%
forced = dict(iter(ran["forced"].groupby("case")))
kept = {case: readings.by_round(part, "kept") for case, part in forced.items()}
ari = {case: readings.by_round(part, "ari") for case, part in forced.items()}
drawn = {
    "share kept with its group": {title[case]: kept[case] for case in kept},
    "ARI of the split": {title[case]: ari[case] for case in ari},
}
fig = plots.curves(drawn, "", x="round of the forced split", height=2.3, sharey=True)
fig.axes[0].set_ylim(0, 1.05)
report.figure("fig-extra-when", fig, "How well a split of all clients would go in a given round")

# %% [markdown]
# ## Claims

# %%
measures = pd.DataFrame(index=pd.Index(p.seeds, name="seed"))
measures["rounds"] = p.rounds
measures["iid_fedac_splits"] = scores["iid", "FedAC"]["splits"]
measures["iid_fedacp_splits"] = scores["iid", "FedACP"]["splits"]
measures["iid_fedavg_final_accuracy"] = scores["iid", "FedAvg"]["final accuracy"]
measures["iid_fedavg_loss_wobble"] = scores["iid", "FedAvg"]["loss wobble"]
measures["iid_fedavg_wobble"] = scores["iid", "FedAvg"]["wobble"]
late = pd.Series(0.75 * p.rounds, p.seeds)  # the last quarter
since = scores["two", "FedAC"]["last split"] + 5
ours = readings.by_round(runs["two", "FedAC"])
single = readings.by_round(runs["two", "FedAvg"])
measures["two_fedac_settling"] = readings.restless(ours, since, 15)
measures["two_fedavg_settling"] = readings.restless(single, since, 15)
measures["two_fedac_rest"] = readings.restless(ours, late)
since = scores["four", "FedAC"]["last split"] + 5
ours = readings.by_round(runs["four", "FedAC"])
single = readings.by_round(runs["four", "FedAvg"])
measures["four_fedac_settling"] = readings.restless(ours, since, 15)
measures["four_fedavg_settling"] = readings.restless(single, since, 15)
measures["four_fedac_rest"] = readings.restless(ours, late)

# %%
fedavg = scores["two", "FedAvg"]
fedac = scores["two", "FedAC"]
fedacp = scores["two", "FedACP"]
measures["two_fedac_ARI"] = fedac["ARI"]
measures["two_fedac_clusters"] = fedac["clusters"]
measures["two_fedac_extra_trainings"] = fedac["extra trainings"]
measures["two_fedac_final_accuracy"] = fedac["final accuracy"]
measures["two_fedac_first_split"] = fedac["first split"]
measures["two_fedac_loss_wobble"] = fedac["loss wobble"]
measures["two_fedac_messages"] = fedac["messages"]
measures["two_fedac_splits"] = fedac["splits"]
measures["two_fedac_wobble"] = fedac["wobble"]
measures["two_fedacp_ARI"] = fedacp["ARI"]
measures["two_fedacp_final_accuracy"] = fedacp["final accuracy"]
measures["two_fedacp_messages"] = fedacp["messages"]
measures["two_fedavg_final_accuracy"] = fedavg["final accuracy"]
measures["two_fedavg_loss_wobble"] = fedavg["loss wobble"]
measures["two_fedavg_wobble"] = fedavg["wobble"]
measures["two_fedavg_messages"] = fedavg["messages"]
measures["two_kept_first"] = kept["two"].iloc[:, 0]
measures["two_kept_late"] = kept["two"].iloc[:, -1]
measures["two_latest_split"] = fedac["first split"].max()

# %%
fedavg = scores["four", "FedAvg"]
fedac = scores["four", "FedAC"]
fedacp = scores["four", "FedACP"]
measures["four_fedac_ARI"] = fedac["ARI"]
measures["four_fedac_clusters"] = fedac["clusters"]
measures["four_fedac_extra_trainings"] = fedac["extra trainings"]
measures["four_fedac_final_accuracy"] = fedac["final accuracy"]
measures["four_fedac_first_split"] = fedac["first split"]
measures["four_fedac_loss_wobble"] = fedac["loss wobble"]
measures["four_fedac_messages"] = fedac["messages"]
measures["four_fedac_splits"] = fedac["splits"]
measures["four_fedac_wobble"] = fedac["wobble"]
measures["four_fedacp_ARI"] = fedacp["ARI"]
measures["four_fedacp_final_accuracy"] = fedacp["final accuracy"]
measures["four_fedacp_messages"] = fedacp["messages"]
measures["four_fedavg_final_accuracy"] = fedavg["final accuracy"]
measures["four_fedavg_loss_wobble"] = fedavg["loss wobble"]
measures["four_fedavg_wobble"] = fedavg["wobble"]
measures["four_kept_first"] = kept["four"].iloc[:, 0]
measures["four_kept_late"] = kept["four"].iloc[:, -1]
measures["four_latest_split"] = fedac["first split"].max()

# %%
report.judge(measures)

# %% [markdown]
# **Oscillation (c2, c2b, c6).** In few rounds the loss shows it better than the accuracy: a model near chance has
# little accuracy to lose. Whether an interval excludes 0 is a matter of how many seeds there are, since the leaps of
# the loss are rare and differ from run to run. **What the gain is (c3).** FedAC's models answer fewer classes; that
# four clusters look easier than two, and both easier than IID, is due to that.
#
# **After the last split (c6).** Each of FedAC's models then averages a half or a quarter of the participants, and still
# climbs where FedAvg has stalled; both make its accuracy move more from round to round. Our bug? With everybody in one
# cluster FedAC equals FedAvg round for round (a test). More rounds help the claim: the paper has 200.
#
# **FedACP's clusters (c5).** The paper's sentence is about a method it does not describe. Ours makes up for its
# ignorance: a client that missed a split is placed at its next participation by an update from the very model that
# was split, so that with time its clusters become FedAC's. Comparing such a client's *current* update with the two
# directions of the split, the obvious shortcut, was tried and told little once the cluster's model had moved on. With
# everybody present FedACP equals FedAC exactly (a test). What would make the claim true: a variant that never places
# those who were absent, or a look at the clusters while clients still wait; the table of readings has such an early
# look.
#
# **The delay (c8).** Not a slip of ours: both conditions are checked against cases worked out by hand, and at whole
# size (table at the end of this notebook) both hold in the very first round just as well. At its start the loss of a
# network with ten outputs sits at $\log 10$ and hardly moves, and *hardly moving* is all that $\alpha$ asks for: it
# cannot tell a model that has not begun from one that has converged. A hundredth of the printed $\alpha$, or an
# explicit warm-up, would delay the split (map and readings).
#
# **Worth of waiting (c9).** There is nothing to gain where the first split is already right. Clients of different
# groups share no class, so the output layer's bias alone tells them apart after one step; the cosine between groups
# starts far below 0. In the toy of figure 1 waiting pays, because there the groups want the same things first. Groups
# that share classes would be the test of the paper's argument; it has none.

# %% [markdown]
# ## How much depends on our readings
#
# Four clusters, the first rounds of the runs above; each row changes one thing. FedProx as the local method is what
# the paper names as future work.

# %%
early = "round < @p.side_rounds and seed in @few"
tried = {f"{m}, as above": runs["four", m].query(early) for m in methods}
tried.update(iter(ran["readings"].groupby("algorithm", observed=True)))
ends = {}
for name, run in tried.items():
    for kind in ("accuracy", "ari", "clusters"):
        ends[name, kind] = readings.by_round(run, kind).iloc[:, -3:].mean(axis=1)
caption = f"Four clusters after {p.side_rounds} rounds (mean of the last three)"
report.summary("table-extra-readings", pd.DataFrame(ends), caption)

# %% [markdown]
# ### Does the reduction change the picture?
#
# Both quantities in the first rounds at the paper's whole local training, and those of this tier.

# %%
sizes = {}
for case, part in ran["whole"].groupby("case"):
    sizes[title[case]] = readings.compared(readings.conditions(part), watched[case], ("all steps", "here"))
caption = f"Both conditions in the first rounds; they hold below alpha {alpha:g} and beta {p.beta:g}"
report.table("table-extra-size", pd.concat(sizes, names=[""]).reset_index(0), caption)

# %% [markdown]
# ## If we had read it otherwise
#
# Where the paper leaves a value open, somebody else may take another one. A draw takes one of the defensible values of
# every open setting (`readings` in `papers/fedac.toml`) and a seed of its own. The table says in how many draws a claim
# has its sign, in how many its size, and in how many of those whose baseline is where the paper's was. A value decides
# if the mean effect with it differs from that with ours (95 %, corrected for the number of values). In the figures each
# point is a draw, and the marks below it are its values.

# %%
multiverse.section(report)

# %%
report.learned()
report.notes("Where the tiers differ")
report.close()
