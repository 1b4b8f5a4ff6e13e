"""The multiverse of readings: what becomes of the claims if open values are read otherwise.

Each draw takes one of the defensible values of every open setting (`readings` in papers/<key>.toml)
and a seed of its own, trains what the paper's main claims need, and keeps its measures as a line of
figures/readings/<key>.jsonl. A line that is there is not measured again.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, stdtrit

from fedclust.experiments import TrialsFailed
from fedclust.experiments.draws import Draw, draws
from fedclust.paths import figures, write
from fedclust.report import effects, measuring, plots
from fedclust.report.effects import is_bound, kind_of, marks
from fedclust.report.expressions import parse
from fedclust.report.papers import Paper, Parameters, show
from fedclust.report.verdicts import ERROR, regime

TIER, DRAWS, OURS = "quick", 64, 3  # sizes; draws; seeds of our own reading
ASTRAY = "none has the baseline where the paper's was"

Record = dict[str, Any]  # of a draw: its seed, all settings, and its measures
Values = dict[str, list[Any]]  # by setting: our value, then the others


def base(paper: Paper, tier: str) -> Draw:
    """Our reading, at the sizes of the readings; with one seed of each kind."""
    found = paper.at(tier) | paper.multiverse.get("sizes", {})
    return found | {name: 1 for name in found if name.endswith("_seeds")}


def values(paper: Paper, tier: str = TIER) -> Values:
    """Every open setting's defensible values: ours, then the others in the order of the file."""
    ours, found = base(paper, tier), {}
    for name, setting in paper.settings.items():
        if others := [entry["value"] for entry in setting.get("readings", [])]:
            given = [ours[name], *others]
            found[name] = [v for i, v in enumerate(given) if v not in given[:i]]
    return found


def path(key: str, suffix: str) -> Path:
    return figures() / "readings" / f"{key}{suffix}"


def records(key: str) -> list[Record]:
    """The draws of a paper that are measured."""
    try:
        lines = path(key, ".jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def run(
    paper: Paper, asked: list[tuple[int, Draw]], jobs: int, say: Callable[[str], None], tier: str
) -> pd.DataFrame:
    """The measures under readings, by their place; what is there is not run again.

    A reading under which a trial fails is left out, and tried again by the next run.
    """
    kept, rows = records(paper.key), {}
    counted = {name for name in measuring.reads(paper.key) if not name.endswith("seeds")}
    for place, (seed, draw) in enumerate(asked):
        settings = base(paper, tier) | draw
        wanted = {name: settings[name] for name in counted}
        there = (r for r in kept if r["seed"] == seed and wanted.items() <= r["settings"].items())
        if (record := next(there, None)) is None:
            say(f"{paper.key}: {place + 1} of {len(asked)}, seed {seed}: {told(draw)}")
            try:
                record = measured(paper, settings, seed, jobs, tier)
            except TrialsFailed as error:
                say(f"{paper.key}: left out: {str(error).strip().splitlines()[-1]}")
                continue
            kept.append(record)
            keep(paper.key, kept)
        rows[place] = record["measures"]
    return pd.DataFrame.from_dict(rows, orient="index").astype(float)


