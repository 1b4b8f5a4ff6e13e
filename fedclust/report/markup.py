"""Verdicts as Markdown: the box that opens a notebook, a card per claim, lines under figures."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedclust.report.verdicts import RULE
from fedclust.report.words import counted, deciding, effect, number, sentence, shown, wanted

Claim = dict[str, Any]
GROUPS = {  # what a verdict means to a reader
    "reproduced": "Holds",
    "weaker": "Holds, but the effect is weaker than printed",
    "in part": "Holds in part",
    "not reproduced": "Does not hold",
    "open": "Open: these seeds cannot tell",
    "untested": "Not tested",
}
OUTSIDE = "Outside the paper's regime (the baseline is not where the paper's was)"
PENDING = "*The verdicts come here when the notebook has run to its end.*"


def box(about: str, finding: str, claims: list[Claim], other: Sequence[str] = ()) -> str:
    """What holds, what does not and what is open, in a quotation.

    `other`: the claims that fare otherwise under most other readings.
    """
    said: dict[str, list[str]] = {}
    for claim in claims:
        outside = claim["regime"] != "paper" and claim["verdict"] != "untested"
        group = OUTSIDE if outside else GROUPS[claim["verdict"]]
        entry = f"[{claim['id']}](#{claim['id']}) {claim['short']}"
        if outside:
            entry += f" ({claim['verdict']})"
        elif claim["verdict"] not in ("open", "untested") and counted(claim):
            test = deciding(counted(claim))
            size = f", {test['size']} than printed" if test["size"] in ("smaller", "larger") else ""
            entry += f" ({effect(test)}{size})"
        said.setdefault(group, []).append(entry)
    order = [name for name in [*GROUPS.values(), OUTSIDE] if name in said]
    lines = [f"**{finding}**", ""] if finding else []
    lines += [f"- *{name}* ({len(said[name])}): {'; '.join(said[name])}." for name in order]
    lines += [f"- *Otherwise under other readings*: {' '.join(other)}"] * bool(other)
    lines += ["", f"{about} In brackets: the effect that decides, with its 95 % interval."]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def line(claim: Claim) -> str:
    """A claim in one line, for what shows it."""
    parts = counted(claim)
    said = sentence(deciding(parts)) if parts else claim["why"]
    return f"[{claim['id']}](#{claim['id']}) **{shown(claim)}**, {claim['short']}: {said}"


def card(claim: Claim, names: dict[str, str]) -> str:
    """A claim with its verdict first, where it is made, and a row for each of its tests."""
    places = [f"[{names[name]}](#{name})" for name in claim["figure"] if name in names]
    head = f'<a id="{claim["id"]}"></a>**{shown(claim)}** · {claim["id"]} · {claim["text"]}. '
    head += f"*{claim['where']}" + f": {', '.join(places)}" * bool(places) + "*"
    lines = [head + " (a question of ours)" * claim["ours"], ""]
    if claim["tests"]:
        lines += ["| test | result | ours | paper |", "| --- | --- | --- | --- |"]
    for test in claim["tests"]:
        part = test["part"] + " (not counted)" * test["beside"]
        part += f", {test['size']}" if test["size"] else ""
        part += f", {wanted(test['needs'])}" if test["needs"] else ""
        printed = "" if test["paper"] is None else number(test["paper"])
        lines.append(f"| {test['label']} | {part} | {effect(test)} | {printed} |")
    lines += ["", *remarks(claim)]
    return "\n".join(lines).strip()


def remarks(claim: Claim) -> Iterable[str]:
    """What a reader of the verdict should know as well."""
    if not claim["tests"]:
        yield f"{claim['why']}."
    for test in claim["tests"]:
        if test["same_as"]:
            yield f"*{test['label']}* is the same as *{test['same_as']}* on every seed."
    if claim["regime"] != "paper":
        yield f"In brackets, because {claim['regime']}."
    if claim.get("remark"):
        yield f"{claim['remark'][0].upper()}{claim['remark'][1:]}."
    if claim.get("because"):
        yield f"\n**Why.** {claim['because']}"


def cards(claims: list[Claim], names: dict[str, str], excluded: str = "") -> str:
    """All claims in the paper's order, below the rule and how `excluded` bugs of ours are."""
    parts = [folded("How a verdict is made", RULE)]
    parts += [f"**Is it a bug of ours?** {' '.join(excluded.split())}"] * bool(excluded)
    parts += [f'<div class="claim">\n\n{card(claim, names)}\n\n</div>' for claim in claims]
    return "\n\n".join(parts)


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def named(name: str) -> str:
    """A figure's or table's id as people read it.

    >>> named("fig4a"), named("table2"), named("table-extra-cost")
    ('figure 4a', 'table 2', 'table: cost')
    """
    for short, whole in (("fig", "figure"), ("table", "table")):
        if name.startswith(short):
            rest = name.removeprefix(short)
            extra = rest.removeprefix("-extra-")
            return f"{whole}: {extra}" if extra != rest else f"{whole} {rest.strip('-')}"
    return name
