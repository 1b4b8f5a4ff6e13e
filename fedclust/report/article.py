"""What we learned: an article of two pages whose every number comes from the scores.

It is a list of blocks ("title", "head", "text", "figure"), which become a page and a PDF.
"""

import base64
import textwrap
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from fedclust.report import plots
from fedclust.report.bench import Cube, Interval
from fedclust.report.site import page, rendered

Blocks = list[tuple[str, str]]
PAPER, MARGIN, LETTERS = (8.27, 11.69), 0.85, 104  # inches (A4), inches, letters of a line
LINE, GAP = 1.3, 0.08  # height of a line in its size, inches between blocks
SIZES = {"title": 15.0, "head": 11.0, "text": 8.8}  # points
SHOWN = {  # the figures and what a reader who cannot see them is told
    "fig1": "The share of the gap between FedAvg and Oracle that each method closes",
    "fig3": "How probable it is that a method is better than FedAvg, and than Local",
}


# --- what it says ---------------------------------------------------------------------------------


def points(span: Interval) -> str:
    """A difference of accuracies in points."""
    mean, low, high = (100 * value for value in span)
    return f"{mean:+z.1f} points [{low:+z.1f}, {high:+z.1f}]"


def listed(names: Iterable[str]) -> str:
    """As in "a, b and c"."""
    *most, last = [*names] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def sentences(
    cube: Cube, scores: pd.DataFrame, paid: pd.DataFrame, kinds: dict[str, str]
) -> list[str]:
    """The five that we would defend before the authors of the papers."""
    sets = len({data for data, _ in cube.tasks})
    where = {
        verdict: places(zip(rows.data, rows.scenario, strict=True), sets)
        for verdict, rows in paid.groupby("clustering")
    }
    won, gains = where.get("pays", "none"), paid.gain[paid.clustering == "pays"]
    at = [k for k, share in enumerate(cube.closed("Oracle")) if share is not None]  # with a gap
    inside = [cube.tasks[k] for k in at]
    closed = {name: [cube.closed(name)[k] for k in at] for name in cube.methods}
    told = dict(zip(inside, closed["Told"], strict=True))
    much = {task: share for task, share in told.items() if share and share[0] >= 0.5}
    little = {task: share for task, share in told.items() if task not in much}
    both = [
        f"{spread(share[0] for share in part.values() if share)} % in {places(part, sets)}"
        for part in (much, little)
        if part
    ]
    middle = {
        name: 100 * np.median([share[0] for share in found if share] or [0.0])
        for name, found in closed.items()
    }
    alone = []
    for name in ("Local", "FineTuned"):
        above = sum(low > 0 for _, low, _ in cube.difference(name, "FedAvg"))
        gap = f"closes {middle[name]:.0f} % of the gap in the median"
        alone.append(f"{name} is above FedAvg in {above} of {len(paid)} scenarios and {gap}")
    groups = scores.set_index(["data", "scenario"]).loc[inside].groupby("method").ari.mean()
    clusters = [name for name in cube.methods if kinds.get(name) == "clusters"]
    ari = groups[clusters].sort_values(ascending=False, kind="stable")
    sent = scores.groupby("method")["bytes"].mean() / scores[scores.method == "FedAvg"].bytes.mean()
    least, most = str(sent[clusters].idxmin()), str(sent[clusters].idxmax())
    best, worst = ari.index[0], ari.index[-1]
    return [
        f"Clustering pays in {len(gains)} of {len(paid)} scenarios: {won}. There its best method "
        f"is {spread(gains, 1)} points above the best that does not cluster.",
        f"Against that rival it makes no difference in {where.get('makes no difference', 'none')}; "
        f"it costs accuracy in {where.get('costs', 'none')}.",
        "A model for all that may answer only the labels of the client's group closes, of the gap "
        f"between FedAvg and Oracle, {'; and '.join(both) or 'nothing'}.",
        f"The baselines to beat know no groups: {'; '.join(alone)}.",
        f"Finding the groups decides: where there is a gap {best} has a mean ARI of "
        f"{ari[best]:.2f} and closes {middle[best]:.0f} % of it in the median, {worst} has "
        f"{ari[worst]:.2f} and closes {middle[worst]:.0f} %. {least} sends {sent[least]:.1f} "
        f"times FedAvg's bytes, {most} {sent[most]:.1f} times.",
    ]


def places(tasks: Iterable[tuple[str, str]], sets: int) -> str:
    """Scenarios; if there are several data sets, those with the same ones together."""
    on: dict[str, list[str]] = {}
    for data, scenario in tasks:
        on.setdefault(scenario, []).append(data)
    if sets == 1:
        return listed(on)
    together: dict[str, list[str]] = {}
    for scenario, found in on.items():
        together.setdefault(listed(found), []).append(scenario)
    return ", and ".join(f"{listed(part)} on {found}" for found, part in together.items())


def spread(values: Iterable[float], digits: int = 0) -> str:
    """From the least to the most, times a hundred."""
    known = [f"{100 * value:.{digits}f}" for value in sorted(values)] or ["no"]
    return known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"