def readings(
    paper: Paper, count: int, jobs: int, say: Callable[[str], None], tier: str = TIER
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The values of so many draws, their measures, and those of our reading on the first seeds."""
    drawn = draws(values(paper, tier), count)
    ours = run(paper, [(seed, {}) for seed in range(OURS)], jobs, say, tier)
    found = run(paper, [*enumerate(drawn)], jobs, say, tier)
    return pd.DataFrame(drawn, range(count)).loc[found.index], found, ours


def measured(paper: Paper, settings: Draw, seed: int, jobs: int, tier: str) -> Record:
    """One draw: the plans that the paper's file names, with one seed."""
    how = {"seeds": [seed], "tier": tier, "jobs": jobs, "backend": "loky"}
    asked = {name: paper.multiverse.get(name, []) for name in ("plans", "without")}
    report = measuring.Sweeper(**asked, jobs=jobs, seeds=[seed])
    found = measuring.measures(paper, Parameters(settings | how), report)
    row = found.loc[[seed]].astype(float).iloc[0]
    shown = {name: value for name, value in settings.items() if not name.endswith("seeds")}
    return {
        "seed": seed,
        "settings": shown,
        "measures": dict(zip(row.index, rounded(row), strict=True)),
    }


def keep(key: str, kept: list[Record]) -> None:
    lines = [json.dumps(record) for record in sorted(kept, key=lambda record: record["seed"])]
    path(key, "").parent.mkdir(parents=True, exist_ok=True)
    write(path(key, ".jsonl"), "\n".join(lines) + "\n")


def told(draw: Draw) -> str:
    return ", ".join(f"{name} {value}" for name, value in draw.items()) or "our reading"


# --- what becomes of the claims -------------------------------------------------------------------


def publish(
    paper: Paper, count: int, jobs: int, say: Callable[[str], None], tier: str = TIER
) -> list[Path]:
    """Measure what is missing; write figures/readings/<key>.json and the curves."""
    drawn, found, ours = readings(paper, count, jobs, say, tier)
    content: dict[str, Any] = {"paper": paper.key, "tier": tier, "draws": len(drawn)}
    content |= {"planned": DRAWS, "values": values(paper, tier), "drawn": drawn.to_dict("list")}
    content["claims"] = judged(paper, drawn, found, ours)
    written = [path(paper.key, ".json")]
    written[0].parent.mkdir(parents=True, exist_ok=True)
    write(written[0], json.dumps(content, ensure_ascii=False) + "\n")
    for claim in content["claims"]:
        if claim["headline"]:
            figure = curve(content, claim)
            plots.footer(figure, source(content))
            written += plots.save(figure, path(paper.key, f"-{claim['id']}"))
    return written


def known(key: str, base: Path | None = None) -> dict[str, Any] | None:
    """What figures/readings/<key>.json says, if it is there."""
    folder = base / "figures" if base else figures()
    try:
        text = (folder / "readings" / f"{key}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def judged(
    paper: Paper, drawn: pd.DataFrame, found: pd.DataFrame, ours: pd.DataFrame
) -> list[dict[str, Any]]:
    """Every claim whose measures the readings have: in how many it holds, and what decides."""
    claims = []
    for claim in paper.claims.values():
        tests = [t for t in claim["test"] if not t.get("beside") and not t.get("exact")]
        names = {name for test in tests for name in parse(test["expr"])}
        if not tests or not names <= {*found.columns}:
            continue
        seen = np.all([~np.isnan(effects_of(test, found)) for test in tests], axis=0)
        sign = np.all([shows(test, found) for test in tests], axis=0)
        size = np.all([shows(test, found, at_size=True) for test in tests], axis=0)
        met = controlled(paper, claim, tests, found)
        weakest = np.min([in_halves(test, found) for test in tests], axis=0)
        ours_weakest = np.min([in_halves(test, ours) for test in tests], axis=0)
        entry = {name: claim[name] for name in ("id", "short", "text", "where")}
        entry |= {"headline": claim["id"] in paper.multiverse["headline"]}
        entry |= {"sign": share(sign[seen]), "size": share(size[seen])}
        entry |= {"controlled sign": share(sign[seen & met])}
        entry |= {"controlled size": share(size[seen & met])}
        entry |= {"decides": moves(paper, tests, drawn, found)}
        entry |= {"weakest": rounded(weakest), "met": met.tolist(), "ours": rounded(ours_weakest)}
        claims.append(entry)
    return claims


def effects_of(test: dict[str, Any], found: pd.DataFrame) -> np.ndarray:
    """A test's effect in each draw, turned so that the claim is positive; nan: nothing is known."""
    apart = kind_of(test) == "arrivals"  # where most runs never arrive the others still count
    parts = [found.iloc[[i]] for i in range(len(found))] if apart else [found]
    x = np.concatenate([effects.values(test, part) for part in parts])
    return np.where(np.isfinite(x), x, np.nan)


def shows(test: dict[str, Any], found: pd.DataFrame, at_size: bool = False) -> np.ndarray:
    """Whether each draw has the claimed sign, or at least the size h; a bound has both."""
    x = effects_of(test, found)
    if is_bound(test):
        return (x >= test.get("at_least", -np.inf)) & (x <= test.get("at_most", np.inf))
    return x >= marks(test)[1] if at_size else x > 0


def in_halves(test: dict[str, Any], found: pd.DataFrame) -> np.ndarray:
    """Each draw's effect in units of h; of a bound, how far inside it is."""
    x, half = effects_of(test, found), marks(test)[1] or 1.0
    if is_bound(test):
        least, most = test.get("at_least", -np.inf), test.get("at_most", np.inf)
        return np.minimum(x - least, most - x) / half
    return x / half


def controlled(
    paper: Paper, claim: dict[str, Any], tests: list[dict[str, Any]], found: pd.DataFrame
) -> np.ndarray:
    """Whether the baseline of each draw is where the paper's was, for every test of the claim."""
    met = np.ones(len(found), dtype=bool)
    for names, test in {
        (*test.get("control", claim.get("control", [])), test.get("possible")): test
        for test in tests
    }.items():
        controls = [paper.controls[name] for name in names[:-1]]
        rows = (found.iloc[[i]] for i in range(len(found)))
        met &= np.array([regime(controls, test, row) == "paper" for row in rows], dtype=bool)
    return met


def share(shown: np.ndarray) -> dict[str, Any]:
    """How many of the draws show it, with the binomial interval (Clopper and Pearson 1934).

    >>> share(np.array([True, True, False, True]))
    {'held': 3, 'of': 4, 'low': 0.194, 'high': 0.994}
    """
    k, n = int(shown.sum()), len(shown)
    low = float(betaincinv(k, n - k + 1, ERROR / 2)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - ERROR / 2)) if k < n else 1.0
    return {"held": k, "of": n, "low": round(low, 3), "high": round(high, 3)}


