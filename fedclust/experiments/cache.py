"""Where records are kept, and what they depend on.

A record is found again only if nothing it depends on has changed: the settings, the seed, the
content of the data, the libraries, and the code that the trial runs. Comments, docstrings and
layout do not count, nor do methods, partitioners, models and tasks that the trial does not name.
"""

import ast
import hashlib
import json
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from fedclust import algorithms, fast, models, partition, privacy
from fedclust.experiments import build, own, tasks
from fedclust.experiments.trial import Trial
from fedclust.paths import digest, write

LIBRARIES = ("torch", "numba", "numpy", "scikit-learn", "opacus")
PACKAGE = Path(__file__).parents[1]
BUILD = "fedclust.experiments.build"
CATALOGUES = {  # of these only what the trial names or its other modules refer to; and the setting
    "fedclust.partition": "partition",
    "fedclust.models": "model",
    "fedclust.privacy": "privacy",
    "fedclust.datasets.dataset": "data",
}
ROOM = {"method": algorithms, "partition": partition, "model": models, "privacy": privacy}


def modules(folder: str) -> frozenset[str]:
    """The modules in a folder of the package."""
    room = folder.replace("/", ".")
    names = {path.stem for path in (PACKAGE / folder).glob("*.py")} - {"__init__", "cli"}
    return frozenset(".".join(filter(None, ("fedclust", room, name))) for name in names)


CORE = modules("") - set(CATALOGUES)  # followed wherever they are imported
ROOMS = ("algorithms", "experiments/parts", "experiments/tasks")
OWN = frozenset().union(
    *map(modules, ROOMS)
)  # followed from the trial's task, method, split, model
HOUR = 3600.0  # seconds after which nobody writes to a temporary file any more
version = cache(metadata.version)


