# %% [markdown]
# # When does clustering pay? All methods on one bench
#
# Every paper in this house compares itself with one or two baselines, on a split of its own. Here all methods meet in
# the same scenarios, one for each kind of heterogeneity, with the controls that the papers leave out:
#
# - *Oracle*: FedAvg inside the true groups, the most that knowing them can bring;
# - *Told*: FedAvg that may only answer labels which the client's group holds;
# - *FineTuned*: FedAvg, which each client trains on alone before it is scored;
# - *Local*: no federation at all.
#
# This is no replication: there are no claims and no verdicts. Your own method gets a row with
# `fedclust compare --method mine.MyMethod`.

# %% tags=["parameters"]
tier = "quick"  # smoke (seconds, drawn glyphs) | quick (minutes, MNIST) | paper (hours, MNIST and CIFAR-10, ten seeds)
seeds = None  # how many, or a list; None here and below: what papers/compare.toml says for the tier
jobs = 2  # worker processes
backend = "loky"  # where they run: loky (here), ray or dask (a cluster)
tune = None  # True: choose the open values anew, on the held-out seeds
method = None  # one of your own by its dotted path: all others come from the shipped scores

# %%
import pandas as pd

from fedclust.experiments import build
from fedclust.report import Report, article, bench, papers
from fedclust.report.drawings import compare as figures
from fedclust.report.report import as_json, show

paper, p = papers.start("compare", globals())
report = Report(paper, p)
report.opening("fig1")

# %% [markdown]
# ## Scenarios

# %%
report.static("scenarios")

# %% [markdown]
# ## Methods
#
# What a paper states comes first among the candidates. On the held-out seeds each method with an open value tries
# four, in all scenarios, and keeps the one with the highest mean accuracy: **one value for all scenarios** of a data
# set, since nobody knows the scenario beforehand. First FedAvg chooses the learning rate, at which all others train.
# Nothing is chosen on the seeds that are reported. A run that diverges counts as 0.

# %%
report.static("methods")
report.settings()

# %% [markdown]
# ## What is run
#
# All clients take part in every round and take the same number of steps in it.

# %%
base, few = {}, {}
for name in p.data:
    data = dict(name=name, shrink=p.shrink)
    if name == "glyphs":
        data |= dict(n=p.clients * p.images * 2, n_test=p.clients * p.images)
    else:
        data |= dict(mean=p.mean[name], std=p.std[name])
    held = len(build.dataset({"data": data}).y) / p.clients
    network = dict(kind="mlp", hidden=p.hidden)
    if name == "cifar10":
        network = dict(kind="cnn", channels=p.channels, kernel=3, hidden=p.hidden)
    base[name] = dict(
        data=data,
        partition=dict(clients=p.clients, limit=p.images, validation=p.validation / held),
        model=network,
        train=dict(batch=p.batch, steps=p.steps),
        rounds=p.rounds,
        eval_every=p.eval_every,
    )
    few[name] = {"partition.limit": p.few, "partition.validation": p.few / held}
runs = bench.Bench(paper, base, few, changes=p.changes, pace=p.steps)

# %%
if p.tune:
    first = report.sweep(runs.candidates(p.held_out, rates=None))
    rates, _ = bench.best(first)
    others = report.sweep(runs.candidates(p.held_out, rates))
    bench.keep_choice(p.tier, *bench.best(pd.concat([first, others], ignore_index=True)))
tuned_at, chosen, held_out = bench.choice(p.tier)
rows = [
    [data, name, values, bench.at_end(runs.methods[name][2], values)]
    for data, each in chosen.items()
    for name, values in each.items()
]
columns = ["data", "method", "chosen", "at an end of what was tried"]
caption = f"Values chosen at tier {tuned_at}"
source = f"compare · tier {tuned_at} · seeds {papers.show(p.held_out)}, which are held out · {article.listed(chosen)}"
report.table("table-extra-chosen", pd.DataFrame(rows, columns=columns), caption, source)

# %% [markdown]
# ## Scores
#
# *Worst decile*: the accuracy that nine of ten clients reach. *Rounds*: until the clients' mean accuracy is 90 % of
# Oracle's last one; the share of runs that get there is next to it. ARI is of the last clusters; where all clients are
# one group, one cluster has 1. Told and Oracle have the true groups.

# %%
names = [p.method] if p.method else list(runs.methods)
known = bench.shipped(p.tier, p.seeds) if p.method else None
record = report.sweep(runs.reported(names, p.seeds, chosen))
scores = bench.scores(record, known)
report.files["scores.csv"] = scores.round(6).to_csv(index=False).encode()
cube = bench.Cube(scores, draws=p.draws)
kinds = {name: kind for name, (kind, *_) in runs.methods.items()}