def moves(
    paper: Paper, tests: list[dict[str, Any]], drawn: pd.DataFrame, found: pd.DataFrame
) -> list[dict[str, Any]]:
    """What each other value of a setting does to the claim's effects, what decides first.

    The difference of the means of the draws with that value and of those with ours, with Welch's
    interval, widened for the number of all such differences (Bonferroni). It decides if the
    interval is on one side of 0.
    """
    given = {str(name): list(map(json.dumps, column)) for name, column in drawn.items()}
    base_of = {name: json.dumps(each[0]) for name, each in values(paper).items() if name in given}
    pairs = [(n, v) for n, column in given.items() for v in dict.fromkeys(column)]
    pairs = sorted((n, v) for n, v in pairs if v != base_of[n])
    rows = []
    for test in tests:
        x, half, right = effects_of(test, found), marks(test)[1] or 1.0, shows(test, found)
        for name, value in pairs:
            other, ours = (
                np.array([v == at for v in given[name]]) for at in (value, base_of[name])
            )
            there = [mask & ~np.isnan(x) for mask in (other, ours)]
            row = {"setting": name, "from": json.loads(base_of[name]), "to": json.loads(value)}
            row |= {
                "test": test["label"],
                **welch(x[there[0]], x[there[1]], len(pairs) * len(tests)),
            }
            row |= {
                "halves": abs(row["difference"]) / half if row["difference"] is not None else 0.0
            }
            row |= {"held to": share(right[there[0]]), "held from": share(right[there[1]])}
            rows.append(
                {n: float(f"{v:.4g}") if isinstance(v, float) else v for n, v in row.items()}
            )
    return sorted(rows, key=lambda row: (not row["decides"], -gain(row), -row["halves"]))


def gain(move: dict[str, Any]) -> float:
    """By how much the share of draws with the claimed sign is another one."""
    shares = (move[name]["held"] / max(move[name]["of"], 1) for name in ("held to", "held from"))
    return abs(operator.sub(*shares))


def welch(a: np.ndarray, b: np.ndarray, tried: int) -> dict[str, Any]:
    """Mean of a minus mean of b, with its interval at 1 - 0.05 / tried."""
    if min(len(a), len(b)) < 2:
        return {"difference": None, "low": None, "high": None, "decides": False}
    parts = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    difference, error = float(a.mean() - b.mean()), math.sqrt(sum(parts))
    freedom = sum(p**2 / (len(x) - 1) for p, x in zip(parts, (a, b), strict=True))
    freedom = error**4 / freedom if freedom else 1.0
    half = float(stdtrit(freedom, 1 - ERROR / 2 / tried)) * error
    low, high = difference - half, difference + half
    return {"difference": difference, "low": low, "high": high, "decides": low > 0 or high < 0}


