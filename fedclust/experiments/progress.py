"""How far a sweep is, counted in rounds: a bar on a terminal or in a notebook, lines in a log."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

Tell = Callable[[int, int], None]  # what a task calls after every round: rounds done, rounds in all
SECONDS = 2.0  # between two looks at the trials
QUIET = 10.0  # seconds between two lines of a log
LINE = "{desc}  rounds {n:.0f}/{total:.0f}  elapsed {elapsed}  left {remaining}"


def quiet(done: int, rounds: int) -> None:
    """Tell nobody."""


class Note:
    """A running trial writes into a small file how many of its rounds are done."""

    def __init__(self, path: Path):
        self.path, self.written = path, 0.0

    def __call__(self, done: int, rounds: int) -> None:
        if time.monotonic() - self.written > SECONDS:
            self.written = time.monotonic()
            with suppress(OSError):
                self.path.write_text(str(done / rounds))


class Lines:
    """A file for tqdm in which every state of the bar is a line."""

    def __init__(self, file: TextIO):
        self.file = file

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=self.file, flush=True)

    def flush(self) -> None:
        self.file.flush()


def bar(total: int, name: str) -> Any:
    """A bar where it can be drawn; else lines, to stderr or the file FEDCLUST_PROGRESS."""
    if target := os.environ.get("FEDCLUST_PROGRESS"):
        lines = Lines(open(target, "a", encoding="utf-8"))  # noqa: SIM115  as long as the process
        return tqdm(total=total, desc=name, file=lines, mininterval=0, bar_format=LINE)
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        from tqdm.auto import tqdm as best_bar  # looks for widgets

        return best_bar(
            total=total, desc=name, delay=SECONDS, bar_format="{l_bar}{bar}| " + LINE[8:]
        )
    lines = Lines(sys.stderr)
    return tqdm(
        total=total, desc=name, file=lines, delay=SECONDS, mininterval=QUIET, bar_format=LINE
    )


class Progress:
    """Shows how far the trials are, until the `with` ends. `rounds` has the length of each."""

    def __init__(self, rounds: dict[str, int], notes: dict[str, Path], reused: int):
        self.rounds, self.notes, self.reused = rounds, notes, reused
        self.ended: set[str] = set()
        self.stop = threading.Event()

    def __enter__(self) -> "Progress":
        if self.rounds:
            self.bar = bar(sum(self.rounds.values()), self.name)
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.rounds:
            self.stop.set()
            self.thread.join()
            self.show()
            self.bar.close()

    @property
    def name(self) -> str:
        return f"trial {self.reused + len(self.ended)}/{self.reused + len(self.rounds)}"

    def end(self, identities: Iterable[str]) -> None:
        """These trials are done, or have failed."""
        self.ended.update(identities)

    def say(self, text: str) -> None:
        self.bar.write(text, file=self.bar.fp)

    def watch(self) -> None:
        while not self.stop.wait(SECONDS):
            self.show()

    def show(self) -> None:
        self.bar.set_description_str(self.name, refresh=False)
        self.bar.n = sum(rounds * self.done(which) for which, rounds in self.rounds.items())
        self.bar.refresh() if not self.bar.delay else self.bar.update(0)

    def done(self, identity: str) -> float:
        """Which part of the trial."""
        if identity in self.ended:
            return 1.0
        with suppress(OSError, ValueError):
            return float(self.notes[identity].read_text())
        return 0.0
