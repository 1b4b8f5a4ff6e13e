"""Whether a verdict depends on compiled code: the papers replicated without it, and judged."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedclust.paths import figures, root, write
from fedclust.report.notebooks import keys
from fedclust.report.scoreboard import known

PLAIN = "plain"  # the folder below build/figures
KEPT = "plain.json"  # what came out, in the tier's folder
Compared = tuple[str, str, str, str]


def replicate(tier: str) -> None:
    """Every paper with FEDCLUST_PLAIN=1; its figures and verdicts go to build/."""
    command = [sys.executable, "-m", "fedclust.cli", "replicate", "all", "--tier", tier]
    subprocess.run(command, env=os.environ | {"FEDCLUST_PLAIN": "1"}, check=True)


def compare(tier: str) -> Iterator[Compared]:
    """Paper, claim, its verdict as it stands, and the one without compiled code."""
    for key in keys():
        folder = figures() / tier / key, root() / "build" / "figures" / PLAIN / tier / key
        standing, plain = (known(path / "verdicts.json") for path in folder)
        for name, claim in standing.items():
            other = plain[name]["verdict"] if name in plain else "not judged"
            yield key, name, claim["verdict"], other


def keep(tier: str, found: Iterable[Compared]) -> None:
    """Write down what came out, for the papers' pages."""
    content: dict[str, dict[str, str]] = {}
    for key, name, standing, plain in found:
        same = "" if standing == plain else f"{name} ({plain} in place of {standing})"
        content.setdefault(key, {})[name] = same
    write(figures() / tier / KEPT, json.dumps(content, indent=1) + "\n")


def sentence(base: Path, tier: str, key: str) -> str:
    """What a paper's page says of it; empty if nobody has looked."""
    try:
        claims = json.loads((base / "figures" / tier / KEPT).read_text(encoding="utf-8"))[key]
        other = [claim for claim in claims.values() if claim]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    how = "Replicated again without compiled code (FEDCLUST_PLAIN=1)"
    if not other:
        return f"{how}, all {len(claims)} claims have the same verdicts."
    return f"{how}, {len(other)} of {len(claims)} claims have another verdict: {', '.join(other)}."
