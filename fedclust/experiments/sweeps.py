"""sweep(): many trials, each run once: cached by content, resumed where they stopped, spread over processes.

A record is found again only if nothing it depends on has changed: settings, seed, the data's content, the code that
produced it (the modules the task really imports, comments aside) and the numerical libraries. What has changed is said.
"""

import ast
import gc
import hashlib
import inspect
import json
import multiprocessing
import os
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import process_executor

from fedclust.experiments import workers
from fedclust.paths import digest, root, write

version = cache(metadata.version)
LIBRARIES = ("torch", "numba", "numpy", "scikit-learn", "opacus")
ALIKE = ("FedAvg", "CFL", "FedAC", "FedACP")  # methods that are FedAvg until they split
IN_STEP = ("train", "forced")  # tasks that go round by round
KEEP = 8 * 2**30  # bytes a worker may grow by before loky replaces it: it keeps its federation to train on it again
CALM = 100_000  # new objects before the garbage collector looks through them: imports make three times as many, to stay
ATTEMPTS = 3  # at the trials whose worker was lost
BACKENDS = ("loky", "ray", "dask", "multiprocessing", "threading", "sequential")
NEEDED = {"data", "partition", "model", "method", "rounds"}  # of a trial that trains
SETTINGS = NEEDED | {"train", "eval_every", "events", "split_seed"}
EVENTS = {"start", "join_every", "drift_from", "drift_every"}
HEARTBEAT = 2.0  # seconds between two words of a running trial


@dataclass(frozen=True)
class Trial:
    """One run, fully described by plain values. `label` and `tags` name it for tables and plots, no more.

    >>> few = {"data": {"name": "glyphs", "n": 100}, "partition": {"kind": "iid", "clients": 4}, "rounds": 2}
    >>> how = {"model": {"kind": "mlp", "hidden": [8]}, "train": {"lr": 0.1}, "method": {"kind": "FedAvg"}}
    >>> Trial(few | how, seed=0, label="FedAvg").identity == Trial(few | how, seed=0).identity
    True
    """

    settings: dict[str, Any]
    seed: int
    label: str = ""
    tags: dict[str, Any] = field(default_factory=dict)
    task: str = "train"

    def __post_init__(self) -> None:
        for what, given, known in (
            ("settings", self.settings, SETTINGS), ("events", self.settings.get("events") or {}, EVENTS)
        ):  # fmt: skip
            if self.task == "train" and (unknown := given.keys() - known):
                names = ", ".join(sorted(unknown))
                raise ValueError(f"{what} of a trial: {names} not known; there are {', '.join(sorted(known))}")
        if self.task == "train" and (missing := NEEDED - self.settings.keys()):
            raise ValueError(f"settings of a trial: {', '.join(sorted(missing))} missing")

    @property
    def identity(self) -> str:
        """What is run, whatever the code: hash of task, settings and seed."""
        return digest([self.task, self.settings, self.seed])


