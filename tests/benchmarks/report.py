"""What was measured as tables, a figure and two pages in figures/bench/.

`python -m tests.benchmarks.report` makes them anew from build/peers/results.json.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fedclust.experiments import build
from fedclust.paths import write
from fedclust.report import plots
from tests.benchmarks import growth, loops
from tests.benchmarks.environments import HERE, PEERS
from tests.benchmarks.workloads import METHODS, SEEDS, WORK, Workload

TITLES = {name: work.title for name, work in WORK.items()} | {
    "W3": "Joint: decision and step in iteration 1, MNIST, 80 devices x 4 models, perceptron 784-512-128-8, batch 64",
    "W3 later": "Joint: the same in iteration 30, when hardly a device has two models to choose from",
    "W3 IFCA": "IFCA: decision and step, the same sizes",
    "W3 noise": "Joint: iteration 1 on noise, where no pixel is background",
    "W5": "VGG19 with batch norm, batch 32, one client of 320 images",
    "W6": "DCFL with DP-SGD, 16 clients of 480 images, perceptron 784-200-200-10, batch 10",
    "W6 CNN": "DCFL with DP-SGD, 16 clients of 800 images, network 6-16 5x5 and 256, batch 100, momentum",
}
INSTALLED = [name for name, peer in PEERS.items() if peer.requires]
COLUMNS = ["workload", "peer", "cores", "repeat", "free", "seconds", "accuracy", "version", "error"]
FIGURE = "fedclust, whole figure"
PYTORCH = [name for name in INSTALLED if "JAX" not in name]


def ratios(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Per workload, number of cores and way: the median time, its ratio to ours, the range over the
    repetitions."""
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    good = frame[frame.error.isna() & (frame.peer != FIGURE)]
    ours = good[good.peer == "fedclust"].set_index(["workload", "cores", "repeat"])[
        ["seconds", "free"]
    ]
    good = good.join(ours.add_prefix("our_"), on=["workload", "cores", "repeat"])
    quiet = (good.cores == 1) | (good[["free", "our_free"]].min(axis=1) > 0.9)
    good = good[quiet | ~quiet.groupby([good.workload, good.cores, good.peer]).transform("any")]
    good = good.assign(ratio=good.seconds / good.our_seconds)
    grouped = good.groupby(["workload", "cores", "peer"], sort=False)
    table = grouped.agg(
        seconds=("seconds", "median"),
        ratio=("ratio", "median"),
        lowest=("ratio", "min"),
        highest=("ratio", "max"),
        repeats=("ratio", "size"),
        accuracy=("accuracy", "median"),
        version=("version", "last"),
    ).reset_index()
    order = {name: i for i, name in enumerate([*PEERS, *table.peer.unique()])}
    return table.sort_values(
        ["workload", "cores", "peer"], key=lambda c: c.map(order) if c.name == "peer" else c
    )


