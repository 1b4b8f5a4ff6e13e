"""The house: imports point only upwards, from the core to the command line, and lines stay
readable.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fedclust"
ROOMS = ("core", "experiments", "report", "cli")  # a room may import itself and those before it
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """The room of a file or module, given relative to the package. `fast` serves the core."""
    first = path.parts[0].removesuffix(".py") if path.parts else ""
    return first if first in ROOMS else "core"


def imported(path: Path) -> set[Path]:
    """The modules of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "fedclust":
            names = [f"fedclust.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= {Path(*n.split(".")[1:]) for n in names if n.startswith("fedclust.")}
    return found


# The public surface names every room, and imports none before it is asked for.
CLIMBING = [path for path in FILES if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", CLIMBING, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_only_upwards(path):
    mine = ROOMS.index(room(path.relative_to(PACKAGE)))
    wrong = [str(module) for module in imported(path) if ROOMS.index(room(module)) > mine]
    assert not wrong, f"{path.name} is in {ROOMS[mine]} and imports {', '.join(wrong)}"


def test_the_core_reaches_up_only_for_what_one_paper_uses():
    """By name, when it is asked for, and in one place."""
    core = [path for path in FILES if room(path.relative_to(PACKAGE)) == "core"]
    upward = [p.name for p in core if "fedclust.experiments." in p.read_text(encoding="utf-8")]
    assert upward == ["paths.py"]
