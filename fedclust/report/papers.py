"""papers/<key>.toml: what a paper printed, what it left open, and what it claims.

A claim's tests are written down before the verdict is looked at. Their keys: effects.py.
"""

import ast
import math
import os
import re
import tomllib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from fedclust.checks import has_device
from fedclust.paths import TIERS, root, short
from fedclust.report import effects, findings
from fedclust.report.verdicts import interval

__all__ = ["Paper", "PaperError", "Parameters", "check", "interval", "keys", "load", "start"]

SOURCES = ("paper", "author-code", "likely-base", "assumed", "spec")
SHIPPED = "shipped"  # the value of the records of tier paper until those of its plan are complete
OPEN = ("likely-base", "assumed")  # what the paper left open
RUN = {"tier": "quick", "jobs": 2, "backend": "loky"}  # how a notebook runs, in every paper
OWN = ("model", "partition")  # a user's own in place of every paper's, by dotted path
MOST_SEEDS = 1000
LARGEST = 2**63
DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
COMPARISON = "compare"  # the notebook that replicates no paper: it has no claims
CLAIMS = ("control", "left_out", "seeds_planned", "claim")  # the sections on claims
KEYS: dict[str, tuple[set[str], set[str]]] = {  # section: (needed, also allowed)
    "": (
        {"key", "paper", "setting", "figure"},
        {"data", "reading", "table", "finding", "multiverse", *CLAIMS},  # no claims: ours
    ),
    "paper": (
        {"title", "authors", "venue", "year", "claim"},
        {"name", "doi", "url", "code", "hours", "unread", "excluded"},
    ),
    "data": ({"names"}, {"stand_in", "note"}),
    "multiverse": ({"plans", "headline"}, {"without", "sizes", "note"}),
    "setting": (
        {"name", "value", "source"},
        {"where", "note", "min", "max", "allowed", "own", "parameter", "optional", *TIERS, SHIPPED}
        | {"readings", "bookkeeping"},
    ),
    "readings": ({"value", "reason"}, set()),
    "reading": ({"name", "value", "source"}, {"where", "note"}),
    "table": ({"id", "caption", "columns", "rows"}, {"kind", "note", "extra"}),
    "figure": ({"id", "caption"}, {"note", "extra"}),
    "finding": ({"id", "text"}, set()),
    **effects.KEYS,
}
TYPES: dict[str, Any] = {  # of keys, in whatever section
    **dict.fromkeys(("title", "venue", "text", "caption", "where", "note"), str),
    **dict.fromkeys(("label", "short", "expr", "possible", "reason", "before", "date"), str),
    **dict.fromkeys(("uncontrolled", "kind", "because", "excluded"), str),
    **dict.fromkeys(("authors", "names", "allowed", "columns", "rows", "unread"), list),
    **dict.fromkeys(("figure", "control", "changed", "range", "readings"), list),
    **dict.fromkeys(("plans", "headline", "without"), list),
    **dict.fromkeys(("parameter", "optional", "extra", "ours", "beside", "exact"), bool),
    "bookkeeping": bool,
    **dict.fromkeys(("min", "max", "hours", "at_least", "at_most", "above", "below"), (int, float)),
    **dict.fromkeys(("least", "tried", "chance", "number", "cap"), (int, float)),
    "unseen": dict,
    "sizes": dict,
}
Entries = dict[str, dict[str, Any]]


class PaperError(ValueError):
    """Something is wrong in a paper's file or in a parameter; the message names it."""


