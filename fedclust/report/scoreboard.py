"""What the verdicts add up to: Markdown for the README and for figures/<tier>/scoreboard.md."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedclust.paths import root, write
from fedclust.report import papers

WORDS = (*reversed(papers.VERDICTS), "untested")
MARKERS = ("<!-- scoreboard -->", "<!-- /scoreboard -->")


def verdicts(base: Path, tier: str) -> list[dict[str, Any]]:
    """What each paper's notebook found at this tier."""
    return [read(path) for path in sorted((base / "figures" / tier).glob("*/verdicts.json"))]


def read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found if {"paper", "claims", "seeds", "data"} <= found.keys() else json.loads("")
    except (ValueError, AttributeError) as error:
        again = f"make {path.parent.name} TIER={path.parent.parent.name}"
        raise ValueError(f"{path} is damaged ({error}): remove it, or make it again with {again}") from error


def known(path: Path) -> dict[str, dict[str, Any]]:
    """The claims in a file of verdicts by their ids; none if it is not there, or damaged and about to be made again."""
    try:
        return {claim["id"]: claim for claim in read(path)["claims"]}
    except (OSError, ValueError, KeyError):
        return {}


def moved(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """What became of verdicts that stood: another processor rounds in another way, more seeds say more."""
    both = [(before[name], claim) for name, claim in now.items() if name in before]
    return [
        f"{new['id']} was {old['verdict']}, is {new['verdict']}: {new['text']}"
        for old, new in both
        if old["verdict"] != new["verdict"]
    ]


def scoreboard(base: Path, tier: str, link: str = "replications/executed/{tier}/{key}.ipynb") -> str:
    """A line per paper: how many claims got which verdict, on what."""
    lines = [f"| {' | '.join(['paper', *WORDS, 'seeds', 'data'])} |", "|---" * (len(WORDS) + 3) + "|"]
    for found in verdicts(base, tier):
        counts = Counter(claim["verdict"] for claim in found["claims"])
        data = ", ".join([*found["data"], *(f"stand-in: {name}" for name in found.get("stand_in", []))])
        name = f"[{found['paper']}]({link.format(tier=tier, key=found['paper'])})"
        cells = [name, *(str(counts[word] or "") for word in WORDS), str(len(found["seeds"])), data]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def claims(base: Path, tier: str) -> str:
    """A line per claim."""
    lines = ["| paper | claim | where | verdict | why |", "|---|---|---|---|---|"]
    for found in verdicts(base, tier):
        for claim in found["claims"]:
            cells = [found["paper"], claim["text"], claim["where"], claim["verdict"], claim["why"]]
            lines.append("| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


def there(base: Path, tiers: Iterable[str]) -> list[str]:
    return [tier for tier in tiers if verdicts(base, tier)]


def publish(tiers: Sequence[str], base: Path | None = None) -> list[Path]:
    """Write figures/<tier>/scoreboard.md, and the README's part between the markers for all tiers that are kept."""
    base = base or root()
    written = {}
    for tier in there(base, tiers):
        board = scoreboard(base, tier, "../../replications/executed/{tier}/{key}.ipynb")
        page = f"# Scoreboard, tier `{tier}`\n\n{board}\n{claims(base, tier)}"
        written[base / "figures" / tier / "scoreboard.md"] = page
    readme = base / "README.md"
    before, found, rest = readme.read_text(encoding="utf-8").partition(MARKERS[0])
    if found and MARKERS[1] in rest:
        boards = [f"Tier `{t}` ([all claims](figures/{t}/scoreboard.md)):\n\n{scoreboard(base, t)}" for t in
                  there(base, papers.TIERS[1:])]  # fmt: skip
        written[readme] = f"{before}{MARKERS[0]}\n{chr(10).join(boards)}{rest[rest.index(MARKERS[1]) :]}"
    for path, text in written.items():
        write(path, lambda aside, text=text: aside.write_text(text, encoding="utf-8"))
    return list(written)
