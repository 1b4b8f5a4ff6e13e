"""One paper's notebook from the command line: where it goes, its progress, what it costs."""

import json
import os
import sys
import time
from typing import Any

from tqdm import tqdm

from fedclust.paths import figures, root
from fedclust.report import notebooks, papers, scoreboard

QUIET = 10.0  # seconds between two lines of progress in a log


def replicated(paper: Any, tier: str, run: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether one paper's notebook ran to its end."""
    key, out = paper.key, root() / "replications" / "executed" / tier
    if tier == "paper":
        print(f"{key}: {estimate(key)}", file=sys.stderr)
    started, line = time.monotonic(), Line(key)
    verdicts = figures() / tier / key / "verdicts.json"
    standing = scoreboard.known(verdicts)
    try:
        made = notebooks.execute(key, {**run, **asked}, out, line)
    except notebooks.NotebookFailed as error:
        line.end()
        print(f"{key}: {error}", file=sys.stderr)
        return False
    line.end()
    print(f"{key}: {time.monotonic() - started:.0f} s, {os.path.relpath(made)}")
    for each in scoreboard.moved(standing, scoreboard.known(verdicts)):
        print(f"{key}: {each}")
    return True


def estimate(key: str) -> str:
    """What the paper's own sizes cost: as measured in the last run, or as its file says."""
    try:
        about = json.loads((root() / "figures" / "paper" / key / "run.json").read_text())
        hours, cores = about["cost"]["cpu_seconds"] / 3600, about["host"]["cores"]
        return f"about {hours:.1f} processor hours in all (measured with {cores} cores)"
    except (OSError, ValueError, KeyError):
        hours = papers.load(key).about.get("hours")
        guess = f"about {hours:g} processor hours" if hours else "expect hours"
        return f"not measured yet at this size: {guess}; the time left will be shown"


class Line:
    """A paper's progress: a line of its own on a terminal, a line now and then elsewhere."""

    def __init__(self, key: str):
        self.key, self.last = key, -QUIET
        terminal = sys.stderr.isatty()
        self.bar = tqdm(bar_format="{desc}", leave=False, file=sys.stderr) if terminal else None

    def __call__(self, text: str) -> None:
        line, moves = f"{self.key}  {text}", text.startswith("trial ")
        if self.bar is not None and moves:
            self.bar.set_description_str(line)
        elif self.bar is not None:
            self.bar.write(line, file=sys.stderr)
        elif not moves or time.monotonic() - self.last >= QUIET:
            self.last = time.monotonic() if moves else self.last
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()