def alter(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings with some of them changed: ``alter(base, {"partition.samples": 500, "rounds": 30})``.

    >>> alter({"rounds": 5, "train": {"lr": 0.1}}, {"train.lr": 0.2})
    {'rounds': 5, 'train': {'lr': 0.2}}
    """
    changed = dict(settings)
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        changed[name] = alter(changed.get(name, {}), {rest: value}) if rest else value
    return changed


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
    """Run what is not yet there and return all records, with each trial's label and tags as columns.

    `attrs["runs"]` says of each trial whether it was reused or run, why, and how long it took. A failed trial does not
    take the others down: all finish first, then `TrialsFailed` shows the tracebacks. `shipped` is a folder of records
    that are taken as they are, whatever has changed since.
    """
    trials = list(trials)
    return gather(trials, run(trials, jobs, backend, folder, shipped))


def run(
    trials: list[Trial],
    jobs: int,
    backend: str,
    folder: str | os.PathLike | None = None,
    shipped: str | os.PathLike | None = None,
) -> dict[str, dict[str, Any]]:
    """The first half of `sweep`: the facts of each trial's record, by identity."""
    folder = Path(folder).absolute() if folder is not None else root() / ".fedclust" / "cache"
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: at least one worker is needed; the number of cores is a good choice")
    register(backend)
    unique = {trial.identity: trial for trial in trials}
    found: dict[str, dict[str, Any]] = {}
    todo: dict[str, Job] = {}
    for identity, trial in unique.items():
        if shipped is not None and (facts := shipped_facts(identity, shipped)):
            found[identity] = facts
            continue
        try:
            plan = Plan.of(trial, folder)
        except ValueError as error:  # before anything is trained
            raise ValueError(f"trial {trial.label or trial.task!r}: {error}") from error
        if facts := plan.facts():
            found[identity] = facts
        else:
            todo[identity] = Job(trial, plan, plan.why(), None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"no record can be kept in {folder} ({error}): make it writable or set FEDCLUST_ROOT") from error
    with Progress(unique, todo, folder) as progress:
        for attempts_left in reversed(range(ATTEMPTS)):
            rest = [job for identity, job in todo.items() if identity not in found]
            try:
                spread(rest, jobs, backend, progress, found, alone=not attempts_left)  # one by one: more memory
                break
            except Exception as error:  # not a trial's: those come back as tracebacks; a worker or a node was lost
                kept = {job.trial.identity: job.plan.facts() for job in rest}  # what was done before that
                found |= {identity: {**facts, "reused": False} for identity, facts in kept.items() if facts}
                story = f"its worker was lost {ATTEMPTS} times; was there enough memory?\n{error}"
                if not attempts_left:
                    found |= {identity: {"traceback": story} for identity in todo if identity not in found}
                progress.say(f"a worker was lost ({type(error).__name__}): going on with the rest")
    if failed := {i: f for i, f in found.items() if "traceback" in f}:
        stories = "\n\n".join(f"{unique[i].label} seed {unique[i].seed}:\n{f['traceback']}" for i, f in failed.items())
        raise TrialsFailed(f"{len(failed)} of {len(unique)} trials failed (the others are kept):\n{stories}")
    return found


def spread(
    rest: list["Job"], jobs: int, backend: str, progress: "Progress", found: dict[str, dict[str, Any]], alone: bool
) -> None:
    """Run the jobs on the workers, or one by one; what is done goes into `found` at once."""
    if not rest:
        return
    for job in rest:
        job.progress = progress.path(job.trial.identity)
    work, server = families(rest), None if alone or backend != "loky" else workers.reached()
    results = workers.answers(server, code(), attempt, work) if server else local(work, 1 if alone else jobs, backend)
    for ended in results:
        for identity, facts in ended:
            found[identity] = facts
            progress.finished(identity)


def local(work: list[list["Job"]], jobs: int, backend: str) -> Iterable[list[tuple[str, dict[str, Any]]]]:
    """On workers of this process, or of a cluster."""
    threads = {"inner_max_num_threads": 1} if backend == "loky" else {}
    with parallel_config(backend=backend, n_jobs=jobs, **threads):
        streams = backend in ("loky", "threading", "sequential")  # the others hand everything back at the end
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered" if streams else "list")
        yield from pool(delayed(attempt)(family) for family in work)


def gather(trials: list[Trial], found: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """All records under their labels and tags."""
    parts = []
    for trial in trials:
        record = pd.read_parquet(found[trial.identity]["path"])
        if trial.label:
            record["algorithm"] = trial.label
        parts.append(record.assign(**trial.tags))
    runs = [
        {"label": t.label, "tags": t.tags, "seed": t.seed, "identity": t.identity, **found[t.identity]} for t in trials
    ]
    for part in parts:
        part.attrs = {}  # pandas compares attrs when it joins
    together = pd.concat(parts, ignore_index=True)
    for column in ("algorithm", "metric"):
        together[column] = together[column].astype("category")
    together.attrs = {"runs": Runs(runs)}
    return together


class Runs(list):
    """What is known of the runs, as pandas keeps it beside a table: it copies that in every operation, and need not."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Runs":
        return self


def attempt(family: list["Job"]) -> list[tuple[str, dict[str, Any]]]:
    """Trials in a worker: run, write the records and their facts; or the traceback, and the others go on.
    """
    gc.set_threshold(CALM)
    from fedclust.experiments import studies

    studies.settle()
    process_executor._MAX_MEMORY_LEAK_SIZE = KEEP
    ended = []
    for job in family:
        try:
            facts = job.finish()
        except Exception:
            facts = {"traceback": traceback.format_exc(), "why": job.why}
        ended.append((job.trial.identity, facts))
    return ended


def families(jobs: list["Job"]) -> list[list["Job"]]:
    """Trials that start alike go together, the others alone."""
    found: dict[str, list[Job]] = {}
    rounds: dict[str, int] = {}
    for job in jobs:
        found.setdefault(digest(start(job.trial)), []).append(job)
        rounds[job.split] = rounds.get(job.split, 0) + job.trial.settings.get("rounds", 1)
    splits = sorted(rounds, key=lambda split: -rounds[split])  # the longest first: nobody waits for them in the end
    return sorted(found.values(), key=lambda family: splits.index(family[0].split))  # a worker keeps its federation


def start(trial: Trial) -> list[Any]:
    """What a trial has in common with others: all but a method that only splits later, or OCFL's training alone."""
    settings, method = trial.settings, trial.settings.get("method", {})
    if trial.task in IN_STEP and method.get("kind") in ALIKE:
        return [{k: v for k, v in settings.items() if k not in ("method", "rounds", "asked")}, trial.seed]
    first = {"train": method.get("pretrain"), "alone": settings.get("train")}.get(trial.task)
    if first and settings.get("attack") != "labels":  # these clients have other data
        same = ("data", "partition", "split_seed", "events", "model")
        return [first, *(settings.get(name) for name in same), trial.seed]
    return [trial.identity]


@dataclass
class Job:
    """A trial that has to run, and how it goes."""

    trial: Trial
    plan: "Plan"
    why: str
    progress: str | None
    seconds: float = 0.0

    @property
    def split(self) -> str:
        """Which federation the trial is about."""
        return json.dumps([self.trial.settings.get("data"), self.trial.settings.get("partition"), self.trial.seed])

    def finish(self) -> dict[str, Any]:
        """Run the trial; the facts of its record."""
        from fedclust.experiments import studies

        self.plan.folder.mkdir(parents=True, exist_ok=True)
        checkpoint, tell = self.plan.stem.with_suffix(".ckpt"), Heartbeat(self.progress)
        started = time.process_time()  # not the clock on the wall: other jobs may be running
        while True:
            try:
                task = getattr(studies, self.trial.task)
                record = task(self.trial.settings, self.trial.seed, str(checkpoint), tell)
                break
            except ValueError as error:
                if "checkpoint" not in str(error) or not checkpoint.exists():
                    raise
                checkpoint.unlink()  # damaged: nothing is lost but the time
        self.seconds = time.process_time() - started
        return self.keep(record)

    def keep(self, record: pd.DataFrame) -> dict[str, Any]:
        """Write the record and, once it is whole, the facts that make it count."""
        path, facts = self.plan.stem.with_suffix(".parquet"), {
            "why": self.why, "seconds": round(self.seconds, 3), "depends": self.plan.depends, "about": record.attrs,
            "settings": self.trial.settings, "task": self.trial.task,
        }  # fmt: skip
        record.attrs = {}
        write(path, lambda aside: record.to_parquet(aside, index=False))
        facts["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        write(self.plan.stem.with_suffix(".json"), lambda aside: aside.write_text(json.dumps(facts, default=str)))
        self.plan.stem.with_suffix(".ckpt").unlink(missing_ok=True)
        return {**facts, "reused": False, "path": str(path)}


@dataclass(frozen=True)
class Plan:
    """Where a trial's record stands and what it depends on."""

    folder: Path
    depends: dict[str, str]

    @classmethod
    def of(cls, trial: Trial, cache_folder: Path) -> "Plan":
        return cls(cache_folder / trial.identity[:20], dependencies(trial))

    @property
    def stem(self) -> Path:
        return self.folder / digest(self.depends)[:20]

    def facts(self) -> dict[str, Any] | None:
        """The record's facts if it is there and whole; a damaged one is removed and made again."""
        return read_facts(self.stem)

    def why(self) -> str:
        """Why the trial has to run."""
        older = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        if not older:
            return "resumed" if list(self.folder.glob("*.ckpt")) else "new"
        with suppress(OSError, ValueError, KeyError):
            before = json.loads(older[-1].read_text())["depends"]
            changed = sorted(k for k in self.depends.keys() | before.keys() if self.depends.get(k) != before.get(k))
            return "changed: " + ", ".join(changed) if changed else "record damaged"
        return "record damaged"


def read_facts(stem: Path) -> dict[str, Any] | None:
    record, note = stem.with_suffix(".parquet"), stem.with_suffix(".json")
    try:
        facts = json.loads(note.read_text())
        if hashlib.sha256(record.read_bytes()).hexdigest() == facts["sha256"]:
            return {**facts, "reused": True, "path": str(record)}
    except (OSError, ValueError, KeyError):
        pass
    return None


def shipped_facts(identity: str, folder: str | os.PathLike) -> dict[str, Any] | None:
    facts = read_facts(Path(folder) / identity[:20])
    return facts and {**facts, "why": "shipped record"}


def dependencies(trial: Trial) -> dict[str, str]:
    """Everything but the settings that could change the record: data, code, libraries."""
    from fedclust.experiments import studies

    found = {name: version(name) for name in LIBRARIES}
    if "data" in trial.settings:
        found["data"] = studies.dataset(trial.settings).sha256
    modules = set(imports("fedclust.experiments.studies"))
    kind = trial.settings.get("method", {}).get("kind")
    methods = {m for m in modules if m.startswith("fedclust.algorithms.") and not m.endswith(".base")}
    if kind is not None:  # of the methods, only the trial's own file and what it stands on
        from fedclust import algorithms

        known = getattr(algorithms, kind, None)
        modules = (modules - methods) | (set(imports(known.__module__)) if inspect.isclass(known) else set())
    return found | {name.removeprefix("fedclust.") + ".py": fingerprint(name) for name in sorted(modules)}


@cache
def imports(module: str) -> tuple[str, ...]:
    """The fedclust modules a module needs, itself included. Packages' `__init__` only gather names."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        path = source(name)
        if name in seen or path is None or name == "fedclust":
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names if alias.name.startswith("fedclust")]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedclust"):
                todo += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    gathering = {"fedclust.algorithms", "fedclust.fast"}
    return tuple(sorted(seen - gathering))


@cache
def source(module: str) -> Path | None:
    with suppress(ModuleNotFoundError):
        spec = find_spec(module)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            return Path(spec.origin)
    return None


@cache
def fingerprint(module: str) -> str:
    """Hash of a module's code: comments, docstrings and layout do not count."""
    path = source(module)
    assert path is not None
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def code() -> str:
    """All code that trials may run."""
    return digest([fingerprint(name) for name in imports("fedclust.experiments.studies")])


def register(backend: str) -> None:
    """Make a backend known to joblib: a cluster is the same call with another name."""
    if backend == "ray":
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
            raise ValueError(f"no Ray cluster answers at {address!r}: start it with `ray start --head`") from error
        register_ray()
    elif backend not in BACKENDS:
        raise ValueError(f"backend={backend!r}: must be one of {', '.join(BACKENDS)}")


# --- progress --------------------------------------------------------------------------------------------------------


class Heartbeat:
    """A running trial's word on how far it is, in a file of its own."""

    def __init__(self, path: str | None):
        self.path, self.said = path, 0.0
        self.parent = os.getppid() if multiprocessing.current_process().name != "MainProcess" else None

    def __call__(self, done: int, rounds: int) -> None:
        if self.parent not in (None, os.getppid()):
            os._exit(1)  # whoever wanted this trial was killed; the checkpoint stays
        now = time.monotonic()
        if self.path and (now - self.said > HEARTBEAT or done == rounds):
            self.said = now
            with suppress(OSError):
                Path(self.path).write_text(f"{done} {rounds}")


class Progress:
    """Lines on how far the sweep is: into the file FEDCLUST_PROGRESS names, else to stderr."""

    def __init__(self, unique: dict[str, Trial], todo: dict[str, Any], folder: Path):
        self.unique, self.total, self.reused = unique, len(unique), len(unique) - len(todo)
        self.weights = {i: unique[i].settings.get("rounds", 1) for i in todo}
        self.done: set[str] = set()
        self.folder = folder / "progress" / f"{os.getpid()}-{time.monotonic_ns()}"
        self.target = os.environ.get("FEDCLUST_PROGRESS")
        self.started = self.began = time.monotonic()
        self.resumed = 0.0

    def path(self, identity: str) -> str:
        return str(self.folder / identity)

    def __enter__(self) -> "Progress":
        import threading

        import psutil

        self.say(f"{self.total} trials: {self.reused} reused, {len(self.weights)} to run")
        if self.weights:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.parent.iterdir():  # by a run that was killed
                if not psutil.pid_exists(int(left.name.partition("-")[0])):
                    shutil.rmtree(left, ignore_errors=True)
            self.stop = threading.Event()
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.weights:
            self.stop.set()
            self.thread.join()
            shutil.rmtree(self.folder, ignore_errors=True)

    def watch(self) -> None:
        while not self.stop.wait(HEARTBEAT):
            self.say(self.line())

    def finished(self, identity: str) -> None:
        self.done.add(identity)
        trial = self.unique[identity]
        self.say(f"{self.line()}  done: {trial.label or trial.task} seed {trial.seed}")

    def line(self) -> str:
        rounds, whole = 0.0, sum(self.weights.values())
        for identity, weight in self.weights.items():
            if identity in self.done:
                rounds += weight
                continue
            with suppress(OSError, ValueError):
                done, of = Path(self.path(identity)).read_text().split()
                rounds += weight * int(done) / int(of)
        elapsed = (now := time.monotonic()) - self.started
        if elapsed < 2 * HEARTBEAT:
            self.resumed = rounds  # mostly from checkpoints: says nothing about the speed
        if not (new := rounds - self.resumed):
            self.began = now  # until now the workers were busy with another paper
        left = clock((now - self.began) * (whole - rounds) / new) if new else "?"
        count = self.reused + len(self.done)
        return f"trial {count}/{self.total}  rounds {rounds:.0f}/{whole}  elapsed {clock(elapsed)}  left {left}"

    def say(self, line: str) -> None:
        if self.target:
            with suppress(OSError), open(self.target, "a") as out:
                out.write(line + "\n")
        elif self.weights and sys.stderr.isatty():
            print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