def rounded(x: Iterable[float]) -> list[float | None]:
    """With six digits; None is what JSON has for an unknown number."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in x]


# --- pages ----------------------------------------------------------------------------------------


def table(content: dict[str, Any]) -> pd.DataFrame:
    """What decides: a row per claim."""
    rows = []
    for claim in content["claims"]:
        first = next((move for move in claim["decides"] if move["decides"]), None)
        row = [claim["id"], claim["short"], counted(claim["sign"]), counted(claim["size"])]
        rows.append([*row, counted(claim["controlled sign"]), move_of(first)])
    columns = ["claim", "what", "holds in", "at its size in", "holds where the baseline is right"]
    return pd.DataFrame(rows, columns=[*columns, "what decides"])


def counted(part: dict[str, Any]) -> str:
    """A share in words: "12 of 64 [10, 31] %"."""
    if not part["of"]:
        return "in none"
    return f"{part['held']} of {part['of']} [{100 * part['low']:.0f}, {100 * part['high']:.0f}] %"


def move_of(move: dict[str, Any] | None) -> str:
    if move is None:
        return "no single value"
    change = f"{move['difference']:+.2g} [{move['low']:.2g}, {move['high']:.2g}]"
    held, before = of(move["held to"]), of(move["held from"])
    moved = f"{move['setting']} {swap(move)}: {move['test']} {change}"
    return f"{moved}; it holds in {held} ({before} with ours)"


def shown(value: Any) -> str:
    """A setting's value for people."""
    return "-".join(map(str, value)) or "none" if isinstance(value, list) else show(value)


def source(content: dict[str, Any]) -> str:
    count, tier = content["draws"], content["tier"]
    count = f"{count} of {content['planned']} planned" if count < content["planned"] else count
    return f"{content['paper']} · {count} readings, one seed each · at the sizes of tier {tier}"


def held(key: str, base: Path | None = None) -> dict[str, str]:
    """For the scoreboard: by claim, in how many of the readings it holds."""
    claims = (known(key, base) or {"claims": []})["claims"]
    return {c["id"]: of(c["sign"]) for c in claims}


def drawn(key: str) -> str:
    """For a notebook's first screen: how often the claims were read otherwise."""
    if (content := known(key)) is None:
        return ""
    return f" Tried in [{content['draws']} other readings](#table-extra-multiverse) as well."


def sentence(key: str, base: Path | None = None) -> str:
    """For the README: how many claims hold in most readings, and the value that decides most."""
    content = known(key, base) or {"claims": []}
    every = [claim for claim in content["claims"] if claim["sign"]["of"]]
    claims = [claim for claim in every if claim["controlled sign"]["of"]]
    if not every:
        return ""
    draws, planned = content["draws"], content["planned"]
    if not claims:
        return f"Of {draws} readings of what it leaves open {ASTRAY} (tier {content['tier']})."
    most = sum(2 * claim["sign"]["held"] > claim["sign"]["of"] for claim in claims)
    text = f"{most} of {len(claims)} claims hold in most of {draws} readings of what it leaves open"
    text += f" ({planned} are planned)" * (draws < planned)
    if astray := len(every) - len(claims):
        text += f"; for {astray} more no reading has the baseline where the paper's was"
    decided = [(move, c) for c in claims for move in c["decides"][:1] if move["decides"]]
    if not decided:
        return f"{text}; no single open value decides one."
    move, claim = max(decided, key=lambda entry: gain(entry[0]))
    now, before = of(move["held to"]), of(move["held from"])
    text += f". Most depends on {move['setting']} {swap(move)} (ours): "
    text += f'then "{move["test"]}" ({claim["id"]}) '
    return f"{text}has the claimed sign in {now} readings, with ours in {before}."


def tried(key: str, name: str) -> str:
    """For a claim's card: in how many readings it holds, and the open value that decides first."""
    content = known(key) or {"claims": []}
    claims = (c for c in content["claims"] if c["id"] == name and c["sign"]["of"])
    if (claim := next(claims, None)) is None:
        return ""
    right = claim["controlled sign"]
    baseline = f"{of(right)} whose baseline is right" if right["of"] else ASTRAY
    text = f"It holds in {of(claim['sign'])} other readings at tier {content['tier']}, "
    text += f"one seed each ({baseline})"
    move = next((move for move in claim["decides"] if move["decides"]), None)
    if move is None:
        return f"{text}; no single open value decides it."
    text += f'; most depends on {move["setting"]} ({swap(move)}: "{move["test"]}" holds '
    return f"{text}in {of(move['held to'])}, with ours in {of(move['held from'])})."