def blocks(cube: Cube, five: Sequence[str], paid: pd.DataFrame, size: str) -> Blocks:
    """The whole article around its five sentences; `size` says in a sentence what was run."""
    closing = []
    for scenario, rows in paid.groupby("scenario", sort=False):
        found = []
        for _, row in rows.iterrows():
            gain = points((row.gain, row.low, row.high))
            on = f" on {row.data}" if len(rows) > 1 else ""
            found.append(f"{row.clustering}{on}: {row.by} is {gain} from {row.against}")
        closing.append(f"{scenario}: clustering {'; it '.join(found)}.")
    ordered = sorted(cube.methods, key=lambda name: -cube.overall(name)[0])
    league = "; ".join(
        f"{name} {100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        for name in ordered
        for mean, low, high in [cube.overall(name)]
    )
    return [
        ("title", "What we learned about clustered federated learning"),
        ("text", "Every number here is computed from the records of the runs. " + size),
        ("head", "Five sentences"),
        *(("text", f"{k}. {sentence}") for k, sentence in enumerate(five, 1)),
        ("head", "How much of the gap is closed"),
        ("figure", "fig1"),
        (
            "text",
            "Blue closes the gap between FedAvg and Oracle, red is below FedAvg. Each cell has the "
            "share and its 95 % interval, or in grey the difference to FedAvg in points where "
            "there is no gap.",
        ),
        ("head", "When clustering pays"),
        *(("text", line) for line in closing),
        ("head", "Over all scenarios"),
        ("text", f"Mean accuracy in percent: {league}."),
        ("figure", "fig3"),
        ("head", "How to read this"),
        (
            "text",
            "Oracle and Told read the true groups and are no methods. The clustering method and "
            "its rival in each scenario were chosen on held-out seeds, like all open values, one "
            "for all scenarios of a data set. Intervals are a bootstrap over seeds, stratified by "
            "scenario. Everybody takes part in every round, so FedACP is FedAC. Networks are "
            "small: the order of methods may be another one with large ones.",
        ),
    ]


# --- how it looks ---------------------------------------------------------------------------------


def html(article: Blocks, images: dict[str, bytes]) -> bytes:
    """A page that needs nothing else."""
    parts = []
    for kind, text in article:
        if kind == "figure":
            content = base64.b64encode(images[text]).decode()
            parts.append(f'<img src="data:image/png;base64,{content}" alt="{SHOWN[text]}">')
        else:
            parts.append(rendered({"title": "# ", "head": "## "}.get(kind, "") + text))
    return page(article[0][1], "".join(parts)).encode()


def pdf(article: Blocks, images: dict[str, bytes]) -> bytes:
    """Pages of A4, drawn by matplotlib."""
    content = BytesIO()
    style = {**plots.STYLE, "savefig.bbox": None, "figure.constrained_layout.use": False}
    undated = {"CreationDate": None}
    with mpl.rc_context(style), PdfPages(content, metadata=undated) as pages:
        for fig in paged(article, images):
            pages.savefig(fig)
    return content.getvalue()


def paged(article: Blocks, images: dict[str, bytes]) -> Sequence[Figure]:
    """Blocks from top to bottom. A figure that does not fit begins the next page."""
    (wide, high), width = PAPER, PAPER[0] - 2 * MARGIN
    made, y, waiting = list[Figure](), 0.0, list[str]()

    def put(image: np.ndarray) -> None:
        nonlocal y
        y -= tall(image)
        box = MARGIN / wide, y / high, width / wide, tall(image) / high
        ax = made[-1].add_axes(box)
        ax.imshow(image, interpolation="none", aspect="auto")
        ax.set_axis_off()
        y -= GAP

    def tall(image: np.ndarray) -> float:
        return width * image.shape[0] / image.shape[1]

    def turn() -> None:
        nonlocal y
        made.append(Figure(PAPER))
        y = high - MARGIN
        while waiting and (y == high - MARGIN or y - tall(drawn[waiting[0]]) >= MARGIN):
            put(drawn[waiting.pop(0)])  # the first one whatever its height

    drawn = {name: mpl.image.imread(BytesIO(png)) for name, png in images.items()}
    turn()
    for kind, text in article:
        if kind == "figure":
            waiting.append(text)
            if waiting == [text] and y - tall(drawn[text]) >= MARGIN:
                put(drawn[waiting.pop()])
            continue
        size = SIZES[kind]
        lines = textwrap.wrap(text, int(LETTERS * SIZES["text"] / size))
        need = (len(lines) + 3 * (kind == "head")) * size * LINE / 72  # a heading is not the last
        if y - need < MARGIN:
            turn()
        how: Any = {"size": size, "weight": "normal" if kind == "text" else "bold", "va": "top"}
        made[-1].text(MARGIN / wide, y / high, "\n".join(lines), linespacing=1.25, **how)
        y -= len(lines) * size * LINE / 72 + GAP
    while waiting:
        turn()
    return made
