"""One scoreboard: a row per claim, with its verdict at the paper's sizes and what quick says of it.

figures/scoreboard.json has the rows, figures/scoreboard.md is for people, the README has the sums.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedclust.paths import TIERS, root, write
from fedclust.report import multiverse, papers, words
from fedclust.report.verdicts import RULE, VERDICTS

Row = dict[str, Any]
QUICK = ("agrees", "cannot see", "disagrees")
OUTSIDE = "outside the regime"
MARKERS = {
    "findings": "findings",
    "board": "scoreboard",
    "rule": "verdicts",
}  # <!-- scoreboard --> ... in the README


# --- verdicts of notebooks ------------------------------------------------------------------------


def verdicts(base: Path, tier: str) -> list[Row]:
    """What each paper's notebook found at this tier."""
    return [read(path) for path in sorted((base / "figures" / tier).glob("*/verdicts.json"))]


def read(path: Path) -> Row:
    try:
        found: Row = json.loads(path.read_text(encoding="utf-8"))
        return found if {"paper", "claims", "seeds", "data"} <= found.keys() else json.loads("")
    except (ValueError, AttributeError) as error:
        again = f"make {path.parent.name} TIER={path.parent.parent.name}"
        advice = f"remove it, or make it again with {again}"
        raise ValueError(f"{path} is damaged ({error}): {advice}") from error


def known(path: Path) -> dict[str, Row]:
    """The claims in a file of verdicts by their ids; none if it is missing or damaged."""
    try:
        return {claim["id"]: claim for claim in read(path)["claims"]}
    except (OSError, ValueError, KeyError):
        return {}


def moved(before: dict[str, Row], now: dict[str, Row]) -> list[str]:
    """What became of verdicts: another processor rounds in another way, more seeds say more."""
    both = [(before[name], claim) for name, claim in now.items() if name in before]
    return [
        f"{new['id']} was {old['verdict']}, is {new['verdict']}: {new['text']}"
        for old, new in both
        if old["verdict"] != new["verdict"]
    ]


def there(base: Path, tiers: Iterable[str]) -> list[str]:
    """The tiers at which some notebook was run."""
    return [tier for tier in tiers if verdicts(base, tier)]


# --- rows -----------------------------------------------------------------------------------------


def rows(base: Path) -> list[Row]:
    """A row per claim of every paper that was run at the paper's sizes."""
    quick = {found["paper"]: found for found in verdicts(base, "quick")}
    made = []
    for found in verdicts(base, "paper"):
        key = found["paper"]
        seen = {claim["id"]: claim for claim in quick.get(key, {"claims": []})["claims"]}
        unseen, held = blind(base, key), multiverse.held(key, base)
        for claim in found["claims"]:
            counted = words.counted(claim)
            test = words.deciding(counted) if counted else {}
            row = {name: claim[name] for name in ("id", "text", "where", "figure", "ours")}
            row |= {"paper": key, "verdict": claim["verdict"], "regime": claim["regime"]}
            row |= {"decided by": test.get("label"), "effect": test.get("effect")}
            row |= {"interval": [test.get("low"), test.get("high")], "printed": test.get("paper")}
            row |= {"seeds": test.get("seeds"), "why": claim["why"]}
            row["needs"] = max((t["needs"] for t in counted if t["needs"]), default=None)
            row["quick"] = agreement(claim, seen.get(claim["id"]), unseen.get(claim["id"]))
            row["readings"] = held.get(claim["id"])
            row["link"] = f"replications/executed/paper/{key}.ipynb"
            made.append(row)
    return made


def blind(base: Path, key: str) -> dict[str, Any]:
    """The claims that quick cannot see by a rule in the paper's file, with the reason."""
    path = base / "papers" / f"{key}.toml"
    claims = papers.load(key, path).claims if path.exists() else {}
    return {name: claim.get("unseen", {}).get("quick") for name, claim in claims.items()}


def agreement(shipped: Row, here: Row | None, unseen: str | None = None) -> str:
    """What a smaller run says of a shipped verdict."""
    if here is None or unseen:
        return "cannot see"
    for claim in (here, shipped):
        if claim["verdict"] in ("open", "untested") or claim.get("regime") != "paper":
            return "cannot see"
    return "agrees" if here["verdict"] == shipped["verdict"] else "disagrees"


def tallies(found: list[Row]) -> dict[str, Counter[str]]:
    """By paper how many claims have which verdict; those in brackets and our own apart."""
    sums: dict[str, Counter[str]] = {}
    for row in found:
        count = sums.setdefault(row["paper"], Counter())
        if row["ours"]:
            count["ours"] += 1
            continue
        outside = row["regime"] != "paper" and row["verdict"] != "untested"
        count.update([OUTSIDE if outside else row["verdict"], f"quick {row['quick']}", "claims"])
    return sums


def shipped(base: Path | None = None) -> list[Row]:
    """The rows of figures/scoreboard.json; none, if it is not there."""
    try:
        path = (base or root()) / "figures" / "scoreboard.json"
        found: list[Row] = json.loads(path.read_text(encoding="utf-8"))["claims"]
        return found
    except (OSError, ValueError, KeyError):
        return []