def reasons(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {f"{row['peer']} ({row['workload']})": row["error"] for row in rows if row.get("error")}


def work_of_a_round(work: Workload) -> tuple[float, float]:
    """GFLOP of a round, and GB that the weights alone must move: read forward and backward, read
    and written once."""
    fed = build.federation(work.settings, 0)
    net = loops.usual(build.network(work.settings, fed))
    with FlopCounterMode(display=False) as counter:
        cross_entropy(net(fed.x[0, : work.batch]), fed.y[0, : work.batch]).backward()
    steps = max(int(work.fraction * len(fed)), 1) * work.epochs * -(-fed.x.shape[1] // work.batch)
    sizes = [w.numel() for w in net.parameters()]
    moved = 4 * (4 * sum(sizes) - sizes[0])  # the first layer passes nothing back
    return steps * counter.get_total_flops() / 1e9, steps * moved / 1e9


def physical(table: pd.DataFrame, limits: dict[str, float]) -> pd.DataFrame:
    """How near our round on one core comes to what the processor and its cache can do."""
    found = []
    mine = table[(table.peer == "fedclust") & (table.cores == 1)].set_index("workload").seconds
    for name in [name for name in WORK if name in mine]:
        flop, moved = work_of_a_round(WORK[name])
        rate = flop / mine[name]
        found.append(
            {
                "workload": name,
                "GFLOP per round": flop,
                "GFLOP/s": rate,
                "of the default kernel's peak": rate / limits["default_gflops"],
                "of the fast kernel's peak": rate / limits["fast_gflops"],
                "weights moved, GB/s": moved / mine[name],
                "of the cache's rate": moved / mine[name] / limits["cache_gbs"],
            }
        )
    return pd.DataFrame(found)


def must_reach(table: pd.DataFrame) -> pd.DataFrame:
    """The bars set beforehand. What was measured on all cores is judged there, the rest on one."""

    def least(workload: str, peers: list[str], of: str = "fedclust") -> dict[int, float]:
        rows = table[table.workload == workload]
        ours = rows[rows.peer == of].set_index("cores").seconds
        best = rows[rows.peer.isin(peers)].groupby("cores").seconds.min()
        return (best / ours).dropna().to_dict()

    loop, opacus = ["plain loop"], ["Opacus in a loop"]
    asked = [
        ("W1 against the fastest installed PyTorch simulator", least("W1", PYTORCH), 5.0),
        ("W1 against Flower", least("W1", ["Flower"]), 15.0),
        ("W1 against plain JAX", least("W1", ["plain JAX"]), 1.3),
        ("W2 against the fastest peer", least("W2", INSTALLED), 1.3),
        ("W3 against the plain loop, iteration 1", least("W3", loop), 6.0),
        ("W3 against the plain loop, iteration 30", least("W3 later", loop), 6.0),
        ("W3 against the plain loop, iteration 1 on noise", least("W3 noise", loop), 6.0),
        ("W4 against the fastest peer", least("W4", INSTALLED), 1.3),
        ("W5 against the plain loop", least("W5", loop), 1.0),
        ("W5, bfloat16 against the plain loop", least("W5", loop, "fedclust, bfloat16"), 1.4),
        ("W6 against Opacus in a plain loop (perceptron)", least("W6", opacus), 5.0),
        ("W6 against Opacus in a plain loop (convolutions)", least("W6 CNN", opacus), 5.0),
    ]
    rows = []
    for what, found, least_asked in asked:
        words = {
            f"{n} cores" if n > 1 else "one core": f"{ratio:.2f}x" for n, ratio in found.items()
        }
        judged = found[max(found)] if found else None
        verdict = "not measured" if judged is None else "yes" if judged >= least_asked else "no"
        rows.append({"": what, **words, "asked": f"{least_asked:g}x", "holds": verdict})
    columns = [
        "",
        "one core",
        *sorted({c for row in rows for c in row} - {"", "one core", "asked", "holds"}),
        "asked",
        "holds",
    ]
    return pd.DataFrame(rows).reindex(columns=columns).fillna("")


def whole(rows: list[dict[str, Any]], table: pd.DataFrame) -> str:
    """W7: the measured figure and what FedAvg alone would take a peer for as many rounds."""
    figure = [row for row in rows if row["peer"] == FIGURE]
    peers = table[(table.workload == "W7") & table.peer.isin(PYTORCH)]
    if not figure or peers.empty:
        return ""
    best = peers[peers.cores == peers.cores.max()].sort_values("seconds").iloc[0]
    runs = len(METHODS) * len(SEEDS)
    mine, rounds = figure[-1]["seconds"], figure[-1]["rounds"]
    scaled = best.seconds * runs * rounds
    return (
        f"W7, the whole figure ({len(METHODS)} methods, {len(SEEDS)} seeds, {rounds} rounds, every client evaluated in "
        f"every round): {mine:.0f} s. {best.peer} has FedAvg only; its {best.seconds:.3f} s per round, without "
        f"evaluating, make {scaled:.0f} s for as many rounds (scaled, not run): {scaled / mine:.1f}x.\n"
    )


def markdown(frame: pd.DataFrame, forms: dict[str, str]) -> str:
    def cell(column: str, value: Any) -> str:
        if isinstance(value, str) or value is None:
            return value or ""
        return "" if value != value else forms.get(column, "{:,.3g}").format(value)

    lines = ["| " + " | ".join(frame.columns) + " |", "|" + " --- |" * len(frame.columns)]
    rows = frame.astype(object).to_dict("records")
    return (
        "\n".join(
            [
                *lines,
                *("| " + " | ".join(cell(c, row[c]) for c in frame.columns) + " |" for row in rows),
            ]
        )
        + "\n"
    )


def about(machine: dict[str, Any], limits: dict[str, float]) -> str:
    free = machine["free"]
    noise = (
        ""
        if free > 0.9
        else (
            f" Other work was running: before a run {free:.0%} of the processor was free (median). Ratios, taken in turns, "
            "mean more here than seconds."
        )
    )
    return (
        f"Machine: {machine['processor']}, {machine['cores']} cores, no GPU, {machine['instructions']}, "
        f"{machine['memory_gb']} GB; Python {machine['python']}, torch {machine['torch']}; {machine['date']}.{noise}\n"
        "\n"
        f"One core multiplies matrices at {limits['default_gflops']:.0f} GFLOP/s with PyTorch's default kernel and at "
        f"{limits['fast_gflops']:.0f} with the one `fedclust.fast.matmul` picks; it reads and writes "
        f"{limits['cache_gbs']:.0f} GB/s in its cache and {limits['memory_gbs']:.0f} GB/s in memory.\n"
    )


def page(done: dict[str, Any], table: pd.DataFrame) -> str:
    text = [
        "# Speed\n",
        "Made by `make bench-peers`; `tests/benchmarks/` says how.\n",
        about(done["machine"], done["limits"]),
    ]
    text.append(
        "Seconds are per round and run. On one core: of the processor's own time, so that other work matters little "
        "(Flower: by the wall, its clients are other processes). On all cores: by the wall, one run on each core as in "
        "a sweep (Flower, W3, W5 and W6: one run spread over them); where the processor was free before some "
        "repetitions, only these count. The ratio is that time over ours, its range in brackets; above 1 we are "
        "faster. Every repetition is a process of its own, in turns; medians. Accuracy is that of the last model on "
        "the test set.\n"
    )
    for name in sorted(table.workload.unique()):
        rows = table[table.workload == name]
        by = rows.pivot(index="peer", columns="cores")
        parts = {"": list(rows.peer.unique())}
        for cores in sorted(rows.cores.unique()):
            word = "one core" if cores == 1 else f"{cores} cores"
            one = rows[rows.cores == cores].set_index("peer").reindex(parts[""])
            parts[f"{word}, s"] = [f"{s:.3g}" if s == s else "" for s in one.seconds]
            parts[f"ratio, {word}"] = [
                f"{r.ratio:.2f} [{r.lowest:.2f}, {r.highest:.2f}]" if r.ratio == r.ratio else ""
                for r in one.itertuples()
            ]
        for column in ("accuracy", "version"):
            if column in by and by[column].notna().any(axis=None):
                values = by[column].iloc[:, 0].reindex(parts[""])
                parts[column] = [f"{v:.3f}" if isinstance(v, float) else v for v in values]
        text += [f"## {name}: {TITLES[name]}\n", markdown(pd.DataFrame(parts), {})]
    if line := whole(done["rows"], table):
        text.append(line)
    if missing := reasons(done["rows"]):
        text += ["Not measured:\n", "".join(f"- {who}: {why}\n" for who, why in missing.items())]
    text += ["## What was asked for\n", markdown(must_reach(table), {})]
    limit = physical(table, done["limits"])
    if len(limit):
        share = dict.fromkeys([c for c in limit if c.startswith("of the")], "{:.0%}")
        text += ["## Beside the physical limit (one core)\n", markdown(limit, share)]
        text.append(
            "Operations are counted as if all were done; where images show the background (W1), and in places where no "
            "maximum was (W2, W4, W7), compiled training leaves them out. Weights moved: each weight read forward, "
            "read backward (but for the first layer), read and written by the step.\n"
        )
    return "\n".join(text)


def growth_page(done: dict[str, Any]) -> str:
    points = pd.DataFrame(done["growth"])
    text = [
        "# Growth\n",
        "Made by `make bench-peers`, one thread, every point in a process of its own.\n",
        about(done["machine"], done["limits"]),
    ]
    wide = {
        "clients": "clients",
        "clients, a tenth of them in a round": "clients",
        "parameters": "hidden width",
        "clusters": "clusters",
    }
    intro = {
        "clients": "FedAvg, everyone in every round: 20 images each, batch 10, perceptron 784-32-10.",
        "clients, a tenth of them in a round": "The same with a tenth of the clients in a round.",
        "parameters": "20 clients, one hidden layer of growing width.",
        "clusters": "IFCA with k models, 100 clients; every client scores every model.",
    }
    for kind, what in wide.items():
        rows = points[points.kind == kind]
        table = pd.DataFrame(
            {
                what: rows.value,
                "parameters": rows.parameters,
                "s per round": rows.seconds,
                "rounds/s": 1 / rows.seconds,
                "images, MB": rows.data_mb,
                "process, MB": rows.peak_mb,
            }
        )
        text += [
            f"## {kind[0].upper()}{kind[1:]}\n",
            intro[kind] + "\n",
            markdown(
                table,
                {
                    what: "{:,.0f}",
                    "parameters": "{:,.0f}",
                    "images, MB": "{:,.0f}",
                    "process, MB": "{:,.0f}",
                },
            ),
        ]
    server = points[points.kind == "DCFL's server step"]
    table = pd.DataFrame(
        {
            "clients": server.value,
            "distances, s": server.distance,
            "Dunn index, s": server.dunn,
            "affinity propagation, s": server.clustering,
            "clusters found": server.clusters_found,
            "updates, MB": server.data_mb,
            "process, MB": server.peak_mb,
        }
    )
    counts = dict.fromkeys(["clients", "clusters found", "updates, MB", "process, MB"], "{:,.0f}")
    text += [
        "## DCFL's server step\n",
        "Updates of 25,450 numbers in ten groups.\n",
        markdown(table, counts),
    ]
    text.append(million(points, done["growth"]))
    return "\n".join(text)


def million(points: pd.DataFrame, measured: list[dict[str, Any]]) -> str:
    """Where the time goes, and an estimate for a million clients from the largest points
    measured."""
    parts = next((row for row in measured if row["kind"] == "shares" and "train" in row), None)
    measure = points.seconds.fillna(points.get("distance"))
    largest = points[measure.notna()].sort_values("value").groupby("kind").tail(1).set_index("kind")
    lines = ["## Where the time goes\n"]
    if parts:
        names = ("draw the clients", "shuffle the batches", "train", "average", "evaluate")
        total = sum(parts[name] for name in names)
        lines.append(
            "A round of FedAvg with 1,000 clients, by parts: "
            + ", ".join(f"{name} {parts[name] / total:.0%}" for name in names)
            + ".\n"
        )
    everyone, server = largest.loc["clients"], largest.loc["DCFL's server step"]
    n, scale = 10**6, 10**6 / everyone.value
    row, matrix = everyone.parameters * 4, 4 * server.value**2 / 2**30
    times = (n / server.value) ** 2
    images = everyone.data_mb / everyone.value * n / 2**10
    lines.append(f"""## On the way to a million clients (an estimate from the largest points above, not a run)

- **DCFL's distances break first.** They are n x n: {server.value:,.0f} clients took {server.distance:.1f} s
  and a matrix of {matrix:.2f} GB, a million would take {server.distance * times / 3600:,.0f} hours and
  {matrix * times / 2**10:,.1f} TB. Affinity propagation keeps several such matrices in double precision and took
  {server.clustering:.0f} s. Beyond some ten thousand clients the participants of a round must be few, or neighbours
  be found without all pairs.
- **Then the models of a round.** Everyone in one round is two stacks of n rows, {2 * n * row / 2**30:,.0f} GB for
  this small perceptron. With a sample of 1,000 clients it is {2 * 1000 * row / 2**30:.2f} GB, however many there are.
- **Then the images in memory.** {images:,.0f} GB at {growth.SAMPLES} grey images each, as single precision numbers.
  As bytes, read from disk for the round's clients alone, they would not matter.
- **Then the record.** One row per client, metric and round: at some hundred bytes, {n * 4 * 100 / 2**30:.1f} GB for
  four metrics in one scored round. `eval_every` thins it out; a record of sums would end it.
- **Time is the least of it.** Training is linear: {everyone.seconds * scale / 60:,.0f} minutes on one core for a
  round in which all million train.
""")
    return "\n".join(lines)


def figure(done: dict[str, Any], table: pd.DataFrame) -> Any:
    """Above, how many times longer everyone takes; below, how we grow."""
    fig, axes = plots.panels(2, 2, height=2.7)
    shown = [name for name in ("W1", "W2", "W4", "W7") if name in set(table.workload)]
    for k, (ax, names) in enumerate(zip(axes[0], (shown[:1], shown[1:]), strict=True)):
        rows = table[
            table.workload.isin(names)
            & (table.peer != "fedclust")
            & (table.cores == table.cores.max())
        ]
        y = [
            f"{row.peer}" if k == 0 else f"{row.workload}: {row.peer}" for row in rows.itertuples()
        ]
        ax.barh(y, rows.ratio, color=plots.PALETTE[1], height=0.62)
        ax.errorbar(
            rows.ratio,
            y,
            xerr=[rows.ratio - rows.lowest, rows.highest - rows.ratio],
            fmt="none",
            ecolor="black",
            lw=0.8,
        )
        ax.axvline(1, color="black", lw=0.8)
        ax.invert_yaxis()
        ax.set(
            xlabel="time over ours, all cores at work",
            title=" and ".join([", ".join(names[:-1]), names[-1]])
            if len(names) > 1
            else "".join(names),
        )
        ax.grid(axis="y", visible=False)
        if len(y) > 10:
            ax.tick_params(axis="y", labelsize=6)
    points = pd.DataFrame(done["growth"])
    for k, kind in enumerate(("clients", "clients, a tenth of them in a round")):
        rows = points[points.kind == kind]
        axes[1, 0].loglog(
            rows.value,
            rows.seconds,
            label="everyone in a round" if k == 0 else "a tenth",
            **plots.look(k),
        )
    axes[1, 0].set(xlabel="clients", ylabel="s per round of FedAvg")
    rows = points[points.kind == "DCFL's server step"]
    for k, name in enumerate(("distance", "clustering")):
        axes[1, 1].loglog(
            rows.value,
            rows[name],
            label={"distance": "distances"}.get(name, "affinity propagation"),
            **plots.look(k),
        )
    axes[1, 1].set(xlabel="clients", ylabel="s per server step of DCFL")
    for ax in axes[1]:
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1.02), borderaxespad=0)
    return fig


def main(done: dict[str, Any], folder: Path) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    table = ratios(done["rows"])
    texts = {
        "ratios.csv": table.to_csv(index=False),
        "ratios.md": page(done, table),
        "machine.json": json.dumps({"machine": done["machine"], "limits": done["limits"]}, indent=1)
        + "\n",
    }
    if done["growth"]:
        texts |= {
            "growth.csv": pd.DataFrame(done["growth"]).to_csv(index=False),
            "growth.md": growth_page(done),
        }
        plots.save(figure(done, table), folder / "speed")
    for name, text in texts.items():
        write(folder / name, lambda path, text=text: path.write_text(text))


if __name__ == "__main__":
    main(json.loads((HERE / "results.json").read_text()), HERE.parents[1] / "figures" / "bench")