def swap(move: dict[str, Any]) -> str:
    return f"{shown(move['to'])} in place of {shown(move['from'])}"


def of(part: dict[str, Any]) -> str:
    return f"{part['held']} of {part['of']}"


def disagreements(key: str, verdicts: dict[str, str]) -> list[str]:
    """For a notebook's first screen: claims whose verdict and whose share surely disagree.

    `verdicts` are those of the notebook by claim.
    """
    found = []
    for claim in (known(key) or {"claims": []})["claims"]:
        verdict, part = verdicts.get(claim["id"], "").strip("()"), claim["sign"]
        rare = verdict in ("reproduced", "weaker") and part["high"] < 0.5
        usual = verdict == "not reproduced" and part["low"] > 0.5
        if rare or usual:
            held = f"holds in {of(part)} readings"
            held += f" ({ASTRAY})" * (not claim["controlled sign"]["of"])
            found.append(f"[{claim['id']}](#{claim['id']}) is {verdict}, but {held}.")
    return found


def section(report: Any) -> None:
    """A notebook's part "If we had read it otherwise": the table and the curves."""
    from IPython.display import Markdown, display

    if (content := known(report.paper.key)) is None:
        display(Markdown(f"Not run yet: `make readings KEYS={report.paper.key}`."))
        return
    caption = f"In how many of {content['draws']} readings a claim has its sign, and what decides"
    report.table("table-extra-multiverse", table(content), caption, source(content))
    for claim in content["claims"]:
        if claim["headline"]:
            said = f"{claim['id']}, {claim['short']}: holds in {counted(claim['sign'])}"
            report.figure(f"fig-extra-multiverse-{claim['id']}", curve(content, claim), said)


def curve(content: dict[str, Any], claim: dict[str, Any]) -> Any:
    """A specification curve: sorted effects above, the values of each reading below.

    Effects are the claim's weakest in units of the smallest that counts.
    """
    weakest = np.array([np.nan if v is None else v for v in claim["weakest"]], dtype=float)
    order = np.argsort(weakest)[: int((~np.isnan(weakest)).sum())]
    rows = [(n, v) for n, given in content["values"].items() for v in given]
    heights = [2.0, 0.135 * max(len(rows), 1)]
    options: Any = {"height_ratios": heights, "sharex": True, "squeeze": False}
    fig, axes = plots.panels(2, 1, height=sum(heights) / 2, **options)
    above, below = axes[:, 0]
    at, met = np.arange(len(order)), np.array(claim["met"])[order]
    for some, fill, said in ((met, "black", "is"), (~met, "white", "is not")):
        label = f"its baseline {said} where the paper's was"
        above.plot(at[some], weakest[order][some], "o", ms=4, mfc=fill, color="black", label=label)
    ours = [value for value in claim["ours"] if value is not None]
    if ours:
        above.plot([-2.0] * len(ours), ours, "D", ms=3.5, mfc="none", color=plots.GREY)
        above.plot(-2.0, np.mean(ours), "D", ms=6, color=plots.PALETTE[2], label="our reading")
    for mark, dashes, said in ((0, "-", ""), (1, "--", "smallest that counts")):
        above.axhline(mark, color="#333333", lw=0.9, ls=dashes, label=said or None)
    above.set(ylabel="weakest effect /\nsmallest that counts")
    above.set_title(f"{claim['id']}: {claim['short']}: holds in {counted(claim['sign'])}")
    above.legend(loc="lower right", fontsize=7)
    for y, (name, value) in enumerate(rows):
        taken = [i for i, draw in enumerate(order) if content["drawn"][name][draw] == value]
        first = content["values"][name][0] == value
        below.plot(taken, [y] * len(taken), "|", ms=6, mew=1.6, color="black")
        if first and y:
            below.axhline(y - 0.5, color="#CCCCCC", lw=0.6)
    below.set_yticks(range(len(rows)), [f"{n} {shown(v)}" for n, v in rows], size=6.5)
    for label, (name, value) in zip(below.get_yticklabels(), rows, strict=True):
        label.set(weight="bold" if value == content["values"][name][0] else "normal")
    below.set(
        ylim=(max(len(rows), 1) - 0.5, -0.5),
        xlabel="readings, sorted by the effect (bold: our values)",
    )
    below.grid(False)
    return fig