def summary(shipped: list[Row], tier: str, base: Path | None = None) -> str:
    """For the terminal: what this run says of the shipped verdicts."""
    base = base or root()
    here = {(f["paper"], claim["id"]): claim for f in verdicts(base, tier) for claim in f["claims"]}
    said: dict[str, list[str]] = {word: [] for word in QUICK}
    for row in shipped:
        if not row["ours"] and row["paper"] in {key for key, _ in here}:
            claim = here.get((row["paper"], row["id"]))
            unseen = blind(base, row["paper"]).get(row["id"]) if tier == "quick" else None
            named = f"{row['paper']} {row['id']}"
            if agreement(row, claim, unseen) == "disagrees" and claim:
                named += f" (shipped {row['verdict']}, here {claim['verdict']}): {row['text']}"
            said[agreement(row, claim, unseen)].append(named)
    lines = [f"Of {sum(map(len, said.values()))} shipped verdicts this run at tier {tier}"]
    for word in QUICK:
        lines.append(
            f"  {word:10} {len(said[word]):3}  {'' if word != QUICK[1] else brief(said[word])}"
        )
    return "\n".join(
        line.rstrip() for line in [*lines, *(f"    {name}" for name in said[QUICK[2]])]
    )


def brief(names: list[str]) -> str:
    by: dict[str, list[str]] = {}
    for name in names:
        by.setdefault(name.split()[0], []).append(name.split()[1])
    return "; ".join(f"{key} {' '.join(ids)}" for key, ids in by.items())


# --- pages ----------------------------------------------------------------------------------------


def board(found: list[Row], link: str = "replications/executed/paper/{key}.ipynb") -> str:
    """A line per paper: how many of its claims have which verdict. Below it what quick says."""
    columns = [*VERDICTS, OUTSIDE]
    lines, sums = [["paper", "seeds", "claims", *columns]], Counter[str]()
    for key, count in tallies(found).items():
        seeds = [row["seeds"] for row in found if row["paper"] == key and row["seeds"]]
        cells = [str(count[column] or "") for column in ["claims", *columns]]
        run = words.span(seeds, "seed") if seeds else ""
        lines.append([f"[{key}]({link.format(key=key)})", run.rpartition(" ")[0], *cells])
        sums += count
    agrees, blind, other = (sums[f"quick {word}"] for word in QUICK)
    said = (
        f"A run at tier quick agrees with {agrees} of these {sums['claims']} verdicts, cannot see "
    )
    said += f"{blind} (too few seeds, or too small for what is claimed) and disagrees with {other}."
    return f"{table(lines)}\n{said}\n"


def findings(base: Path) -> dict[str, str]:
    """One sentence per paper, the one that opens its page, and two of the comparison; with links to
    their pages.
    """
    opening = {
        found["paper"]: ("paper", found["findings"][0])
        for found in verdicts(base, "paper")
        if found.get("findings")
    }
    tier, sentences = compared(base)
    if sentences:
        opening[papers.COMPARISON] = tier, f"{sentences[0]} {sentences[1]}"
    return {
        key: f"[{called(base, key)}](replications/executed/{tier}/{key}.ipynb): {said}"
        for key, (tier, said) in opening.items()
    }


def compared(base: Path) -> tuple[str, list[str]]:
    """The sentences of the comparison, and at which tier they were found: the largest one."""
    for tier in reversed(TIERS):
        path = base / "figures" / tier / papers.COMPARISON / "sentences.json"
        if path.exists():
            return tier, json.loads(path.read_text(encoding="utf-8"))
    return "", []


def called(base: Path, key: str) -> str:
    """The name of a paper's method, as its authors write it."""
    file = base / "papers" / f"{key}.toml"
    about = papers.load(key, file).about if file.exists() else {}
    return about.get("name", key.upper())


def claims(found: list[Row]) -> str:
    """A line per claim."""
    names = ["paper", "id", "claim", "where", "verdict", "effect", "printed", "seeds", "needs"]
    lines = [[*names, "holds in readings", "quick", "why"]]
    for row in found:
        said = words.shown(row) + " (our question)" * row["ours"]
        numbers = [effect(row), number(row["printed"]), row["seeds"] or "", row["needs"] or ""]
        text = [row["paper"], row["id"], row["text"], row["where"], f"**{said}**"]
        lines.append([*text, *map(str, numbers), row["readings"] or "", row["quick"], row["why"]])
    return table(lines)


def table(lines: list[list[str]]) -> str:
    safe = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in line] for line in lines]
    safe.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in safe)


def effect(row: Row) -> str:
    if row["effect"] is None:
        return ""
    low, high = row["interval"]
    return f"{number(row['effect'])} [{number(low)}, {number(high)}]"


def number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.3g}"


def publish(base: Path | None = None) -> list[Path]:
    """Write figures/scoreboard.json and .md, and the README's parts between the markers."""
    base = base or root()
    found = rows(base)
    if not found:
        return []
    said = findings(base)
    parts = {"board": f"\n{board(found)}", "rule": f"\n{RULE}\n"}
    both = ((each, multiverse.sentence(key, base)) for key, each in said.items())
    parts["findings"] = "\n" + "".join(f"- {' '.join(each)}".rstrip() + "\n" for each in both)
    sums = {key: dict(sorted(count.items())) for key, count in tallies(found).items()}
    told = {"findings": said, "tallies": sums, "claims": found}
    content = json.dumps(told, indent=1, ensure_ascii=False)
    head = "# Scoreboard\n\nVerdicts in brackets are outside the paper's regime. The rule:\n\n"
    page = f"{head}{RULE}\n\n{board(found, '../replications/executed/paper/{key}.ipynb')}\n"
    written = {
        base / "figures" / "scoreboard.json": content + "\n",
        base / "figures" / "scoreboard.md": page + claims(found),
    }
    readme = base / "README.md"
    text = readme.read_text(encoding="utf-8")
    for part, name in MARKERS.items():
        before, mark, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{mark}{parts[part]}{end}{after}" if mark and end else text
    written[readme] = text
    for path, content in written.items():
        write(path, content)
    return list(written)
