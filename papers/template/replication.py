# %% [markdown]
# # The paper's title
#
# Authors, *title*, where it appeared.

# %% tags=["parameters"]
tier = "quick"  # smoke | quick | paper
seeds = None  # how many, or which; None: what papers/KEY.toml says for the tier
jobs = 2  # worker processes
backend = "loky"
# What has `parameter = true` in papers/KEY.toml may be set here too, or with -p: rounds = 10

# %%
import pandas as pd

import fedclust as fc

paper, p = fc.papers.start("KEY", globals())
report = fc.report.Report(paper, p)
report.opening("fig1")

# %% [markdown]
# **What the paper claims**, for a reader who has it at hand.
#
# ## The method
#
# The equations, next to what the code does with them:
#
# $$\theta^{t+1} = \sum_k \frac{n_k}{n} \, \theta_k^t$$

# %% [markdown]
# ## What was open, and how we read it

# %%
report.settings()

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

# %%
measures = pd.DataFrame({"together": final["FedAvg", "accuracy"], "alone": final["LocalOnly", "accuracy"]})
report.judge(measures)

# %%
report.learned()
report.notes("Where the tiers differ")
report.close()
