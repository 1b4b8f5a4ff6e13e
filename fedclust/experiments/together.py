"""Trials that begin alike go to one worker and take turns: there they share what they compute."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fedclust import algorithms
from fedclust.experiments.trial import Trial
from fedclust.fast import Results, side_by_side
from fedclust.paths import digest

SAME = (
    "data",
    "partition",
    "split_seed",
    "events",
    "model",
)  # settings of trials on the same clients
ROUND = 4  # results of one trial in one round that others may want

Work = Callable[[Callable[[], None]], Any]  # calls its argument where others may go on


def beginning(trial: Trial) -> str:
    """Equal for trials whose first trainings are the same."""
    method = trial.settings.get("method", {})
    kind = getattr(algorithms, method.get("kind", ""), None)
    begins_as = vars(kind).get("begins_as") if kind else None  # a subclass has to say it of itself
    first = method.get("pretrain") or (
        trial.settings.get("train") if begins_as or not method else None
    )
    if not first:
        return trial.identity
    return digest([first, begins_as, trial.seed, *(trial.settings.get(name) for name in SAME)])


def families(trials: list[Trial]) -> list[list[Trial]]:
    """Trials that begin alike, together. Families on the same clients follow each other."""
    found: dict[str, list[Trial]] = {}
    rounds: dict[str, int] = {}
    for trial in trials:
        found.setdefault(beginning(trial), []).append(trial)
        rounds[clients(trial)] = rounds.get(clients(trial), 0) + trial.rounds
    longest = sorted(rounds, key=lambda split: -rounds[split])
    return sorted(found.values(), key=lambda family: longest.index(clients(family[0])))


def clients(trial: Trial) -> str:
    return digest([trial.settings.get("data"), trial.settings.get("partition"), trial.seed])


def in_turns(works: list[Work]) -> list[Any]:
    """Do all in threads of which one at a time runs, until it passes the turn on or ends."""
    turns = deque(threading.Semaphore(0) for _ in works)  # the first one's thread is running
    results, stopped = Results(ROUND * len(works)), threading.Event()

    def run(work: Work, mine: threading.Semaphore) -> Any:
        def pass_on() -> None:
            turns.rotate(-1)
            turns[0].release()
            mine.acquire()
            if stopped.is_set():
                raise KeyboardInterrupt

        mine.acquire()
        try:
            with side_by_side(results):
                return work(pass_on)
        except BaseException:
            stopped.set()
            raise
        finally:
            turns.popleft()
            if turns:
                turns[0].release()

    if len(works) == 1:
        return [works[0](lambda: None)]
    with ThreadPoolExecutor(len(works)) as threads:
        running = [threads.submit(run, *pair) for pair in zip(works, list(turns), strict=True)]
        turns[0].release()
        try:
            return [each.result() for each in running]
        except BaseException:
            stopped.set()
            raise