@dataclass(frozen=True)
class Paper:
    """A paper's file. The notebook reads the settings; the readings are only shown."""

    key: str
    about: dict[str, Any]
    settings: Entries
    readings: Entries
    tables: Entries
    figures: Entries
    findings: Entries
    controls: Entries
    left_out: Entries
    seeds_planned: Entries
    claims: Entries
    multiverse: dict[str, Any] = field(default_factory=dict)

    def at(self, tier: str, device: str = "cpu", planned: bool = False) -> dict[str, Any]:
        """Every setting's value at a tier.

        Tier paper has the plan's value only once its records are complete (`shipped`), and the
        paper's own on another device than a processor.
        """
        keys = [tier, "value"] if tier != "paper" else [SHIPPED, tier, "value"]
        keys = keys[1:] if planned and tier == "paper" else keys
        keys = keys if device == "cpu" or tier != "paper" else ["value"]
        return {
            name: next(entry[key] for key in keys if key in entry)
            for name, entry in self.settings.items()
        }

    def printed(self, table: str) -> dict[tuple[str, str], Any]:
        """A table's cells by (row, column)."""
        entry: dict[str, Any] = self.tables[table]
        cells: dict[tuple[str, str], Any] = {}
        for row, *values in entry["rows"]:
            cells |= {(row, c): v for c, v in zip(entry["columns"], values, strict=True)}
        return cells

    def settings_table(self, tier: str, device: str = "cpu") -> pd.DataFrame:
        """What was run, what the paper says, and how each value is known."""
        here, later = self.at(tier, device), self.at(tier, device, planned=True)
        rows = []
        for name, entry in (self.settings | self.readings).items():
            size, run = show(entry["value"]), show(here.get(name, entry["value"]))
            source = " ".join(filter(None, [entry["source"], entry.get("where", "")]))
            note = entry.get("note", "")
            if name in later and later[name] != here[name]:
                note += f"{'; ' * bool(note)}planned: {show(later[name])}"
            rows.append([name, size, run if run != size else "the same", source, note])
        columns = ["setting", "paper size", f"here ({tier})", "source", "note"]
        return pd.DataFrame(rows, columns=columns)


@dataclass
class Parameters:
    """A notebook's resolved parameters: `p.<name>` for every setting, and how to run."""

    values: dict[str, Any]
    changed: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            known = "papers/*.toml of this notebook"
            raise AttributeError(f"no setting {name!r} in {known}") from None


def keys() -> list[str]:
    """The papers; the comparison is none."""
    return sorted({path.stem for path in (root() / "papers").glob("*.toml")} - {COMPARISON})


# --- files ----------------------------------------------------------------------------------------


def load(key: str, path: Path | None = None) -> Paper:
    """A paper's file, checked: errors name the file and the key."""
    path = path or root() / "papers" / f"{key}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        there = ", ".join(keys()) or "none"
        raise PaperError(f"no paper {short(key)}: {path.parent} has {there}") from None
    except (ValueError, OSError, RecursionError) as error:
        raise PaperError(f"{path.name}: {error}") from error
    return check(content, path.name)


