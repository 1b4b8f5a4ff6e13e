"""papers/<key>.toml: what a paper printed, what it left open, what it claims; and how a claim is judged.

A claim has one or more tests, written down before the verdict is looked at: an expression over the measures of a run
(one value per seed) and a bound. Its verdict is the weakest of its tests'.
"""

import ast
import math
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fedclust.experiments.sweeps import BACKENDS
from fedclust.paths import root

TIERS = ("smoke", "quick", "paper")
SOURCES = ("paper", "author-code", "likely-base", "assumed", "spec")
VERDICTS = (
    "not reproduced",
    "inconclusive",
    "direction",
    "reproduced",
)  # from weak to strong; "untested" stands apart
BOUNDS = ("above", "below", "at_least", "at_most")
RUN = {
    "tier": str,
    "seeds": list,
    "jobs": int,
    "backend": str,
    "device": str,
}  # how a notebook runs, in every paper
KEYS: dict[str, tuple[set[str], set[str]]] = {  # section: (needed, allowed beside)
    "": ({"key", "paper", "setting", "figure", "claim"}, {"data", "table"}),
    "paper": ({"title", "authors", "venue", "year", "claim"}, {"doi", "url", "code", "hours"}),
    "data": ({"names"}, {"stand_in", "note"}),
    "setting": (
        {"name", "value", "source"},
        {"where", "note", "min", "max", "allowed", "parameter", "optional", *TIERS, "cpu"},
    ),
    "table": ({"id", "caption", "columns", "rows"}, {"kind", "note", "extra"}),
    "figure": ({"id", "caption"}, {"note", "extra"}),
    "claim": ({"id", "text", "where", "test"}, {"note"}),
    "test": ({"expr"}, {*BOUNDS, "paper", "tolerance", "note"}),
}


class PaperError(ValueError):
    """Something is wrong in a paper's file or in a parameter; the message names it."""


@dataclass(frozen=True)
class Paper:
    key: str
    about: dict[str, Any]
    settings: dict[str, dict[str, Any]]
    tables: dict[str, dict[str, Any]]
    figures: dict[str, dict[str, Any]]
    claims: dict[str, dict[str, Any]]

    def at(self, tier: str, device: str = "cpu") -> dict[str, Any]:
        """Every setting's value at a tier; some have one for tier paper on a processor, what it does in some hours."""
        first = "cpu" if (tier, device) == ("paper", "cpu") else tier
        return {name: s.get(first, s.get(tier, s["value"])) for name, s in self.settings.items()}

    def printed(self, table: str) -> dict[tuple[str, str], Any]:
        """A table's cells by (row, column)."""
        entry = self.tables[table]
        return {
            (row[0], c): v
            for row in entry["rows"]
            for c, v in zip(entry["columns"], row[1:], strict=True)
        }

    def settings_table(self, tier: str, device: str = "cpu") -> pd.DataFrame:
        """What was run beside what the paper says, and how each value is known."""
        here = self.at(tier, device)
        rows = [
            [
                name,
                show(s["value"]),
                show(here[name]),
                s["source"],
                s.get("where", ""),
                s.get("note", ""),
            ]
            for name, s in self.settings.items()
        ]
        return pd.DataFrame(
            rows, columns=["setting", "paper size", f"here ({tier})", "source", "where", "note"]
        )


@dataclass
class Parameters:
    """A notebook's resolved parameters: `p.<name>` for every setting, and how to run."""

    values: dict[str, Any]
    changed: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(f"no setting {name!r} in papers/*.toml of this notebook") from None


def keys() -> list[str]:
    return sorted(path.stem for path in (root() / "papers").glob("*.toml"))


def load(key: str, path: Path | None = None) -> Paper:
    """A paper's file, checked: errors name the file and the key."""
    path = path or root() / "papers" / f"{key}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PaperError(
            f"no paper {key!r}: {path.parent} has {', '.join(keys()) or 'none'}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise PaperError(f"{path.name}: {error}") from error
    return check(content, path.name)


