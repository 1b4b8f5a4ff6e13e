# %% [markdown]
# # The paper's title
#
# What the paper claims, for a reader who has it at hand.

# %% tags=["parameters"]
tier = "quick"  # smoke | quick | paper
seeds = None  # how many, or which; None: what papers/KEY.toml says for the tier
jobs = 2  # worker processes
backend = "loky"
# What has `parameter = true` in papers/KEY.toml may be set here too, or with -p: rounds = 10

# %%
import pandas as pd
from IPython.display import Markdown

import fedclust as fc

paper, p = fc.papers.start("KEY", globals())
report = fc.report.Report(paper, p)

# %% [markdown]
# ## The method
#
# The equations, next to what the code does with them:
#
# $$\theta^{t+1} = \sum_k \frac{n_k}{n} \, \theta_k^t$$

# %% [markdown]
# ## What was open, and how we read it

# %%
Markdown(fc.report.markdown(paper.settings_table(p.tier)))

# %% [markdown]
# ## Training

# %%
settings = {
    "data": {"name": p.data},
    "partition": {"kind": "iid", "clients": p.clients},
    "model": {"kind": "mlp", "hidden": [32]},
    "train": {"lr": 0.1},
    "rounds": p.rounds,
}
trials = [fc.Trial(settings | {"method": {"kind": m}}, seed, m) for m in ("FedAvg", "LocalOnly") for seed in p.seeds]
record = report.sweep(trials)
curves = {name: fc.readings.by_round(part) for name, part in record.groupby("algorithm", observed=True)}

# %% [markdown]
# ## Figure 1

# %%
fig, ax = fc.plots.panels()
for name, frame in curves.items():
    fc.plots.band(ax, frame, name)
fc.plots.round_axis(ax, "accuracy")  # the metric that is drawn
fc.plots.legend(fig)
report.figure("fig1", fig)

# %% [markdown]
# ## Table 1

# %%
final = pd.DataFrame({(name, "accuracy"): frame.iloc[:, -1] for name, frame in curves.items()})
report.compare("table1", final)

# %% [markdown]
# ## Claims
#
# Each test of a claim is an effect, one value per seed, turned so that the claim is positive. It has
# two marks: 0, no effect, and h, half of what the paper printed. Where nothing is printed, h is the
# smallest size that counts, given with its reason. The paired 95 % t interval over seeds decides. If
# it is above 0, the test *holds*, or it is *weaker* if the interval is below h. Otherwise it is
# *absent* if the interval is below h (*reversed* if it is below 0), and *open* if not; then we say
# how many seeds would decide. A bound *holds* if the interval is inside it, is *refuted* if the
# interval is outside, and is *open* otherwise. Ratios are judged by their logarithms. A run that
# never arrives counts as arriving at its end. Where all seeds agree, or most are at the end of the
# scale, we count seeds: eleven of eleven show that it is so in at least three of four runs. What has
# no sampling in it is *exact* or refuted. In a claim of k tests, each refutes only at 1 - 0.05/k.
#
# A claim is *reproduced* if all its tests hold, *weaker* if all hold or are weaker, *in part* if some
# do and some are refuted, *not reproduced* if some are refuted and none holds, and *open* otherwise.
# The control comes first: where the baseline is more than 25 % away from the printed level above
# chance, the verdict is in brackets, outside the paper's regime, and no sizes are compared.

# %%
measures = pd.DataFrame({"together": final["FedAvg", "accuracy"], "alone": final["LocalOnly", "accuracy"]})
report.judge(measures)
report.close()
