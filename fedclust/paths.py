"""Where the project lies, how its files are written, and the names of its tiers."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

TIERS = ("smoke", "quick", "paper")


def root() -> Path:
    """FEDCLUST_ROOT, or the folder above the package if it has `papers/`, or the working folder."""
    if given := os.environ.get("FEDCLUST_ROOT"):
        return Path(given).resolve()
    here = Path(__file__).resolve().parents[1]
    return here if (here / "papers").is_dir() else Path.cwd()


def figures() -> Path:
    """Where figures, tables and verdicts go: FEDCLUST_FIGURES, else `figures/` of the project."""
    return Path(os.environ.get("FEDCLUST_FIGURES") or root() / "figures")


def write(path: Path, content: str | bytes | Callable[[Path], Any]) -> None:
    """Text, bytes, or what a function writes, to a temporary name: nobody ever sees half a file."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def writable(folder: Path, remedy: str) -> None:
    """Make the folder, and say what to do where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / ".writable", Path.touch)
        (folder / ".writable").unlink()
    except OSError as error:
        raise OSError(f"cannot write to {folder} ({error}): {remedy}") from error


def digest(value: Any) -> str:
    """Hash of plain values; 1 and 1.0 are the same setting."""

    def plain(v: Any) -> Any:
        if isinstance(v, dict):
            return {str(k): plain(item) for k, item in v.items()}
        if isinstance(v, (list, tuple)):
            return [plain(item) for item in v]
        return int(v) if isinstance(v, float) and v.is_integer() else v

    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def from_parts(module: str, papers: dict[str, str]) -> tuple[Callable, Callable]:
    """A module's `__getattr__` and `__dir__`: names of one paper are in `experiments.parts`."""

    def find(name: str) -> Any:
        if name not in papers:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(f"fedclust.experiments.parts.{papers[name]}"), name)

    return find, lambda: sorted({*vars(sys.modules[module]), *papers})


def short(value: Any) -> str:
    """The value as Python writes it, in one line and cut where it is long."""
    if isinstance(value, int) and abs(value) > 10**60:
        return "a very large number"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
