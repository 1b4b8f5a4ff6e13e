"""Worker processes: killed ones cost time or one trial, orphaned ones end and leave nothing."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from fedclust.experiments import TrialsFailed, sweep, sweeps
from tests.experiments.test_sweeps import SETTINGS, go, reasons, same, small

DEADLY = """
import os, signal
from fedclust.algorithms import FedAvg

class Greedy(FedAvg):
    "The system kills its process, as when memory runs out."
    def step(self, state, fed, seed, t):
        os.kill(os.getpid(), signal.SIGKILL)

class Endless(FedAvg):
    def step(self, state, fed, seed, t):
        open(f"started{os.getpid()}", "w").close()
        import time; time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_trial_that_kills_every_worker_is_named_and_the_others_are_done(folder, monkeypatch):
    """With two workers, then one, then none but a process for each trial."""
    log = folder / "told"
    monkeypatch.setenv("FEDCLUST_PROGRESS", str(log))
    trials = [small(label="fine"), small(1, label="greedy", method={"kind": "deadly.Greedy"})]
    with pytest.raises(TrialsFailed, match=r"1 of 2 trials failed") as error:
        sweep([*trials], 2, folder=folder / "cut")  # this process is alive
    assert "greedy seed 1:\nits worker was killed by the system" in str(error.value)
    assert "fine seed 0" not in str(error.value)
    lost = [line for line in log.read_text().splitlines() if "a worker was lost" in line]
    assert lost and all("(TerminatedWorkerError); it ran: " in line for line in lost)
    assert all("greedy seed 1" in line for line in lost)
    again = go([trials[0]], folder / "cut")
    assert reasons(again)[0][0] is True
    same(again, go([trials[0]], folder / "whole"))


PROGRAM = f"""
from fedclust.experiments import Trial, sweep
trial = Trial({SETTINGS!r} | {{"method": {{"kind": "deadly.Endless"}}}}, 0)
sweep([trial, Trial({SETTINGS!r}, 1)], 2, folder="cache")
"""


def test_orphans_end_within_two_seconds_and_leave_nothing(folder):
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM], env={**os.environ})
    deadline = time.monotonic() + 400
    while not list(folder.glob("started*")) or not list(folder.glob("cache/*/*.parquet")):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.1)
    time.sleep(1)  # now one worker trains and the other one is idle
    children = psutil.Process(parent.pid).children(recursive=True)
    workers = [child for child in children if "LokyProcess" in " ".join(child.cmdline())]
    assert len(workers) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    patience = 2 * max(1, os.getloadavg()[0] / os.cpu_count())  # two seconds of an idle machine
    _, alive = psutil.wait_procs(workers, timeout=patience)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    psutil.wait_procs(children, timeout=10)  # loky's own tracker tidies up
    kept = [*Path("/dev/shm").glob("*"), *Path(tempfile.gettempdir()).glob("*")]
    assert not [path for path in kept if re.search(rf"(?<!\d){parent.pid}(?!\d)", path.name)]


def test_there_are_no_more_workers_than_trials(folder, monkeypatch):
    asked, real = [], sweeps.in_processes
    monkeypatch.setattr(sweeps, "in_processes", lambda w, n: asked.append(n) or real(w, n))
    assert reasons(sweep([small(0), small(1)], 64, folder=folder)) == [(False, "new")] * 2
    assert asked == [2]
