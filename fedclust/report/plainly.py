"""Whether a verdict depends on compiled code: the papers replicated without it, and judged."""

import os
import subprocess
import sys
from collections.abc import Iterator

from fedclust.paths import figures, root
from fedclust.report.notebooks import keys
from fedclust.report.scoreboard import known

PLAIN = "plain"  # the folder below build/figures


def replicate(tier: str) -> None:
    """Every paper with FEDCLUST_PLAIN=1; its figures and verdicts go to build/."""
    command = [sys.executable, "-m", "fedclust.cli", "replicate", "all", "--tier", tier]
    subprocess.run(command, env=os.environ | {"FEDCLUST_PLAIN": "1"}, check=True)


def compare(tier: str) -> Iterator[tuple[str, str, str, str]]:
    """Paper, claim, its verdict as it stands, and the one without compiled code."""
    for key in keys():
        folder = figures() / tier / key, root() / "build" / "figures" / PLAIN / tier / key
        standing, plain = (known(path / "verdicts.json") for path in folder)
        for name, claim in standing.items():
            other = plain[name]["verdict"] if name in plain else "not judged"
            yield key, name, claim["verdict"], other
