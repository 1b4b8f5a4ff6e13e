"""The command line."""

import json
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest

from fedclust import cli
from fedclust.experiments import Trial, shipped, sweep
from fedclust.report import notebooks, replicating

SLEEPER = """# %% tags=["parameters"]
tier = "quick"

# %%
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
open("started", "w").write(str(child.pid))
time.sleep(300)
"""
TOML = """
key = "sleeper"
setting = []
figure = []
claim = []
[paper]
title = "Sleep"
authors = ["A"]
venue = "V"
year = 2020
claim = "It sleeps."
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    for folder in ("papers", "replications"):
        (tmp_path / folder).mkdir()
    (tmp_path / "papers" / "sleeper.toml").write_text(TOML)
    (tmp_path / "replications" / "sleeper.py").write_text(SLEEPER)
    return tmp_path


def test_help_does_not_wait_for_torch():
    program = (
        "import sys, fedclust.cli as c\n"
        "try: c.main(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip().endswith("False") and "replicate" in done.stdout


def test_values_are_read_as_python_reads_them_else_as_text():
    given = ["5", "1e-3", "[0, 1]", "None", "True", "mnist", "0,1,2", "1.2.3"]
    assert [cli.literal(text) for text in given] == [
        5,
        1e-3,
        [0, 1],
        None,
        True,
        "mnist",
        (0, 1, 2),
        "1.2.3",
    ]


def test_list_shows_methods_with_defaults_and_papers(project, capsys):
    assert cli.main(["list"]) == 0
    said = capsys.readouterr().out
    assert "FedProx" in said and "mu=0.01" in said and "Sleep (V, 2020)" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replicate", "nap"], "no paper 'nap'"),
        (["replicate", "sleeper", "nap"], "no paper 'nap'"),
        (["replicate", "sleeper", "--tier", "huge"], "smoke"),
        (["replicate", "sleeper", "--tier", "quick", "-p", "tier", "smoke"], "-p tier: use --tier"),
        (["replicate", "sleeper", "-p", "jobs", "3"], "-p jobs: use --jobs"),
        (["replicate", "sleeper", "-p", "lr", "1", "-p", "lr", "2"], "-p lr: given 2 times"),
        (["replicate", "sleeper", "-p", "lr", "1"], "lr"),
        (["replicate", "sleeper", "--jobs", "two"], "jobs = 'two': must be a whole number"),
    ],
)
def test_wrong_requests_say_what_is_allowed(project, capsys, words, said):
    try:
        assert cli.main(words) == 2
    except SystemExit as end:
        assert end.code == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


@pytest.mark.parametrize("keys", [["sleeper"], ["sleeper", "other"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_kernel_and_workers_and_says_how_to_go_on(project, number, keys):
    (project / "papers" / "other.toml").write_text(TOML.replace("sleeper", "other"))
    (project / "replications" / "other.py").write_text(SLEEPER.replace("started", "begun"))
    command = [sys.executable, "-m", "fedclust.cli", "replicate", *keys]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun = [project / name for name in ("started", "begun")[: len(keys)]]
    for _ in range(1200):
        if all(path.exists() and path.read_text() for path in begun):
            break
        assert running.poll() is None
        time.sleep(0.1)
    children = psutil.Process(running.pid).children(recursive=True)
    assert {int(path.read_text()) for path in begun} <= {child.pid for child in children}
    running.send_signal(number)
    time.sleep(0.01)
    running.send_signal(signal.SIGTERM)  # as make does when it is ended itself
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped; the same command goes on from here" in said and "Traceback" not in said
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not [
        child for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ]
    assert not list(project.glob("replications/executed/quick/*"))


def test_a_rerun_says_which_verdicts_moved(project, monkeypatch, capsys):
    verdicts = project / "figures" / "quick" / "sleeper" / "verdicts.json"
    verdicts.parent.mkdir(parents=True)

    def judged(verdict):
        claim = {"id": "c1", "text": "Sleep is deep", "verdict": verdict}
        verdicts.write_text(
            json.dumps({"paper": "sleeper", "claims": [claim], "seeds": [0], "data": []})
        )
        return project / "made.ipynb"

    judged("inconclusive")
    monkeypatch.setattr(notebooks, "execute", lambda *_: judged("reproduced"))
    assert cli.main(["replicate", "sleeper"]) == 0
    assert "sleeper: c1 was inconclusive, is reproduced: Sleep is deep" in capsys.readouterr().out
    assert cli.main(["replicate", "sleeper"]) == 0
    assert "c1" not in capsys.readouterr().out


def test_progress_is_a_line_now_and_then_where_lines_cannot_be_overwritten(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(replicating.time, "monotonic", lambda: now[0])
    line = replicating.Line("dcfl")
    for seconds in range(25):
        now[0] = float(seconds)
        line(f"trial 1/9  rounds {seconds}")
    line("9 trials: 0 reused, 9 to run")
    line.end()
    assert capsys.readouterr().err.splitlines() == [
        "dcfl  trial 1/9  rounds 0", "dcfl  trial 1/9  rounds 10", "dcfl  trial 1/9  rounds 20",
        "dcfl  9 trials: 0 reused, 9 to run",
    ]  # fmt: skip


def test_progress_overwrites_its_line_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    line = replicating.Line("dcfl")
    line("trial 1/9")
    line("trial 2/9")
    line.end()
    shown = capsys.readouterr().err.split("\r")
    assert [text.strip() for text in shown if text.strip()] == [
        "dcfl  trial 1/9",
        "dcfl  trial 2/9",
    ]


def test_the_estimate_is_what_was_measured(project):
    paper = project / "papers" / "sleeper.toml"
    assert "not measured yet at this size: expect hours" in replicating.estimate("sleeper")
    paper.write_text(paper.read_text().replace("year =", "hours = 70\nyear =", 1))
    assert "not measured yet at this size: about 70 processor hours" in replicating.estimate(
        "sleeper"
    )
    folder = project / "figures" / "paper" / "sleeper"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"cost": {"cpu_seconds": 9000}, "host": {"cores": 2}})
    )
    assert "about 2.5 processor hours" in replicating.estimate("sleeper")


def test_doctor_names_what_is_missing(project, capsys, monkeypatch):
    for variable in ("XDG_CACHE_HOME", "FEDCLUST_DATA"):
        monkeypatch.setenv(variable, str(project / "empty"))
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert (
        "!  mnist is not here yet: fedclust data mnist" in said
        and "torchvision" in said
        and "cannot" not in said
    )


def test_verify_trains_shipped_records_again(project, capsys):
    settings = {
        "data": {"name": "glyphs", "n": 60, "n_test": 20},
        "partition": {"kind": "iid", "clients": 2},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"lr": 0.1},
        "method": {"kind": "FedAvg"},
        "rounds": 2,
    }
    assert cli.main(["verify"]) == 1 and "no records" in capsys.readouterr().out
    run = sweep([Trial(settings, 0)], jobs=1).attrs["runs"][0]
    folder = project / "figures" / "quick" / "toy"
    shipped.ship(folder, [(run["identity"], run)])
    assert cli.main(["verify"]) == 0 and "identical" in capsys.readouterr().out
    kept = pd.read_parquet(run["path"])
    kept.loc[kept["metric"] == "accuracy", "value"] += 0.05
    kept.to_parquet(run["path"])
    shipped.ship(folder, [(run["identity"], run)])
    assert cli.main(["verify"]) == 1 and "differ by up to 0.05" in capsys.readouterr().out
    (folder / "records.parquet").write_bytes(b"")
    assert cli.main(["verify"]) == 2 and "is damaged" in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_it_quietly(project):
    command = f"{sys.executable} -m fedclust.cli list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and not done.stderr


@pytest.mark.parametrize(
    "words", [["replicate", "dcfl"], ["report"], ["site"], ["verify"], ["plan"]]
)
def test_outside_a_checkout_one_line_says_what_is_missing(tmp_path, monkeypatch, capsys, words):
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert said == f"fedclust: {tmp_path} has no papers/: set FEDCLUST_ROOT to a checkout\n"