@dataclass(frozen=True)
class Place:
    """Where a trial's record lies and what it depends on."""

    folder: Path
    depends: dict[str, str]

    @classmethod
    def of(cls, trial: Trial, cache_folder: Path) -> "Place":
        return cls(cache_folder / trial.identity[:20], dependencies(trial))

    def file(self, suffix: str) -> Path:
        return self.folder / (digest(self.depends)[:20] + suffix)

    def facts(self) -> dict[str, Any] | None:
        """What is known of the record, if it is there and whole."""
        return read_facts(self.file(""))

    def why(self) -> str:
        """Why the trial has to run."""
        if self.file(".ckpt").exists():
            return "resumed"
        older = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        if not older:
            return "new"
        before = noted(older[-1])
        if before is None or before["depends"] == self.depends:
            return "record damaged"
        known = self.depends.items() ^ before["depends"].items()
        return "changed: " + ", ".join(sorted({name for name, _ in known}))

    def keep(self, trial: Trial, record: pd.DataFrame, why: str, seconds: float) -> dict[str, Any]:
        """Write the record and, once it is whole, the facts that make it count."""
        path = self.file(".parquet")
        facts = {
            "why": why,
            "seconds": round(seconds, 3),
            "depends": self.depends,
            "about": record.attrs,
            "settings": trial.settings,
            "task": trial.task,
        }
        record.attrs = {}
        write(path, lambda aside: record.to_parquet(aside, index=False))
        facts["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        facts = note(self.file(".json"), facts)
        self.tidy()
        return {**facts, "reused": False, "path": str(path)}

    def tidy(self) -> None:
        """Remove what the finished run and killed ones have left next to the record."""
        for path in self.folder.iterdir():
            with suppress(OSError):  # another run removes it too
                mine = path.stem == self.file("").name
                left = path.suffix in (".ckpt", ".before", ".rounds", ".tmp")
                if left and (mine or time.time() - path.stat().st_mtime > HOUR):
                    path.unlink()


def read_facts(stem: Path) -> dict[str, Any] | None:
    """The facts of a record, if both are whole."""
    record, facts = stem.with_suffix(".parquet"), noted(stem.with_suffix(".json"))
    with suppress(OSError):
        if facts and hashlib.sha256(record.read_bytes()).hexdigest() == facts["sha256"]:
            return {**facts, "reused": True, "path": str(record)}
    return None


def note(file: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Write facts with a checksum; they are returned as `noted` will read them."""
    plain = json.loads(json.dumps(facts, default=str))
    write(file, json.dumps(plain | {"checksum": digest(plain)}) + "\n")
    return plain


def noted(file: Path) -> dict[str, Any] | None:
    """The facts in a file, if they are as they were written."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        return facts if facts.pop("checksum") == digest(facts) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def dependencies(trial: Trial) -> dict[str, str]:
    """Everything but the settings that could change the record: libraries, data and code."""
    found = {name: version(name) for name in LIBRARIES}
    if "data" in trial.settings:
        found["data"] = build.dataset(trial.settings).sha256
    for module, names in sorted(code(trial).items()):
        name = module.removeprefix("fedclust.") + ".py"
        found[name] = fingerprint(module, names)
    for module, file in own_files(trial).items():
        found[module + ".py"] = digest([ast.dump(parsed(file))])[:16]
    return found


def own_files(trial: Trial) -> dict[str, Path]:
    """The files of a user's own parts."""
    found: dict[str, Path] = {}
    for part, path in own.paths(trial.settings).items():
        found |= own.files(path, part)
    return found


def code(trial: Trial) -> dict[str, frozenset[str] | None]:
    """The modules that the trial runs; of a catalogue, the definitions that it needs."""
    settings = trial.settings
    files = [tasks.find(trial.task).__module__]
    settings = settings | {"privacy": settings.get("train", {}).get("privacy") or {}}
    for part, room in ROOM.items():
        home = getattr(room, settings.get(part, {}).get("kind", ""), None)
        files += [home.__module__] if home and home.__module__ in OWN else []
    mine = own_files(trial)
    needs = {name for module in mine for name in own.imports(module, mine)}
    files += sorted(needs & (CORE | OWN))
    rooms = {name for file in files for name in imports(file, OWN)} | {BUILD}
    whole = {name for file in rooms for name in imports(file, CORE)} | accelerators(trial)
    found: dict[str, frozenset[str] | None] = dict.fromkeys(whole)
    for catalogue, setting in CATALOGUES.items():
        given = settings.get(setting) or {}
        names = {given.get("kind", "Dataset")} if given else set()  # the content of data has a hash
        names |= {name for module in whole - {BUILD} for name in referred(module, catalogue)}
        counted = found[catalogue] = frozenset(needed(catalogue, names))
        for module in imported(catalogue, counted) & CORE:
            found |= dict.fromkeys(imports(module, CORE))
    return found


def accelerators(trial: Trial) -> set[str]:
    """The files of `fast` that the trial's path enters."""
    kinds = (trial.settings.get(part, {}).get("kind", "") for part in ("model", "method"))
    return {f"fedclust.{module}" for module in fast.files(*kinds)}


@cache
def imports(module: str, among: frozenset[str]) -> frozenset[str]:
    """The module, and those among some others that it needs."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imported(name) & among
    return frozenset(seen)


@cache
def imported(module: str, names: frozenset[str] | None = None) -> frozenset[str]:
    """The modules that a module, or the named definitions in it, import anywhere."""
    found = set()
    for node in (node for statement in statements(module, names) for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


@cache
def referred(module: str, catalogue: str) -> frozenset[str]:
    """The names of a catalogue that a module uses, as ``partition.iid`` or imported."""
    short, found = catalogue.rpartition(".")[2], set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module == catalogue:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id == short else set()
    return frozenset(found)


def source(module: str) -> Path:
    """The file of a module, which for parts of a user's own is imported already."""
    if module in sys.modules:
        return Path(str(sys.modules[module].__file__))
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree(module: str) -> ast.Module:
    return parsed(source(module))


def parsed(file: Path) -> ast.Module:
    """A file's code without docstrings."""
    code = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(code):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return code


@cache
def fingerprint(module: str, names: frozenset[str] | None = None) -> str:
    """Hash of a module's code, or of the named definitions in it."""
    text = "".join(ast.dump(statement) for statement in statements(module, names))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def statements(module: str, names: frozenset[str] | None) -> list[ast.stmt]:
    """The module's statements; with names, those that define one of them or nothing."""
    body = tree(module).body
    if names is None:
        return body
    return [statement for statement in body if not defined(statement) or defined(statement) & names]


def needed(module: str, names: Collection[str]) -> set[str]:
    """The names and all that their definitions refer to within the module."""
    found, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += references(module).get(name, ())
    return found


@cache
def references(module: str) -> dict[str, set[str]]:
    """For every name that a module defines, the names in its definition."""
    found: dict[str, set[str]] = {}
    for statement in tree(module).body:
        words = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for name in defined(statement):
            found.setdefault(name, set()).update(words)
    return found


def defined(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    targets = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return {node.id for node in targets if isinstance(node.ctx, ast.Store)}
