"""`fedclust settle`: train what the plan of a tier asks for and nobody has shipped yet.

A paper's trials are those of its notebook, which is run up to its first sweep. They are trained
seed by seed; whatever is finished is shipped, so that any machine can go on from there. When
nothing is missing the notebook is run and its page has the plan's settings.
"""

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedclust.experiments import Trial, shipped, sweeps
from fedclust.paths import figures, root, write
from fedclust.report import papers, scoreboard

SETTLE = "FEDCLUST_SETTLE"  # set while a notebook has the plan's settings
ONLY_PLAN = "plan"  # its value where nothing is trained
SHIPPED = re.compile(rf"^{papers.SHIPPED} = .*\n", re.MULTILINE)  # in a paper's file
GUESS = 5.0  # processor hours, where nobody has measured or guessed


class Planned(Exception):
    """A notebook has got to its first sweep, and shall go no further."""

    def __init__(self, trials: list[Trial]):
        super().__init__(f"{len(trials)} trials")
        self.trials = trials


@contextlib.contextmanager
def settings_of_the_plan(how: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (SETTLE, "FEDCLUST_SHIPPED")}
    os.environ |= {SETTLE: how, "FEDCLUST_SHIPPED": "settle"}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def trials(key: str, tier: str) -> list[Trial]:
    """What the notebook's first sweep asks for, with the plan's settings. Nothing is trained."""
    from fedclust.report import notebooks

    namespace: dict[str, Any] = {"__name__": "__main__"}
    with settings_of_the_plan(ONLY_PLAN), contextlib.redirect_stdout(io.StringIO()):
        try:
            for cell in notebooks.read(key).cells:
                if cell.cell_type == "code":
                    exec(cell.source, namespace)
                if cell.metadata.get("tags") == ["parameters"]:
                    namespace["tier"] = tier
        except Planned as planned:
            return planned.trials
    raise ValueError(f"replications/{key}.py sweeps no trials")


def missing(asked: list[Trial], folder: Path) -> list[Trial]:
    """Those whose records are not shipped."""
    there = shipped.intact(folder)
    return list({t.identity: t for t in asked if t.identity not in there}.values())


def hours(paper: papers.Paper, some: list[Trial], asked: list[Trial]) -> float:
    """The processor hours of some of a paper's trials: by rounds, out of those of its file."""
    rounds = {trial.identity: trial.rounds for trial in asked}
    share = sum(trial.rounds for trial in some) / max(1, sum(rounds.values()))
    return share * paper.about.get("hours", GUESS)


def file_of(key: str) -> Path:
    return root() / "papers" / f"{key}.toml"


def undecided(key: str, tier: str) -> int:
    """Claims of the paper that are open or outside its regime on the page as it is."""
    claims = scoreboard.known(figures() / tier / key / "verdicts.json").values()
    asked = [claim for claim in claims if not claim["ours"] and claim["verdict"] != "untested"]
    return sum(claim["verdict"] == "open" or claim["regime"] != "paper" for claim in asked)


def settle(keys: list[str], tier: str, jobs: int) -> list[str]:
    """Train what is missing, the paper with the most claims per hour first. Which papers fail."""
    work = []
    for key in keys:
        asked = trials(key, tier)
        left, paper = missing(asked, figures() / tier / key), papers.load(key)
        work.append((key, asked, left, hours(paper, left, asked), undecided(key, tier)))
    work.sort(key=lambda each: -each[4] / max(each[3], 1e-3))
    for key, asked, left, cost, claims in work:
        trained = f"{len(asked) - len(left)} of {len(asked)} trials are there"
        say(f"{key}: {trained}, the rest takes about {cost:.1f} processor hours; ", end="")
        say(f"{claims} claims are open or outside the regime")
    total = sum(cost for _, _, _, cost, _ in work)
    say(f"about {total / jobs:.1f} hours with {jobs} workers; Ctrl-C stops, the same goes on")
    failed = []
    for key, _, left, _, _ in work:
        try:
            train(key, tier, left, jobs)
            if left or SHIPPED.search(file_of(key).read_text(encoding="utf-8")):
                page(key, tier, jobs)
        except (sweeps.TrialsFailed, ValueError) as error:
            say(f"{key}: {error}")
            failed.append(key)
    return failed


def train(key: str, tier: str, left: list[Trial], jobs: int) -> None:
    """Seed by seed; what is finished is shipped, also when the rest is stopped."""
    for seed in dict.fromkeys(trial.seed for trial in left):
        some = [trial for trial in left if trial.seed == seed]
        say(f"{key}: seed {seed}, {len(some)} trials")
        try:
            sweeps.run(some, jobs, "loky")
        finally:
            keep(some, figures() / tier / key, papers.load(key))


def keep(some: list[Trial], folder: Path, paper: papers.Paper) -> None:
    """Ship those of the trials that are finished, with all that is there."""
    cache = root() / ".fedclust" / "cache"
    done, _ = sweeps.look_up({trial.identity: trial for trial in some}, cache, None, here=True)
    if done:
        known = shipped.intact(folder) | done
        shipped.ship(folder, known.items(), paper.about.get("unread", ()))


def page(key: str, tier: str, jobs: int) -> None:
    """Run the notebook with the plan's settings, which then are those of the paper's file."""
    from fedclust.report.replicating import replicated

    with settings_of_the_plan("page"):
        run = {"tier": tier, "jobs": jobs}
        if not replicated(papers.load(key), tier, run, {}):
            raise ValueError(f"{key}: the records are there, the notebook failed")
    file = file_of(key)
    text = file.read_text(encoding="utf-8")
    if (rest := SHIPPED.sub("", text)) != text:
        write(file, rest)
        say(f"{key}: the plan is complete, {file.name} loses its `{papers.SHIPPED}` values")


def say(text: str, end: str = "\n") -> None:
    """To the terminal and to the log."""
    print(text, end=end, file=sys.stderr, flush=True)
    log = root() / ".fedclust" / "settle.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%F %T')}  {text}\n")