def check(content: dict[str, Any], file: str) -> Paper:
    """The file's content as a `Paper`, or an error that names the file and the place in it."""
    complete("", content, f"{file}: top level")
    complete("paper", content["paper"], f"{file}: paper")
    sections = ("setting", "reading", "table", "figure", "finding")
    settings, readings, tables, figures, found = (blocks(s, content, file) for s in sections)
    claimed = {section: blocks(section, content, file) for section in CLAIMS}
    if twice := settings.keys() & readings.keys():
        raise PaperError(f"{file}: {', '.join(twice)} is a setting and a reading; keep one")
    for name, entry in (settings | readings).items():
        if entry["source"] not in SOURCES:
            known = ", ".join(SOURCES)
            where = f"{file}: {name}: source {short(entry['source'])}"
            raise PaperError(f"{where} must be one of {known}")
    for name, setting in settings.items():
        for tier in ("value", *TIERS, SHIPPED):
            if tier in setting:
                fits(setting, setting[tier], f"{file}: setting {name}: {tier}")
        check_readings(setting, f"{file}: setting {name}: readings")
    for name, table in tables.items():
        count = len(table["columns"])
        if not all(isinstance(column, str) for column in table["columns"]):
            raise PaperError(f"{file}: table {name}: columns must be strings")
        rows = [row if isinstance(row, list) else [] for row in table["rows"]]
        if not all(len(row) == count + 1 and isinstance(row[0], str) for row in rows):
            raise PaperError(f"{file}: table {name}: each row must be its name and {count} cells")
    shown = ["text", *tables, *figures]
    for name, claim in claimed["claim"].items():
        check_claim(claim, claimed["control"].keys(), shown, f"{file}: claim {name[:60]}")
    for name, entry in claimed["left_out"].items():
        within(entry["figure"], shown, f"{file}: left_out {name[:60]}: figure")
    for name, entry in claimed["control"].items():
        judged(effects.check_control, entry, f"{file}: control {name[:60]}")
    texts = {f"finding {name[:60]}": entry["text"] for name, entry in found.items()}
    for name, claim in claimed["claim"].items():
        texts[f"claim {name[:60]}: because"] = claim.get("because", "")
    for place, text in texts.items():
        try:
            findings.check(text, claimed["claim"])
        except ValueError as error:
            raise PaperError(f"{file}: {place}: {str(error)[:150]}") from error
    multiverse = content.get("multiverse", {})
    if multiverse:
        complete("multiverse", multiverse, f"{file}: multiverse")
        within(multiverse["headline"], claimed["claim"], f"{file}: multiverse: headline")
        for name, size in multiverse.get("sizes", {}).items():
            within([name], settings, f"{file}: multiverse: sizes")
            fits(settings[name], size, f"{file}: multiverse: sizes: {name}")
    key, about = str(content["key"]), content["paper"]
    paper = Paper(key, about, settings, readings, tables, figures, found, *claimed.values())
    paper = replace(paper, multiverse=multiverse)
    for tier, plan in paper.seeds_planned.items():
        seeds = paper.at(tier, planned=True).get("seeds", [])
        if isinstance(seeds, list) and len(seeds) != plan["number"]:
            where = f"{file}: seeds_planned {tier}: number = {plan['number']}"
            raise PaperError(f"{where}: the setting seeds has {len(seeds)} there")
    return paper


def check_readings(setting: dict[str, Any], where: str) -> None:
    """Other readings are of open values, each with its reason, and no value comes twice."""
    seen = [setting["value"]]
    if "readings" in setting and (setting["source"] not in OPEN or setting.get("bookkeeping")):
        raise PaperError(f"{where}: only an open value that is no bookkeeping has any: remove them")
    for entry in setting.get("readings", []):
        complete("readings", entry, where)
        if fits(setting, entry["value"], where) in seen:
            raise PaperError(f"{where}: {short(entry['value'])} comes twice: keep one")
        seen.append(entry["value"])


def complete(section: str, entry: Any, where: str) -> None:
    """An entry has all keys that its section needs, and no unknown ones."""
    if not isinstance(entry, dict):
        raise PaperError(f"{where}: must be a table of keys and values, not {short(entry)}")
    needed, also = KEYS[section]
    if missing := needed - entry.keys():
        raise PaperError(f"{where}: {', '.join(sorted(missing))} missing")
    if unknown := entry.keys() - needed - also:
        known = ", ".join(sorted(needed | also))
        raise PaperError(f"{where}: unknown {min(unknown)[:60]}; known: {known}")
    for name, kind in TYPES.items():
        value = entry.get(name)
        fine = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if name in entry and not (fine and (not integer(value) or abs(value) < LARGEST)):
            names = getattr(kind, "__name__", "number")
            raise PaperError(f"{where}: {name} = {short(value)}: must be of type {names}")


def blocks(section: str, content: dict[str, Any], file: str) -> Entries:
    """The section's blocks by their names."""
    entries = content.get(section, [])
    if not isinstance(entries, list):
        raise PaperError(f"{file}: {section}: write [[{section}]], one block each")
    names = {"setting": "name", "reading": "name", "seeds_planned": "tier"}
    name = names.get(section, "id")
    found: Entries = {}
    for number, entry in enumerate(entries, 1):
        label = entry.get(name, number) if isinstance(entry, dict) else number
        where = f"{file}: {section} {str(label)[:60]}"
        complete(section, entry, where)
        if not isinstance(label, str) or label in found:
            raise PaperError(f"{where}: {name} must be a unique string, not {short(label)}")
        found[label] = entry
    return found


