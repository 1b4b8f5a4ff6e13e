"""`make faults`: the whole replication is killed again and again, and ends with the numbers of an
undisturbed run.

KILLS (20) says how often, KEYS which papers. At the smoke tier, so that what is tested is the
machinery.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("KILLS", "20"))
KEYS = os.environ.get("KEYS", "all").split(",")
VOLATILE = {"run.json"}  # says when, and what was reused


def project(folder: Path) -> Path:
    """A project of its own: sources are linked, everything made goes elsewhere."""
    folder.mkdir()
    (folder / "papers").symlink_to(ROOT / "papers")
    (folder / "replications").mkdir()
    for source in (ROOT / "replications").glob("*.py"):
        (folder / "replications" / source.name).symlink_to(source)
    return folder


def start(folder: Path) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "fedclust.cli",
        "replicate",
        *KEYS,
        "--tier",
        "smoke",
        "--jobs",
        "2",
    ]
    environment = {**os.environ, "FEDCLUST_ROOT": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True
    )


def results(folder: Path) -> dict[str, bytes]:
    made = [*folder.glob("figures/smoke/*/*"), *folder.glob("replications/executed/smoke/*.ipynb")]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in made
        if path.name not in VOLATILE
    }


@pytest.mark.skipif("KILLS" not in os.environ, reason="takes long: make faults")
def test_killed_at_random_moments(tmp_path):
    quiet = project(tmp_path / "quiet")
    began = time.monotonic()
    assert start(quiet).wait() == 0
    whole = time.monotonic() - began
    harried, dice, kills = project(tmp_path / "harried"), random.Random(0), 0
    while kills < KILLS:
        running = start(harried)
        try:
            running.wait(dice.uniform(0.02, 0.4) * whole)
        except subprocess.TimeoutExpired:
            if kills % 2:  # everything at once, as when the machine goes down; or the parent alone
                os.killpg(running.pid, signal.SIGKILL)
            else:
                running.kill()
            running.wait()
            kills += 1
        else:
            for made in (
                ".fedclust",
                "figures",
            ):  # done before it could be killed: from the start again
                shutil.rmtree(harried / made)
    time.sleep(5)  # orphans notice that nobody waits for them
    assert start(harried).wait() == 0
    assert results(harried) == results(quiet)
