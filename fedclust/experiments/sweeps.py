"""sweep(): many trials, each run once, on several processes; their records are kept."""

import multiprocessing
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor

from fedclust.experiments import build, tasks
from fedclust.experiments import shipped as shelf
from fedclust.experiments.cache import Place
from fedclust.experiments.progress import Note, Progress
from fedclust.experiments.together import families, in_turns
from fedclust.experiments.trial import Trial, whole
from fedclust.fast import keep_freed_memory, keep_workers
from fedclust.paths import root, short

LOST = "its worker was killed by the system, also alone: was there enough memory for it?"
BACKENDS = ("loky", "ray", "dask", "multiprocessing", "threading", "sequential")
CLUSTERS = ("ray", "dask")  # their machines may have what this one has not
STREAMS = ("threading", "sequential")  # the others hand over all results at the end
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in THREADS}
IDLE = 300  # seconds until a worker without work ends
LONGEST = 240  # characters of an error in one line
PULSE = 0.5  # seconds between two looks of a worker at its parent

Found = dict[str, dict[str, Any]]  # the facts of records, by the identity of their trials


class TrialsFailed(RuntimeError):
    """Some trials failed; the others' records are kept."""


def sweep(
    trials: Iterable[Trial],
    jobs: int = 2,
    backend: str = "loky",
    *,
    folder: str | os.PathLike | None = None,
    shipped: str | os.PathLike | None = None,
) -> pd.DataFrame:
    """Run what is not yet there; all records, with each trial's label and tags as columns.

    `attrs["runs"]` says of each trial whether it was reused or run, why, and how long it took. When
    a trial fails the others go on; then `TrialsFailed` shows the tracebacks. The records in the
    folder `shipped` are taken as they are, whatever has changed since.
    """
    trials = list(trials)
    return gather(trials, run(trials, jobs, backend, folder, shipped))


