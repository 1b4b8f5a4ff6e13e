"""A notebook's measures under other values of its settings, without its figures and tables.

The notebook stays the one place that says how a measure is made: of its statements those run on
which the argument of `report.judge` depends, with the settings that are given.
"""

import ast
import dis
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

import pandas as pd

from fedclust.experiments import Trial, sweeps
from fedclust.report import notebooks
from fedclust.report.papers import Paper, Parameters

GIVEN = {"paper", "p", "report"}  # what a notebook starts with
IMPORTS = (ast.Import, ast.ImportFrom)


class NotRun(Exception):
    """A statement asks for a sweep that was left out."""


@dataclass(frozen=True)
class Statement:
    """A statement of a notebook, and the names that it reads, makes and changes."""

    code: CodeType
    reads: frozenset[str]
    makes: frozenset[str]
    changes: frozenset[str]
    settings: frozenset[str]


class Sweeps(Mapping):
    """The records of some plans by name, swept when the first of them is asked for."""

    def __init__(self, wanted: dict[str, list[Trial]], jobs: int):
        self.wanted, self.jobs = wanted, jobs
        self.records: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if not self.wanted.get(name):
            raise NotRun(name)
        if not self.records:
            trials = [trial for plan in self.wanted.values() for trial in plan]
            found = sweeps.run(trials, self.jobs, "loky" if self.jobs > 1 else "sequential")
            self.records = {n: sweeps.gather(plan, found) for n, plan in self.wanted.items()}
        return self.records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.wanted)

    def __len__(self) -> int:
        return len(self.wanted)


@dataclass
class Sweeper:
    """A notebook's `report` as far as its measures need one: it runs the plans that are wanted."""

    plans: list[str]
    without: list[str] = field(default_factory=list)  # labels of trials
    jobs: int = 1
    seeds: list[int] = field(default_factory=list)

    def sweeps(self, plans: dict[str, list[Trial]]) -> Sweeps:
        wanted = {name: plan for name, plan in plans.items() if name in self.plans}
        kept = {n: [t for t in plan if t.label not in self.without] for n, plan in wanted.items()}
        return Sweeps(kept, self.jobs)

    def sweep(self, trials: list[Trial]) -> pd.DataFrame:
        raise NotRun("a sweep without a name")

    def uses(self, settings: dict[str, Any]) -> None:
        """Nothing is written, so nothing needs to be said about the data."""


def measures(paper: Paper, p: Parameters, report: Sweeper) -> pd.DataFrame:
    """One row per seed; a measure whose sweep is left out is missing."""
    names: dict[str, Any] = {"paper": paper, "p": p, "report": report}
    missing: set[str] = set()
    program, judged = needed(paper.key)
    results = used(judged)[0]
    for statement in program:
        left_out = bool(statement.reads & missing)
        if not left_out:
            try:
                exec(statement.code, names)
            except NotRun:
                left_out = True
            except KeyError as error:
                key = error.args[0] if isinstance(error.args[0], tuple) else error.args[:1]
                left_out = bool({*key} & {*report.without})
                if not left_out:
                    raise
        if left_out:  # what it should have filled lacks something, but measures may lack some
            missing |= statement.makes | statement.changes - results
        else:
            missing -= statement.makes
    return pd.DataFrame(eval(judged, names))


def reads(key: str) -> frozenset[str]:
    """The settings on which a notebook's measures depend."""
    return frozenset().union(*(statement.settings for statement in needed(key)[0]))


@cache
def needed(key: str) -> tuple[list[Statement], CodeType]:
    """The statements on which the argument of `report.judge` depends, and that argument."""
    cells = [cell.source for cell in notebooks.read(key).cells if cell.cell_type == "code"]
    nodes = [node for cell in cells for node in ast.parse(cell).body]
    modules = {name for node in nodes if isinstance(node, IMPORTS) for name in read(node).makes}
    judging = {i: call for i, node in enumerate(nodes) if (call := judge_in(node)) is not None}
    if not judging:
        raise ValueError(f"replications/{key}.py never calls report.judge: nothing is measured")
    last, call = judging.popitem()
    judged = compile(ast.Expression(call.args[0]), key, "eval")
    functions = {node.name: read(node).reads for node in nodes if isinstance(node, ast.FunctionDef)}
    wanted, program = with_functions(used(judged)[0], functions) - GIVEN, []
    for node in reversed(nodes[:last]):
        statement = read(node)
        if (statement.makes | statement.changes - modules) & wanted:
            program.append(statement)
            if isinstance(node, (ast.Assign, ast.FunctionDef, *IMPORTS)):
                wanted -= statement.makes
            wanted |= with_functions(statement.reads, functions) - GIVEN
    return program[::-1], judged


def with_functions(names: Collection[str], functions: dict[str, frozenset[str]]) -> set[str]:
    """The names, and those that a function among them reads when it is called."""
    found, todo = set(names), list(names)
    while todo:
        new = functions.get(todo.pop(), frozenset()) - found
        found |= new
        todo += new
    return found


def judge_in(node: ast.stmt) -> ast.Call | None:
    """The call of `report.judge` in a statement."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and ast.unparse(part.func) == "report.judge":
            return part
    return None


def read(node: ast.stmt) -> Statement:
    """A statement, compiled, with what it reads and what it does to names.

    `a = ...` makes a name; `a += ...`, `a[...] = ...`, `a.b = ...` and `a.method(...)` change it.
    """
    code = compile(ast.Module([node], []), "notebook", "exec")
    loads, stores = used(code)
    changed: set[str] = set()
    settings: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            method = part.value.func
            changed |= {root_of(method)} if isinstance(method, ast.Attribute) else set()
        elif isinstance(part, ast.AugAssign):
            changed.add(root_of(part.target))
        elif isinstance(part, (ast.Subscript, ast.Attribute)):
            changed |= {root_of(part)} if isinstance(part.ctx, ast.Store) else set()
            if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "p":
                settings.add(part.attr)
    changed -= GIVEN
    changed.discard("")
    return Statement(code, loads, stores - changed, frozenset(changed), frozenset(settings))


def root_of(node: ast.expr) -> str:
    """The name at the beginning of `a.b[c].d`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def used(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The notebook's names that compiled code reads before it stores them, and those it stores."""
    reads: set[str] = set()
    stores: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            reads |= {step.argval} - stores
        elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            stores.add(step.argval)
        elif isinstance(step.argval, CodeType):
            reads |= used(step.argval)[0] - stores
    return frozenset(reads), frozenset(stores)
