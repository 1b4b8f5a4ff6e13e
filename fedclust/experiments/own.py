"""Parts of a user's own, by dotted path: "mine.resnet" is `resnet` in mine.py.

A model is built by ``mine.resnet(shape, classes, **options)``, which returns a module. A
partitioner is ``mine.halves(data, seed=seed, **options)``, a data set ``mine.images(**options)``, a
method ``mine.Median(train, **options)``. Their files are in the key of a record like our own.
"""

import ast
import hashlib
import importlib
import os
import sys
from dataclasses import replace
from importlib.machinery import PathFinder
from inspect import signature
from pathlib import Path
from typing import Any

from fedclust.experiments.trial import NAMED, Trial

_loaded: dict[str, str] = {}  # the modules in memory: hash of the file that they were made from


def paths(settings: dict[str, Any]) -> dict[str, str]:
    """The dotted paths in a trial's settings, by what they are."""
    named = {part: settings.get(part, {}).get(key, "") for part, key in NAMED.items()}
    return {part: path for part, path in named.items() if isinstance(path, str) and "." in path}


def find(path: str, what: str) -> Any:
    """The part itself, from the file as it is now."""
    module, _, name = path.rpartition(".")
    known = files(path, what)
    stamps = {n: hashlib.sha256(file.read_bytes()).hexdigest() for n, file in known.items()}
    if any(_loaded.get(n, stamp) != stamp for n, stamp in stamps.items()):  # edited since
        for n in stamps:
            sys.modules.pop(n, None)
    try:
        part = getattr(importlib.import_module(module), name)
    except AttributeError:
        raise ValueError(f"{what} {path!r}: {known[module]} has no {name!r}") from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{what} {path!r}: {module} cannot be imported ({reason})") from error
    _loaded.update(stamps)
    return part


def with_parts(trial: Trial, given: dict[str, str]) -> Trial:
    """The trial with a user's own model or split, which gets those of its options that it names."""
    changes = {}
    for part in given.keys() & trial.settings.keys():
        takes = signature(find(given[part], part)).parameters
        options = {name: value for name, value in trial.settings[part].items() if name in takes}
        changes[part] = options | {"kind": given[part]}
    return replace(trial, settings=trial.settings | changes)


def files(path: str, what: str) -> dict[str, Path]:
    """The file of a part and those that it imports from its own folder or package, by module."""
    if sys.path[0] != os.getcwd():
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    module = path.rpartition(".")[0]
    first = located(module)
    if first is None:
        where = "the working folder nor in PYTHONPATH"
        raise ValueError(f"{what} {path!r}: no module {module!r} is in {where}")
    top = module.partition(".")[0]
    home = first.parents[module.count(".") + (first.name == "__init__.py")]
    found, todo = {module: first}, [module]
    while todo:
        for name in sorted(imports(todo.pop(), found)):
            file = located(name) if mine(name, top, home) else None
            if file is not None and name not in found:
                found[name] = file
                todo.append(name)
    return found


def mine(name: str, top: str, home: Path) -> bool:
    """Whether a module belongs to the user: to the same package, or to a folder of loose files."""
    package = name.partition(".")[0]
    if package == "fedclust" or package in sys.stdlib_module_names:
        return False
    loose = (home / package).is_dir() or (home / f"{package}.py").is_file()
    return package == top or (loose and not home.name.endswith("-packages"))


def imports(module: str, known: dict[str, Path]) -> set[str]:
    """The names of all modules that a module may import."""
    package = module if known[module].name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(known[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def located(module: str) -> Path | None:
    """The file of a module, or nothing if it is not there or not written in Python."""
    parts, folders, origin = module.split("."), None, None
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), folders)
        if spec is None:
            return None
        folders, origin = spec.submodule_search_locations or [], spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None