def run(
    trials: list[Trial],
    jobs: int,
    backend: str,
    folder: str | os.PathLike | None = None,
    shipped: str | os.PathLike | None = None,
) -> Found:
    """The first half of `sweep`: the facts of each trial's record."""
    whole("jobs", jobs, 1)
    register(backend)
    for trial in trials:
        if not isinstance(trial, Trial):
            raise ValueError(f"{short(trial)} among the trials: each must be a Trial")
    if not trials:
        raise ValueError("no trials: at least one is needed")
    folder = Path(folder or root() / ".fedclust" / "cache").absolute()
    unique = {trial.identity: trial for trial in trials}
    found, todo = look_up(unique, folder, shipped, here=backend not in CLUSTERS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "make it writable or set FEDCLUST_ROOT"
        raise OSError(f"no record can be kept in {folder} ({error}): {remedy}") from error
    rounds = {identity: job.trial.rounds for identity, job in todo.items()}
    notes = {identity: job.place.file(".rounds") for identity, job in todo.items()}
    for note in notes.values():
        note.unlink(missing_ok=True)  # of a run that was killed
    with Progress(rounds, notes, len(found)) as progress:
        workers = jobs
        while rest := [job for identity, job in todo.items() if identity not in found]:
            try:
                spread(rest, workers, backend, progress, found)
            except Exception as error:  # not a trial's own: a worker or a node was lost
                lost = running(rest, found)
                if not workers:
                    story = {"traceback": f"{LOST}\n{reason(error)}"}
                    lost = lost or [job for job in rest if job.trial.identity not in found]
                    found |= {job.trial.identity: story for job in lost}
                    progress.end(job.trial.identity for job in lost)
                names = ", ".join(job.trial.name for job in lost) or "nothing yet"
                workers //= 2  # the rest has more memory; in the end each trial has a process
                progress.say(f"a worker was lost ({type(error).__name__}); it ran: {names}")
    failed = {
        unique[i].name: facts["traceback"] for i, facts in found.items() if "traceback" in facts
    }
    if failed:
        stories = "\n\n".join(f"{name}:\n{story}" for name, story in failed.items())
        count = f"{len(failed)} of {len(unique)} trials failed"
        raise TrialsFailed(f"{count} (the others are kept):\n{stories}")
    return found


def look_up(
    unique: dict[str, Trial], folder: Path, shipped: str | os.PathLike | None, here: bool
) -> tuple[Found, dict[str, "Job"]]:
    """The records that are there, and what is left to do. Nothing has been trained yet."""
    found: Found = {}
    todo: dict[str, Job] = {}
    known = shelf.facts(Path(shipped)) if shipped is not None else {}
    for identity, trial in unique.items():
        if identity in known:
            found[identity] = known[identity]
            continue
        try:
            place = Place.of(trial, folder)
            if facts := place.facts():
                found[identity] = facts
                continue
            build.check(trial.settings, here)
        except Exception as error:
            raise ValueError(f"trial {trial.label or trial.task!r}: {reason(error)}") from error
        todo[identity] = Job(trial, place, place.why())
    return found, todo


def reason(error: Exception) -> str:
    """An error in one line; one that is not ours says what it is."""
    lines = str(error).strip().splitlines() or [""]
    text = lines[0] if len(lines[0]) <= LONGEST else f"{lines[0][:LONGEST]}..."
    ours = isinstance(error, (ValueError, OSError))
    return text if ours else f"these settings cannot be used ({type(error).__name__}: {text})"


def running(jobs: list["Job"], found: Found) -> list["Job"]:
    """Those that had begun when a worker was lost; `found` gets those that were done before."""
    begun = [job for job in jobs if job.trial.identity not in found]
    for job in begun:
        if facts := job.place.facts():
            found[job.trial.identity] = {**facts, "reused": False}
    begun = [job for job in begun if job.trial.identity not in found]
    return [job for job in begun if job.place.file(".rounds").exists()]


def spread(jobs: list["Job"], workers: int, backend: str, progress: Progress, found: Found) -> None:
    """Run the jobs on the workers; with none left, one by one in a process."""
    by_identity = {job.trial.identity: job for job in jobs}
    together = families([job.trial for job in jobs]) if workers else [[job.trial] for job in jobs]
    work = [[by_identity[trial.identity] for trial in family] for family in together]
    local = backend == "loky" or not workers
    workers = max(1, min(workers, len(work)))
    for ended in in_processes(work, workers) if local else by_joblib(work, workers, backend):
        found |= ended
        progress.end(ended)


def in_processes(work: list[list["Job"]], workers: int) -> Iterator[Found]:
    """In processes of this machine, which stay for the next sweep."""
    own = {name: value for name, value in os.environ.items() if name.startswith("FEDCLUST_")}
    own["PWD"] = os.getcwd()  # another working folder means other files of one's own: new workers
    pool = get_reusable_executor(
        workers, timeout=IDLE, initializer=settle, initargs=(os.getpid(),), env=ONE_THREAD | own
    )
    running = [pool.submit(attempt, jobs) for jobs in work]
    try:
        for done in as_completed(running):
            yield done.result()
    except BaseException:
        pool.shutdown(kill_workers=True)
        raise


def by_joblib(work: list[list["Job"]], workers: int, backend: str) -> Iterator[Found]:
    with parallel_config(backend=backend, n_jobs=workers):
        how = "generator_unordered" if backend in STREAMS else "list"
        yield from Parallel(n_jobs=workers, return_as=how)(delayed(attempt)(jobs) for jobs in work)


def gather(trials: list[Trial], found: Found) -> pd.DataFrame:
    """The second half of `sweep`: all records under their labels and tags."""
    records, runs = [], []
    for trial in trials:
        facts = found[trial.identity]
        record = shelf.read(facts)
        if taken := sorted(trial.tags.keys() & set(record.columns)):
            raise ValueError(f"tag {taken[0]!r} is a column of the record: take another name")
        record.attrs = {}  # pandas compares attrs when it joins
        if trial.label:
            record["algorithm"] = trial.label
        records.append(record.assign(**trial.tags))
        about = {"label": trial.label, "tags": trial.tags, "seed": trial.seed}
        runs.append({**about, "identity": trial.identity, **facts})
    together = pd.concat(records, ignore_index=True)
    together = together.astype({"algorithm": "category", "metric": "category"})
    together.attrs = {"runs": Runs(runs)}
    return together


class Runs(list):
    """What is known of the runs. pandas copies `attrs` in every operation, and need not."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Runs":
        return self


# --- in a worker ---


def attempt(family: list["Job"]) -> Found:
    """Run trials and keep their records; where one fails, its traceback, and the others go on."""
    settle()
    ended = in_turns([job.run for job in family])
    return {job.trial.identity: facts for job, facts in zip(family, ended, strict=True)}


@dataclass
class Job:
    """A trial that has to run."""

    trial: Trial
    place: Place
    why: str

    def run(self, pass_on: Callable[[], None]) -> dict[str, Any]:
        """Run the trial and keep its record. After every round other trials may go on."""
        clock, note = Clock(), Note(self.place.file(".rounds"))

        def progress(done: int, rounds: int) -> None:
            note(done, rounds)
            clock.stop()
            pass_on()
            clock.start()

        try:
            self.place.folder.mkdir(parents=True, exist_ok=True)
            note(0, 1)
            if obstacle := self.obstacle():
                return {"traceback": obstacle, "why": self.why}
            record = self.record(progress)
            clock.stop()
            return self.place.keep(self.trial, record, self.why, clock.seconds)
        except Exception:
            return {"traceback": traceback.format_exc(), "why": self.why}
        finally:
            note.path.unlink(missing_ok=True)

    def obstacle(self) -> str | None:
        """Why the data cannot be divided as asked for: the user's mistake needs no traceback."""
        if {"data", "partition"} <= self.trial.settings.keys():
            try:
                build.federation(self.trial.settings, self.trial.seed)
            except (ValueError, TypeError) as error:
                return f"partition: {reason(error)}"
        return None

    def record(self, progress: Callable[[int, int], None]) -> pd.DataFrame:
        checkpoint = self.place.file(".ckpt")
        task = tasks.find(self.trial.task)
        options: dict[str, Any] = {"progress": progress}
        if "checkpoint" in signature(task).parameters:
            options["checkpoint"] = str(checkpoint)
        once = partial(task, self.trial.settings, self.trial.seed, **options)
        try:
            return once()
        except ValueError as error:
            if "checkpoint" not in str(error) or not checkpoint.exists():
                raise
            checkpoint.unlink()  # it is damaged: only time is lost
            return once()


class Clock:
    """The processor's seconds while it runs: other trials do not count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.start()

    def start(self) -> None:
        self.started = time.process_time()

    def stop(self) -> None:
        self.seconds += time.process_time() - self.started


def settle(parent: int | None = None) -> None:
    """Make this process a worker: one thread, and it ends with its parent."""
    torch.set_num_threads(1)
    keep_freed_memory(large=True)
    keep_workers()
    if parent is None and multiprocessing.current_process().name != "MainProcess":
        parent = os.getppid()
    name = "watch of the parent"
    if parent is not None and name not in {thread.name for thread in threading.enumerate()}:
        watch = threading.Thread(target=end_with, args=(parent,), name=name, daemon=True)
        watch.start()


def end_with(parent: int) -> None:
    """End when the parent was killed, also without work. Checkpoints stay."""
    while os.getppid() == parent:
        time.sleep(PULSE)
    os._exit(1)


def register(backend: str) -> None:
    """Make a backend known to joblib: a cluster is the same call with another name."""
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r}: must be one of {', '.join(BACKENDS)}")
    if backend != "ray":
        return
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise ValueError("backend='ray' needs Ray: .venv/bin/pip install ray") from error
    address = os.environ.get("RAY_ADDRESS")
    try:
        if address and ":" in address:  # Ray itself would wait for long
            host, port = address.rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except (OSError, ValueError) as error:
        remedy = "start it with `ray start --head`"
        raise ValueError(f"no Ray cluster answers at {address!r}: {remedy}") from error
    register_ray()