def check_claim(claim: dict[str, Any], controls: Collection, known: Collection, where: str) -> None:
    """A claim has a control or the reason why it needs none, and tests that can be judged."""
    if not isinstance(claim["test"], list) or not claim["test"]:
        raise PaperError(f"{where}: write [[claim.test]], at least one block")
    if ("control" in claim) == ("uncontrolled" in claim):
        raise PaperError(f"{where}: give `control`, or `uncontrolled` with the reason why not")
    within(claim["figure"], known, f"{where}: figure")
    within(claim.get("control", []), controls, f"{where}: control")
    if not all(isinstance(reason, str) for reason in claim.get("unseen", {}).values()):
        raise PaperError(f"{where}: unseen: give a reason for each tier")
    for entry in claim.get("changed", []):
        complete("changed", entry, f"{where}: changed")
    for test in claim["test"]:
        complete("test", test, f"{where}: test")
        within(test.get("control", []), controls, f"{where}: {short(test['label'])}: control")
        judged(effects.check, test, where)


def judged(check: Callable[[dict[str, Any]], None], entry: dict[str, Any], where: str) -> None:
    """An error that names the place, if a test or a control cannot be judged."""
    try:
        check(entry)
    except ValueError as error:
        raise PaperError(f"{where}: {short(entry['label'])}: {str(error)[:150]}") from error


def within(names: Any, known: Collection, where: str) -> None:
    """An error unless it is a list of known names."""
    fine = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not fine or any(name not in known for name in names):
        some = ", ".join(name[:15] for name in list(known)[:6])
        raise PaperError(f"{where} = {short(names)}: must be a list out of {some}")


# --- values ---------------------------------------------------------------------------------------


def fits(setting: dict[str, Any], value: Any, where: str) -> Any:
    """The value in the setting's type and range, or an error that says what is allowed."""
    if value is None and setting.get("optional"):
        return None
    what = f"{where} = {short(value)}"
    if setting["name"] == "seeds":
        return some_seeds(value, what)
    kind = type(setting["value"])
    if kind is float and integer(value):
        value = float(value) if abs(value) < LARGEST else math.inf
    if type(value) is not kind or (kind is int and abs(value) > LARGEST):
        example = short(setting["value"])
        raise PaperError(f"{what}: must be of type {kind.__name__}, like {example}")
    own = setting.get("own") and isinstance(value, str) and re.fullmatch(DOTTED, value)
    if "allowed" in setting and value not in setting["allowed"] and not own:
        raise PaperError(f"{what}: allowed are {', '.join(map(short, setting['allowed'][:9]))}")
    if kind in (int, float):
        low, high = setting.get("min", -math.inf), setting.get("max", math.inf)
        if not low <= value <= high or not math.isfinite(value):
            raise PaperError(f"{what}: must be {bounds(low, high)}")
    return value


def some_seeds(value: Any, what: str) -> list[int]:
    """How many seeds, or which: a list of different whole numbers."""
    if integer(value) and 0 < value <= MOST_SEEDS:
        return list(range(value))
    listed = isinstance(value, list) and 0 < len(value) <= MOST_SEEDS
    different = listed and all(map(integer, value)) and len({*value}) == len(value)
    if different and max(map(abs, value)) < 2**63:
        return value
    allowed = f"a number from 1 to {MOST_SEEDS} or a list of different whole numbers"
    raise PaperError(f"{what}: must be {allowed}")


def integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def bounds(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low:g}" if low > -math.inf else "a finite number"
    return f"at most {high:g}" if low == -math.inf else f"from {low:g} to {high:g}"


