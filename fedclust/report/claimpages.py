"""A page per claim: what is claimed, the rule, each tier seed by seed, and how to rerun it."""

import html
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedclust.report import markup, papers, scoreboard, tables
from fedclust.report.effects import back, marks, values
from fedclust.report.words import number, shown

COLORS = {  # of badges: white on them has a contrast of at least 4.5
    "reproduced": "#0B63A5",
    "weaker": "#3A6EA5",
    "in part": "#7A5C00",
    "not reproduced": "#8C2D04",
}


def write(
    base: Path, out: Path, tiers: Sequence[str], page: Callable[[str, str], str]
) -> list[dict[str, Any]]:
    """Write every claim's page and badge; the result is a row per claim, of its largest tier."""
    folder, rows = out / "claims", []
    folder.mkdir()
    known = {tier: {b["paper"]: b for b in scoreboard.verdicts(base, tier)} for tier in tiers}
    for key in dict.fromkeys(key for books in known.values() for key in books):
        paper = papers.load(key, base / "papers" / f"{key}.toml")
        for name, rule in paper.claims.items():
            found = {
                tier: claim
                for tier, books in known.items()
                for claim in books.get(key, {"claims": []})["claims"]
                if claim["id"] == name
            }
            if not found:
                continue
            tier, claim = list(found.items())[-1]
            text = told(base, out, key, rule, found)
            title = f"{key} {name}: {claim['short']}"
            place = folder / f"{key}-{name}"
            place.with_suffix(".html").write_text(page(title, text), encoding="utf-8")
            place.with_suffix(".svg").write_text(badge(f"{key} {name}", claim), encoding="utf-8")
            row = {
                k: claim[k] for k in ("id", "short", "text", "where", "verdict", "regime", "why")
            }
            verdicts = {t: shown(each) for t, each in found.items()}
            rows.append({"paper": key, "tier": tier, **row, "verdicts": verdicts})
    return rows


def told(
    base: Path, out: Path, key: str, rule: dict[str, Any], found: dict[str, dict[str, Any]]
) -> str:
    """A claim's page as Markdown."""
    tier, claim = list(found.items())[-1]
    badge_of = f"![{key} {claim['id']}: {shown(claim)}]({key}-{claim['id']}.svg)"
    parts = [f"[all claims](../index.html) · [{key}](../{tier}/{key}.html#{claim['id']})", ""]
    parts += [f"# {claim['text']}", "", f"{badge_of} at tier {tier}. *{claim['where']}*", ""]
    for name in claim["figure"]:
        picture = base / "figures" / tier / key / f"{name}.png"
        if picture.exists() and (out / tier / f"{key}-{name}.png").exists():
            alt = f"{markup.named(name).capitalize()}: {claim['short']}, {shown(claim)}"
            parts += [f"![{alt}](../{tier}/{key}-{name}.png)", ""]
    for each, seen in reversed(found.items()):
        parts += [
            f"## Tier {each}: {shown(seen)}",
            "",
            f"{seen['why'][:1].upper()}{seen['why'][1:]}.",
        ]
        parts += ["", seen["because"]] if seen.get("because") else []
        parts += ["", by_seed(base / "figures" / each / key / "measures.csv", rule), ""]
        parts += [from_run(base / "figures" / each / key / "run.json", key, each), ""]
    parts += ["## The rule", "", *written(rule)]
    parts += [
        f"- mended on {c['date']}: {c['reason']} (before: {c['before']})"
        for c in rule.get("changed", [])
    ]
    return "\n".join(parts)


def by_seed(path: Path, rule: dict[str, Any]) -> str:
    """Each test's value on each seed, in the units of its expression."""
    try:
        measures = pd.read_csv(path, index_col="seed")
    except (OSError, ValueError):
        return ""
    columns = {}
    for test in rule["test"]:
        try:
            columns[test["label"]] = back(test, values(test, measures))
        except ValueError:
            continue  # a measure that this run has not
    frame = pd.DataFrame(columns, index=measures.index).dropna(how="all").T
    frame.columns = [f"seed {seed}" for seed in frame.columns]
    return tables.markdown(frame.rename_axis("test").reset_index()) if len(frame.columns) else ""


def from_run(path: Path, key: str, tier: str) -> str:
    """The commit and the command that make it again."""
    try:
        commit = json.loads(path.read_text(encoding="utf-8")).get("commit") or "not known"
    except (OSError, ValueError):
        commit = "not known"
    return f"Commit `{commit[:10]}`. Again: `make {key} TIER={tier}`"


def written(rule: dict[str, Any]) -> list[str]:
    """The tests as they were written down."""
    lines = []
    for test in rule["test"]:
        bounds = [
            f"{k.replace('_', ' ')} {test[k]:g}" for k in ("at_least", "at_most") if k in test
        ]
        half = f"h = {number(marks(test)[1])}" if not bounds and not test.get("exact") else ""
        printed = f"printed {test['paper']:g}" if "paper" in test else test.get("reason", "")
        said = ", ".join(filter(None, [*bounds, printed, half, "exact" * bool(test.get("exact"))]))
        lines.append(f"- {test['label']}: `{test['expr']}` ({said})")
    controls = rule.get("control") or [rule.get("uncontrolled", "none")]
    return [*lines, f"- control: {', '.join(controls)}"]


def badge(name: str, claim: dict[str, Any]) -> str:
    """A claim's verdict as a small picture."""
    said, color = shown(claim), COLORS.get(claim["verdict"], "#5A5A5A")
    left, right = 8 * len(name) + 12, 8 * len(said) + 12
    texts = (
        f'<text x="6" y="16">{name}</text><text x="{left + 6}" y="16">{html.escape(said)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="22" role="img" '
        f'aria-label="{name}: {said}"><rect width="{left}" height="22" fill="#333"/>'
        f'<rect x="{left}" width="{right}" height="22" fill="{color}"/>'
        f'<g fill="#fff" font-family="monospace" font-size="13">{texts}</g></svg>\n'
    )


def listed(rows: list[dict[str, Any]]) -> str:
    """All claims; a choice above them hides those with another verdict, without a script."""
    words = list(dict.fromkeys(row["verdict"] for row in rows))
    chosen = [("all", "all"), *((slug(word), word) for word in words)]
    style = "".join(
        f"#claims:has(#v-{name}:checked) li:not(.{name}){{display:none}}" for name, _ in chosen[1:]
    )
    inputs = "".join(
        f'<label><input type="radio" name="v" id="v-{name}"{" checked" * (name == "all")}> {word}'
        "</label> "
        for name, word in chosen
    )
    items = "".join(
        f'<li class="{slug(row["verdict"])}"><a href="claims/{row["paper"]}-{row["id"]}.html">'
        f'<img class="badge" src="claims/{row["paper"]}-{row["id"]}.svg" '
        f'alt="{row["paper"]} {row["id"]}: {row["verdict"]}"></a> {html.escape(row["text"])}</li>'
        for row in rows
    )
    return (
        f"<style>{style}#claims ul{{list-style:none;padding:0}}#claims li{{margin:.5rem 0}}</style>"
        f'<section id="claims"><h2>Claims</h2><p>{inputs}<a href="claims.json">as JSON</a></p>'
        f"<ul>{items}</ul></section>"
    )


def slug(word: str) -> str:
    return re.sub(r"\W+", "-", word)