def check(content: dict[str, Any], file: str) -> Paper:
    def need(section: str, entry: Any, where: str) -> None:
        if not isinstance(entry, dict):
            raise PaperError(f"{file}: {where}: must be a table of keys and values, not {entry!r}")
        needed, beside = KEYS[section]
        if missing := needed - entry.keys():
            raise PaperError(f"{file}: {where}: {', '.join(sorted(missing))} missing")
        if unknown := entry.keys() - needed - beside:
            known = ", ".join(sorted(needed | beside))
            raise PaperError(
                f"{file}: {where}: unknown {', '.join(sorted(unknown))}; known: {known}"
            )

    def many(
        section: str, name: str, source: dict[str, Any], where: str = ""
    ) -> dict[str, dict[str, Any]]:
        entries = source.get(section, [])
        if not isinstance(entries, list):
            raise PaperError(f"{file}: {where}{section}: write [[{section}]], one block each")
        found: dict[str, dict[str, Any]] = {}
        for number, entry in enumerate(entries, 1):
            place = (
                f"{where}{section} {entry.get(name, number) if isinstance(entry, dict) else number}"
            )
            need(section, entry, place)
            if not isinstance(entry[name], str) or entry[name] in found:
                raise PaperError(
                    f"{file}: {place}: {name} must be a text that stands once, not {entry[name]!r}"
                )
            found[entry[name]] = entry
        return found

    need("", content, "top level")
    need("paper", content["paper"], "paper")
    settings = many("setting", "name", content)
    for name, s in settings.items():
        if s["source"] not in SOURCES:
            raise PaperError(
                f"{file}: setting {name}: source {s['source']!r} must be one of {', '.join(SOURCES)}"
            )
        for tier in ("value", *TIERS, "cpu"):
            if tier in s:
                fits(s, s[tier], f"{file}: setting {name}: {tier}")
    tables, figures, claims = (
        many("table", "id", content),
        many("figure", "id", content),
        many("claim", "id", content),
    )
    for name, table in tables.items():
        if not all(
            isinstance(row, list) and len(row) == len(table["columns"]) + 1 for row in table["rows"]
        ):
            raise PaperError(
                f"{file}: table {name}: each row is its name and {len(table['columns'])} cells"
            )
    for name, claim in claims.items():
        if not isinstance(claim["test"], list):
            raise PaperError(f"{file}: claim {name}: write [[claim.test]], one block each")
        for test in claim["test"]:
            need("test", test, f"claim {name}: test")
            if sum(bound in test for bound in BOUNDS) != 1:
                raise PaperError(
                    f"{file}: claim {name}: {test['expr']!r} needs exactly one of {', '.join(BOUNDS)}"
                )
            for number in (*BOUNDS, "paper", "tolerance"):
                if number in test and (
                    isinstance(test[number], bool) or not isinstance(test[number], (int, float))
                ):
                    raise PaperError(
                        f"{file}: claim {name}: {number} = {test[number]!r} must be a number"
                    )
    return Paper(str(content["key"]), content["paper"], settings, tables, figures, claims)


def fits(setting: dict[str, Any], value: Any, where: str) -> Any:
    """The value in the setting's type and range, or an error that says what is allowed."""
    kind = type(setting["value"])
    if value is None and setting.get("optional"):
        return None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if setting["name"] == "seeds" and isinstance(value, int) and not isinstance(value, bool):
        value = list(range(value))
    kind = list if setting["name"] == "seeds" else kind
    if type(value) is not kind:
        raise PaperError(
            f"{where} = {value!r}: must be of type {kind.__name__}, like {setting['value']!r}"
        )
    if setting["name"] == "seeds" and (
        not value or {*map(type, value)} != {int} or len({*value}) < len(value)
    ):
        raise PaperError(
            f"{where} = {value!r}: must be a number of seeds or a list of different whole numbers"
        )
    if "allowed" in setting and not all(
        v in setting["allowed"] for v in (value if kind is list else [value])
    ):
        raise PaperError(
            f"{where} = {value!r}: allowed are {', '.join(map(repr, setting['allowed']))}"
        )
    if kind in (int, float):
        low, high = setting.get("min", -math.inf), setting.get("max", math.inf)
        if not low <= value <= high:
            raise PaperError(f"{where} = {value!r}: must be {bounds(low, high)}")
    return value


def bounds(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low:g}"
    return f"at most {high:g}" if low == -math.inf else f"from {low:g} to {high:g}"


def spelled(value: Any, setting: dict[str, Any]) -> Any:
    """papermill's -p hands a list over as text."""
    if isinstance(value, str) and not isinstance(setting["value"], str):
        with suppress(ValueError, SyntaxError):
            return ast.literal_eval(value)
    return value


def start(key: str, namespace: dict[str, Any]) -> tuple[Paper, Parameters]:
    """First cell of a notebook: its parameters, checked and resolved. None means what the paper's file says."""
    pd.set_option("display.max_colwidth", None)  # notes are shown whole
    paper = load(key)
    allowed = {name for name, s in paper.settings.items() if s.get("parameter")} | RUN.keys()
    literal = (str, int, float, bool, list, dict, tuple, type(None))
    given = {
        name: value
        for name, value in namespace.items()
        if not name.startswith("_") and isinstance(value, literal) and name not in ("In", "Out")
    }
    first = "_fedclust_started" not in namespace
    namespace["_fedclust_started"] = True
    if first and (unknown := given.keys() - allowed):
        raise PaperError(
            f"unknown parameter {', '.join(sorted(unknown))}: {key} takes {', '.join(sorted(allowed))}"
        )
    tier = given.get("tier", "quick")
    if tier not in TIERS:
        raise PaperError(f"parameter tier = {tier!r}: allowed are {', '.join(TIERS)}")
    how: dict[str, Any] = {"tier": tier, "jobs": 2, "backend": "loky", "device": "cpu"}
    for name, default in how.items():
        how[name] = default if given.get(name) is None else given[name]
        if type(how[name]) is not RUN[name] or how["jobs"] < 1:
            kind = RUN[name].__name__
            raise PaperError(
                f"parameter {name} = {how[name]!r}: must be of type {kind}, like {default!r}"
            )
    values, changed = paper.at(tier, how["device"]), {}
    values = {
        name: fits(s, values[name], f"{key}.toml: setting {name}")
        for name, s in paper.settings.items()
    }
    for name in allowed & paper.settings.keys():
        if given.get(name) is not None:
            value = fits(
                paper.settings[name],
                spelled(given[name], paper.settings[name]),
                f"parameter {name}",
            )
            if value != values[name] and name not in RUN:
                changed[name] = value
            values[name] = value
    if how["backend"] not in BACKENDS:
        raise PaperError(
            f"parameter backend = {how['backend']!r}: allowed are {', '.join(BACKENDS)}"
        )
    values |= how
    return paper, Parameters(values, changed)