# %%
overall = scores.groupby("method", sort=False)
table = overall[["accuracy", "worst", "ari", "rounds", "bytes"]].mean()
table["arrived"] = overall.rounds.count() / overall.size()
table["megabytes"] = table.pop("bytes") / 1e6
report.table("table-extra-overall", table.reset_index(), "Means over all scenarios and seeds")
wide = scores.pivot_table(index="method", columns=bench.TASK, values="accuracy", sort=False)
wide.columns = [f"{scenario} ({data})" for data, scenario in wide.columns]
report.table("table-extra-accuracy", wide.reset_index(), "Mean accuracy over clients and seeds")
worst = scores.pivot_table(index="method", columns=bench.TASK, values="worst", sort=False)
worst.columns = wide.columns
report.table("table-extra-worst", worst.reset_index(), "The accuracy that nine of ten clients reach")
ari = scores.pivot_table(index="method", columns=bench.TASK, values="ari", sort=False)
ari.columns = wide.columns
report.table("table-extra-ari", ari.reset_index(), "Adjusted Rand index of the last clusters")

# %% [markdown]
# ## Figure 1: how much of the gap between FedAvg and Oracle is closed
#
# With the mean accuracy $a$ over clients and seeds, a method's share is
#
# $$\frac{a_{\mathrm{method}} - a_{\mathrm{FedAvg}}}{a_{\mathrm{Oracle}} - a_{\mathrm{FedAvg}}}.$$
#
# The intervals are those of a bootstrap that draws seeds anew in each scenario, the same for all methods.

# %%
report.figure("fig1", figures.matrix(cube))

# %% [markdown]
# ## Figure 2: accuracy against bytes

# %%
report.figure("fig2", figures.traffic(scores, kinds))

# %% [markdown]
# ## Figure 3: who beats whom

# %%
report.figure("fig3", figures.improvements(cube))

# %% [markdown]
# ## Figure 4: critical comparisons
#
# In each scenario the methods are ranked by their mean accuracy over seeds.

# %%
untold = [name for name in cube.methods if name not in ("Oracle", "Told")]
report.figure("fig4", figures.ranking(cube, untold))

# %% [markdown]
# ## Clustering pays when ..., not when ...
#
# In each scenario the clustering method that was best on the held-out seeds, against the best that does not cluster,
# chosen in the same way. *Pays*: the interval of the difference is above 0; *costs*: below.

# %%
paid = bench.pays(cube, held_out, kinds).round(4)
report.table("table-extra-pays", paid, "Does clustering pay? Differences of mean accuracy")

# %% [markdown]
# Oracle is a control, not a bound. In IID and in label skew there are no groups: there it is FedAvg, and what fits single
# clients can be above it. Elsewhere a method can be above it that has seen more than one group's images: Told trains on
# everybody's throughout, CFL until it divides the clients. Here are all cells in which a method is above Oracle, with
# intervals above 0, in points.

# %%
above = bench.above_oracle(cube)
report.table("table-extra-above", pd.DataFrame(above, columns=["where", "points"]), "Above Oracle")

# %%
if p.method:
    span = {base: cube.improvement(p.method, base) for base in figures.BASES}
    drawn = [text.split() for _, text in figures.cells(cube, p.method)]
    closed = [f"{mean} [{low}, {high}]" for mean, low, high in drawn]
    mine = pd.DataFrame({"scenario": wide.columns, "closed": closed})
    mine["accuracy"], mine["ari"] = wide.loc[p.method].to_numpy(), ari.loc[p.method].to_numpy()
    beats = ", ".join(f"{base} {low:.2f} to {high:.2f}" for base, (_, low, high) in span.items())
    report.table("table-extra-yours", mine, f"{p.method}: share of the gap, or points. P(better than): {beats}")

# %% [markdown]
# ## The article
#
# Two pages, `article.html` and `article.pdf`, in the folder of the figures. Its five sentences:

# %%
size = f"{len(cube.methods)} methods, {len(cube.tasks)} scenarios on {article.listed(p.data)}, {len(p.seeds)} seeds, {p.clients} clients, {p.rounds} rounds of {p.steps} steps (tier {p.tier})."
five = article.sentences(cube, scores, paid, kinds)
story = article.blocks(cube, five, paid, size)
images = {name: report.files[f"{name}.png"] for name in ("fig1", "fig3")}
report.files["article.html"] = article.html(story, images)
report.files["article.pdf"] = article.pdf(story, images)
report.files["sentences.json"] = as_json(five)
listed = [f"{k}. {sentence}" for k, sentence in enumerate(five, 1)]
show("\n".join([size, "", *listed]), place="result", update=True)
report.close()
