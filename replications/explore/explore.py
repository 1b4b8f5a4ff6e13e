# %% [markdown]
# # Exploring the shipped records
#
# Four sliders on the runs of tier `paper`. Nothing is trained: every picture is drawn from `figures/paper/*/records.parquet`.
# `make lab` opens this notebook with what it needs. In Colab the next cell fetches the project, if `repository` has its
# address.

# %% tags=["parameters"]
repository = ""  # the address to clone the project from, where it is not installed

# %%
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("fedclust") is None:
    if not repository:
        raise SystemExit("fedclust is not installed here: write the project's address into `repository`")
    subprocess.run(["git", "clone", "--depth", "1", repository, "fedclust"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-e", "fedclust", "ipywidgets"], check=True)
    sys.path.insert(0, "fedclust")

# %%
import ipywidgets as widgets
import pandas as pd

from fedclust.experiments import shipped
from fedclust.paths import figures
from fedclust.report import plots, readings


def records(key, chosen):
    """The shipped runs of a paper whose facts `chosen` accepts, in one table."""
    found = [facts for facts in shipped.facts(figures() / "paper" / key).values() if chosen(facts)]
    parts = [shipped.read(facts).assign(seed=facts["seed"]) for facts in found]
    return pd.concat(parts, ignore_index=True)


# %% [markdown]
# ## FedAC: when does the first split come?
#
# In these runs nothing is ever split ($\alpha = 0$), and both conditions are written down in each round. Until its first
# split every run with FedAC is the same, so that these runs say when it would come, for any pair of thresholds. $\alpha$
# is on the printed scale; the paper has $\alpha = 5$ and $\beta = 0$.

# %%
def unsplit(groups):
    def chosen(facts):
        settings = facts["settings"]
        never = settings["method"].get("alpha") == 0.0 and settings["rounds"] > 30
        return never and settings["partition"]["groups"] == groups

    return readings.conditions(records("fedac", chosen))


watched = {groups: unsplit(groups) for groups in (1, 2, 4)}


def first_splits(alpha=5.0, beta=0.0):
    rows = {}
    for groups, seen in watched.items():
        rounds = readings.first_split(seen, alpha, beta)
        rows[f"{groups} groups"] = [f"{count:g}" if count < float("inf") else "never" for count in rounds]
    return pd.DataFrame(rows, index=[f"seed {seed}" for seed in watched[1]["theta"].index])


widgets.interact(
    first_splits,
    alpha=widgets.FloatLogSlider(value=5.0, min=-3, max=3),
    beta=widgets.FloatSlider(value=0.0, min=-0.95, max=0.95, step=0.05),
)

# %% [markdown]
# ## OCFL: what xi does to OPTICS
#
# Every client trains alone; after each epoch OPTICS clusters what they have learned. An ARI of 1 finds the labels.

# %%
alone = records("ocfl", lambda facts: facts["task"] == "alone" and facts["settings"].get("epochs", 1) > 1)
choices = sorted(set(alone.algorithm))


def optics(xi=choices[0], measure="ari"):
    rows = alone[alone.algorithm == xi]
    fig, ax = plots.panels(width=5)
    plots.band(ax, readings.by_round(rows, measure), xi)
    plots.round_axis(ax, measure, x="local epochs")
    return fig


widgets.interact(optics, xi=choices, measure=["ari", "found", "noise"])

# %% [markdown]
# ## Joint: the learning rate and lambda
#
# Purity by iteration on MNIST with the MLP. Below the headline rate only IFCA and $\lambda = 0.2$ were run.

# %%
def mnist(facts):
    settings = facts["settings"]
    usual = settings["data"]["name"] == "mnist" and settings["model"]["kind"] == "mlp"
    return usual and settings["rounds"] >= 100 and settings["train"]["batch"] == 50


runs = {}
for facts in shipped.facts(figures() / "paper" / "joint").values():
    if mnist(facts):
        at = (facts["settings"]["train"]["lr"], facts["settings"]["method"]["lam"])
        runs.setdefault(at, []).append(shipped.read(facts))
rates = sorted({rate for rate, _ in runs})
lambdas = sorted({lam for _, lam in runs})


def purity(rate=rates[-1], lam=lambdas[-1]):
    fig, ax = plots.panels(width=5)
    for each in dict.fromkeys((0.0, lam)):
        if (rate, each) in runs:
            name = f"λ = {each:g}" if each else "IFCA"
            plots.band(ax, readings.by_round(pd.concat(runs[rate, each]), "purity"), name)
    plots.round_axis(ax, "purity", x="iteration")
    ax.set_title("" if (rate, lam) in runs else f"no run with λ = {lam:g} at this rate")
    plots.legend(fig)
    return fig


widgets.interact(
    purity,
    rate=widgets.SelectionSlider(options=rates, value=rates[-1]),
    lam=widgets.SelectionSlider(options=lambdas, value=lambdas[-1]),
)
