"""Every bound of every parameter in papers/*.toml is a value that trains."""

import math

import pytest

from fedclust.experiments.tasks.train import train
from fedclust.paths import digest, root
from fedclust.report import papers, report

BOUNDS = [
    (key, name, setting[bound])
    for key in papers.keys()  # noqa: SIM118
    for name, setting in papers.load(key).settings.items()
    for bound in ("min", "max")
    if setting.get("parameter") and setting.get(bound, setting["value"]) != setting["value"]
]


TRAINED = set()  # many bounds leave some methods as they are: each is trained once


class Planned(Exception):
    """Carries the trials of a notebook's first sweep."""


def trials(key, given, monkeypatch):
    """What the notebook would train: its source is run up to the first sweep."""

    def stop(_, plans):
        raise Planned([trial for plan in plans.values() for trial in plan])

    monkeypatch.setattr(report.Report, "sweeps", stop)
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    source = (root() / "replications" / f"{key}.py").read_text(encoding="utf-8")
    _, _, rest = source.partition('# %% tags=["parameters"]')
    parameters, _, rest = rest.partition("# %%")
    namespace = {}
    exec(parameters, namespace)
    namespace |= given
    del namespace["__builtins__"]
    with pytest.raises(Planned) as planned:
        exec("#" + rest, namespace)
    return planned.value.args[0]


@pytest.mark.parametrize(("key", "name", "value"), BOUNDS)
def test_a_bound_trains(key, name, value, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCLUST_FIGURES", str(tmp_path))
    planned = trials(key, {"tier": "smoke", name: value, "seeds": 1}, monkeypatch)
    plain = [trial for trial in planned if trial.task in ("train", "averaged")]
    kinds = {trial.settings["method"]["kind"]: trial for trial in plain}
    assert kinds
    for trial in kinds.values():
        settings = trial.settings | {"rounds": 2, "eval_every": 1}
        if (identity := digest([settings, trial.seed])) in TRAINED:
            continue
        TRAINED.add(identity)
        record = train(settings, trial.seed)
        losses = record[record.metric == "loss"].groupby("round").value.mean()
        assert all(map(math.isfinite, losses))
        assert losses.iloc[0] != losses.iloc[1]  # the models move
