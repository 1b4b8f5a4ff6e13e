"""`make faults`: one paper in surroundings that are poorer than ours, and a worker without memory.

Another user, another language, no home, a path with a space, a checkout that nobody may write, no
network. KEY (dcfl) says which paper.
"""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedclust import cli
from tests.experiments.test_sweeps import SETTINGS
from tests.faults.campaign import WHOLE
from tests.faults.test_kill import ROOT, project

KEY = os.environ.get("KEY", "dcfl")
SMOKE = [sys.executable, "-m", "fedclust.cli", "replicate", KEY, "--tier", "smoke", "--jobs", "1"]
LIMIT = 3 * 2**29  # 1.5 GB
long = pytest.mark.skipif(not WHOLE, reason="takes long: make faults")


def replicated(folder: Path, command: list[str], **changes: str | None) -> None:
    """Whether a command replicates the paper in this folder; None takes a variable away."""
    environment = {**os.environ, "FEDCLUST_ROOT": str(folder), "PYTHONPATH": str(ROOT), **changes}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "figures" / "smoke" / KEY / "verdicts.json").exists()


@long
@pytest.mark.parametrize(
    ("name", "changes"),
    [("plain", {"LC_ALL": "C", "LANG": None}), ("homeless", {"HOME": None}), ("a space", {})],
)
def test_poor_surroundings(tmp_path, name, changes):
    replicated(project(tmp_path / name), SMOKE, **changes)


@long
def test_without_a_network(tmp_path):
    """In a network of its own that has nothing but the way to oneself, as kernels need it."""
    apart = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("no network namespace can be made here: unshare --map-root-user --net true")
    command = [*apart, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *SMOKE]
    replicated(project(tmp_path / "alone"), command)


@long
def test_another_user(tmp_path):
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    kernel = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    starts = subprocess.run([*other, sys.executable, "-c", kernel], capture_output=True)
    if os.getuid() or starts.returncode:
        pytest.skip(f"another user cannot be taken on, or cannot start {sys.executable}")
    folder = project(tmp_path / "theirs")
    for path in (*tmp_path.parents, tmp_path):
        if path.stat().st_uid == os.getuid() and "pytest" in str(path):
            path.chmod(0o755)
    for path in (folder, folder / "replications"):
        os.chown(path, 65534, 65534)
    replicated(folder, [*other, *SMOKE], HOME=str(folder))


def test_a_checkout_that_nobody_may_write_is_named_with_a_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDCLUST_ROOT", str(project(tmp_path / "checkout")))
    (tmp_path / "checkout" / "replications" / "executed").touch()  # root may write everywhere else
    assert cli.main(["replicate", KEY, "--tier", "smoke"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fedclust: cannot write to ") and said.count("\n") == 1
    assert "set FEDCLUST_ROOT to a folder of your own" in said


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 1.5 GB inside that of this process."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    mine = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    base, limit = Path("/sys/fs/cgroup"), "memory.max"
    if "memory" in mine:  # version 1
        base, limit = base / "memory", "memory.limit_in_bytes"
    folder = base / mine.get("memory", mine.get("", "/")).lstrip("/") / f"fedclust-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT))
    except OSError as error:
        folder.exists() and folder.rmdir()
        pytest.skip(f"no control group for memory can be made here: {error}")
    yield folder
    deadline = time.monotonic() + 60
    while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)  # the last of its processes end
    folder.rmdir()


GREEDY = """
from fedclust.algorithms import FedAvg

class Greedy(FedAvg):
    def step(self, state, fed, seed, t):
        return len(bytearray(2**32)) and super().step(state, fed, seed, t)
"""


@long
def test_a_worker_killed_for_lack_of_memory_is_named_and_the_others_are_done(tmp_path, group):
    (tmp_path / "greedy.py").write_text(GREEDY)
    program = textwrap.dedent(f"""
        from fedclust.experiments import Trial, TrialsFailed, sweep
        settings = {SETTINGS!r}
        trials = [Trial(settings, 0, "fine"), Trial(settings, 1, "fine too")]
        trials.append(Trial(settings | {{"method": {{"kind": "greedy.Greedy"}}}}, 2, "greedy"))
        try:
            sweep(trials, 2, folder="cache")
        except TrialsFailed as failed:
            print(failed)
        print(len(sweep(trials[:2], 1, "sequential", folder="cache").attrs["runs"]), "are kept")
    """)
    enter = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    done = subprocess.run(
        [*enter, sys.executable, "-c", program],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr  # this process is alive
    assert "1 of 3 trials failed" in done.stdout and "2 are kept" in done.stdout
    assert "greedy seed 2:\nits worker was killed by the system" in done.stdout
    assert "a worker was lost (TerminatedWorkerError); it ran: " in done.stderr