def plain(value: Any, kind: type) -> Any:
    """A parameter in Python's own types: papermill hands a list over as text, people an array."""
    if isinstance(value, str) and kind is not str:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = ast.literal_eval(value)
    if isinstance(value, (list, range, tuple, set, frozenset)):
        return [plain(each, str) for each in islice(value, MOST_SEEDS + 1)]
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def show(value: Any) -> str:
    if isinstance(value, list) and len(value) > 1 and value == list(range(len(value))):
        return f"0 to {len(value) - 1}"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- the first cell of a notebook -----------------------------------------------------------------


def start(key: str, namespace: dict[str, Any]) -> tuple[Paper, Parameters]:
    """A notebook's parameters, checked and resolved. None means what the paper's file says."""
    pd.set_option("display.max_colwidth", None)  # notes are shown whole
    paper = load(key)
    source = root() / "replications" / f"{key}.py"
    if source.exists() and (unread := paper.settings.keys() - read_by(source)):
        names = ", ".join(sorted(unread))
        raise PaperError(f"{key}.toml: {source.name} never reads {names}: write [[reading]]")
    exposed = {name for name, s in paper.settings.items() if s.get("parameter")}
    known = exposed | {"seeds", *OWN} | RUN.keys()
    if "_fedclust_started" not in namespace:
        refuse_unknown(paper, namespace, known)
    namespace["_fedclust_started"] = True
    given = {name: namespace[name] for name in known if namespace.get(name) is not None}
    given = {name: value for name, value in given.items() if not isinstance(value, ModuleType)}
    how = {name: plain(given.get(name, usual), type(usual)) for name, usual in RUN.items()}
    for name, fine, allowed in (
        ("tier", how["tier"] in TIERS, f"allowed are {', '.join(TIERS)}"),
        ("jobs", integer(how["jobs"]) and how["jobs"] > 0, "must be a whole number, at least 1"),
        ("backend", isinstance(how["backend"], str), "must be a name like 'loky'"),
    ):
        if not fine:
            raise PaperError(f"parameter {name} = {short(how[name])}: {allowed}")
    chosen, changed = {}, {}
    for name in [name for name in OWN if name in given and name not in paper.settings]:
        if not isinstance(given[name], str) or not re.fullmatch(DOTTED, given[name]):
            example = f"must be a dotted path of your own, like 'mine.{name}'"
            raise PaperError(f"parameter {name} = {short(given[name])}: {example}")
        changed[name] = given[name]
    for name in sorted(given.keys() & paper.settings.keys()):
        setting = paper.settings[name]
        value = plain(given[name], type(setting["value"]))
        chosen[name] = fits(setting, value, f"parameter {name}")
    device = chosen.get("device", "cpu")
    values = paper.at(how["tier"], device, planned())
    for name, setting in paper.settings.items():
        values[name] = fits(setting, values[name], f"{key}.toml: setting {name}")
        if name in chosen and chosen[name] != values[name]:
            values[name] = chosen[name]
            if name != "seeds":
                changed[name] = chosen[name]
    if not has_device(device):
        raise PaperError(f"parameter device = {device!r}: this machine has none; use 'cpu'")
    return paper, Parameters(values | how, changed)


def planned() -> bool:
    """Whether the notebook runs for `fedclust settle`."""
    return "FEDCLUST_SETTLE" in os.environ  # settling.py


def refuse_unknown(paper: Paper, namespace: dict[str, Any], known: set[str]) -> None:
    """An error for a name in the parameters cell that is no parameter."""
    literal = (str, int, float, list, dict, tuple, set, range)
    for name, value in namespace.items():
        if name.startswith("_") or name in {*known, "In", "Out"} or not isinstance(value, literal):
            continue
        if name in paper.settings:
            remedy = f"add parameter = true to it in papers/{paper.key}.toml"
            raise PaperError(f"{name} is a setting but no parameter: {remedy}")
        takes = ", ".join(sorted(known))
        raise PaperError(f"unknown parameter {name[:60]}: {paper.key} takes {takes}")


def read_by(source: Path) -> set[str]:
    """The settings that a notebook's source reads: each `p.name`, and each `values["name"]`."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id == "p" else set()
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found.add(str(node.slice.value))
    return found | {"seeds"}  # the report reads them