# --- verdicts --------------------------------------------------------------------------------------------------------


def interval(samples: Any, level: float = 0.95) -> tuple[float, float, float]:
    """Mean and t interval over seeds; one seed alone says nothing about the spread.

    >>> [round(x, 3) for x in interval([0.8, 0.9, 1.0])]
    [0.9, 0.652, 1.148]
    """
    x = np.asarray(samples, dtype=float)
    x = x[~np.isnan(x)]
    if len(x) == 0:
        return math.nan, math.nan, math.nan
    mean = float(x.mean())
    if len(x) == 1:
        return mean, -math.inf, math.inf
    half = float(stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return mean, mean - half, mean + half


def judge_test(test: dict[str, Any], measures: pd.DataFrame) -> dict[str, Any]:
    """One test's verdict from one value per seed."""
    try:
        value: Any = measures.eval(test["expr"])
        samples = np.broadcast_to(np.asarray(value, dtype=float), len(measures))
    except Exception as error:
        have = ", ".join(map(str, measures))
        raise PaperError(
            f"test {test['expr']!r} cannot be computed ({error}); measures: {have}"
        ) from error
    mean, low, high = interval(samples)
    bound = next(b for b in BOUNDS if b in test)
    limit = float(test[bound])
    if bound in ("below", "at_most"):  # mirrored, so that one rule serves both directions
        mean_, low_, high_, limit_ = -mean, -high, -low, -limit
    else:
        mean_, low_, high_, limit_ = mean, low, high, limit
    strict = bound in ("above", "below")
    if math.isnan(mean):
        verdict = "inconclusive"
    elif mean_ > limit_ or (not strict and mean_ >= limit_):
        verdict = "reproduced" if not strict or low_ > limit_ else "inconclusive"
    else:
        verdict = (
            "not reproduced" if high_ < limit_ or (strict and low_ == high_) else "inconclusive"
        )
    tolerance = test.get("tolerance", math.inf) + 1e-9  # 1.00 is within 0.05 of 0.95
    if verdict == "reproduced" and "paper" in test and abs(mean - test["paper"]) > tolerance:
        verdict = "direction"
    return {
        "expr": test["expr"], "needs": f"{bound.replace('_', ' ')} {limit:g}", "ours": mean, "low": low, "high": high,
        "seeds": int((~np.isnan(samples)).sum()), "paper": test.get("paper"), "tolerance": test.get("tolerance"),
        "verdict": verdict,
    }  # fmt: skip


def judge(
    paper: Paper, measures: pd.DataFrame, untested: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Every claim with its verdict and one sentence why."""
    untested = untested or {}
    if strange := untested.keys() - paper.claims.keys():
        raise PaperError(
            f"untested names {', '.join(sorted(strange))}: {paper.key} claims {', '.join(paper.claims)}"
        )
    found = []
    for claim in paper.claims.values():
        entry = {name: claim[name] for name in ("id", "text", "where")}
        if claim["id"] in untested:
            found.append(
                {**entry, "verdict": "untested", "why": untested[claim["id"]], "tests": []}
            )
            continue
        tests = [judge_test(test, measures) for test in claim["test"]]
        verdict = min((t["verdict"] for t in tests), key=VERDICTS.index)
        deciding = [t for t in tests if t["verdict"] == verdict]
        why = "; ".join(sentence(t) for t in deciding)
        found.append({**entry, "verdict": verdict, "why": why, "tests": tests})
    return found


def sentence(test: dict[str, Any]) -> str:
    printed = "" if test["paper"] is None else f"; the paper has {test['paper']:g}"
    spread = "" if not math.isfinite(test["low"]) else f" [{test['low']:.3g}, {test['high']:.3g}]"
    return f"{test['expr']} = {test['ours']:.3g}{spread} over {test['seeds']} seeds, needed {test['needs']}{printed}"


def show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
