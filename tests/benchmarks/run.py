"""make bench-peers: the same work by everyone, in turns, on one core and on all; tables and a
figure in figures/bench/.

Every repetition of a peer is a process of its own. Its first and last round do not count
(compiling, evaluating). On one core a process is pinned to it and its processor time counts
(Flower's clients are processes of their own: the wall's). On all cores there is one such process
per core at the same time, as in a sweep over seeds, and a peer that spreads one run over the cores
by itself does that; the wall's time counts. All are seconds per round and run.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import torch

from fedclust.fast.matmul import is_single_precision, setting
from fedclust.paths import write
from fedclust.report.report import processor
from tests.benchmarks import growth, loops, report
from tests.benchmarks.environments import HERE, PEERS, SCRIPTS, Missing, python
from tests.benchmarks.report import FIGURE
from tests.benchmarks.workloads import ROUNDS, WORK, Workload, whole_figure

CORES = sorted(os.sched_getaffinity(0))
LIMIT = 900  # seconds a process may take


def measured(name: str, work: Workload, folder: Path, everywhere: bool) -> dict[str, Any]:
    """One repetition: seconds per round and run, accuracy after the last round."""
    peer, interpreter = PEERS[name], python(name)
    data, settings = work.write(folder)
    places = (
        [CORES]
        if everywhere and peer.spreads
        else [[core] for core in (CORES if everywhere else CORES[:1])]
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parents[2])}
    command = [str(interpreter), str(SCRIPTS / f"{peer.script}.py"), str(data), str(settings)]
    logs = [folder / f"{peer.script}-{i}.log" for i in range(len(places))]
    runs = []
    for cores, log in zip(places, logs, strict=True):
        pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
        with log.open("w") as out:
            run = subprocess.Popen(
                pinned, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        runs.append(run)
    try:
        for run in runs:
            run.wait(LIMIT)
    except subprocess.TimeoutExpired:
        raise Missing(f"took more than {LIMIT} s") from None
    finally:
        for run in runs:  # and whatever it left behind
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    found = []
    for log in logs:
        lines = log.read_text(errors="replace").strip().splitlines() or ["it says nothing"]
        results = [line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")]
        if not results:
            raise Missing(f"does not run: {lines[-1][:200]}")
        found.append(json.loads(results[-1]))
    kind = "wall" if everywhere or peer.spreads else "processor"
    rates = [1 / statistics.median(one[kind][1:-1]) for one in found]
    return {
        "seconds": 1 / sum(rates),
        "accuracy": found[0]["accuracy"],
        "version": found[0]["version"],
    }


def settle(patience: float) -> float:
    """Wait until the processor is free, at most so many seconds; its idle share in the last
    second."""
    end = time.monotonic() + patience
    while True:
        before = ticks()
        time.sleep(1)
        idle, total = (b - a for a, b in zip(before, ticks(), strict=True))
        if idle / total > 0.9 or time.monotonic() > end:
            return round(idle / total, 2)


def ticks() -> tuple[int, int]:
    """(idle, all) of the processor since it started."""
    spent = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return spent[3] + spent[4], sum(spent)


def against_peers(
    names: list[str], work: dict[str, Workload], repeats: int, patience: float
) -> list[dict[str, Any]]:
    """Everyone in turns: a row per peer, workload, setting and repetition."""
    rows: list[dict[str, Any]] = []
    for title, one in work.items():
        missing: dict[str, str] = {}
        for repeat in range(repeats):
            for everywhere in (False, True):
                for name in names:
                    if name in missing or (one.only and name not in one.only):
                        continue
                    about = {
                        "workload": title,
                        "peer": name,
                        "cores": len(CORES) if everywhere else 1,
                        "repeat": repeat,
                    }
                    about["free"] = settle(patience)
                    try:
                        found = measured(name, one, HERE / "work" / title, everywhere)
                    except Missing as error:
                        missing[name], found = str(error), {"error": str(error)}
                    rows.append(about | found)
                    say(about | found)
    return rows


def against_loops(repeats: int, small: bool, patience: float) -> list[dict[str, Any]]:
    """What no peer offers, in this process: on one thread, then on one per core."""
    rows = []
    for title, ways in loops.all_ways(small).items():
        for threads in sorted({1, len(CORES)}):
            free = settle(patience)
            torch.set_num_threads(threads)
            for name, times in loops.interleaved(ways, repeats).items():
                rows += [
                    {
                        "workload": title,
                        "peer": name,
                        "cores": threads,
                        "repeat": i,
                        "free": free,
                        "seconds": s,
                    }
                    for i, s in enumerate(times)
                ]
            torch.set_num_threads(1)
            say(rows[-1])
    return rows


def figure(rounds: int) -> list[dict[str, Any]]:
    """W7: DCFL's figure 4, with a worker per core."""
    seconds = whole_figure(len(CORES), rounds)
    return [
        {
            "workload": "W7",
            "peer": FIGURE,
            "cores": len(CORES),
            "repeat": 0,
            "seconds": seconds,
            "rounds": rounds,
        }
    ]


def limits() -> dict[str, float]:
    """What this machine's processor and memory can do: one thread, best of some repetitions."""
    a, b, out = (torch.randn(1024, 1024) for _ in range(3))
    small, large = (
        torch.zeros(2 << 20),
        torch.zeros(100 << 20),
    )  # 8 MB: in the cache; 400 MB: in memory

    def rate(amount: float, work: Callable[[], object], repeats: int = 20) -> float:
        return amount / min(loops.interleaved({"": work}, repeats)[""]) / 1e9

    flop = 2 * 1024**3
    found = {"default_gflops": rate(flop, lambda: torch.mm(a, b, out=out))}
    with setting("bf16"):
        found["fast_gflops"] = rate(flop, lambda: torch.mm(a, b, out=out))
    found["cache_gbs"] = rate(2 * small.nbytes, lambda: small.add_(1.0))
    found["memory_gbs"] = rate(2 * large.nbytes, lambda: large.add_(1.0), 5)
    return found


def machine() -> dict[str, Any]:
    flags = Path("/proc/cpuinfo").read_text()
    return {
        "processor": processor(),
        "cores": len(CORES),
        "instructions": ", ".join(
            name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags
        ),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": str(date.today()),
        "fast_kernel": is_single_precision(),
    }


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), file=sys.stderr, flush=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--peers", nargs="*", default=list(PEERS), help="some of: " + ", ".join(PEERS))
    ask.add_argument("--workloads", nargs="*", default=[*WORK, "loops", "figure", "growth"])
    ask.add_argument("--repeats", type=int, default=5)
    ask.add_argument(
        "--patience",
        type=float,
        default=20,
        help="seconds to wait for a free processor before each run",
    )
    ask.add_argument(
        "--small",
        action="store_true",
        help="tiny sizes: shows that everything runs; writes to build/",
    )
    given = ask.parse_args()
    torch.set_num_threads(1)
    raw = HERE / ("small.json" if given.small else "results.json")
    kept = json.loads(raw.read_text()) if raw.exists() else {"rows": [], "growth": []}
    work = {n: w.tiny() if given.small else w for n, w in WORK.items() if n in given.workloads}
    done = {"machine": machine(), "limits": limits(), "rows": [], "growth": kept["growth"]}
    rows = against_peers(given.peers, work, given.repeats, given.patience)
    if "loops" in given.workloads:
        rows += against_loops(given.repeats, given.small, given.patience)
    if "figure" in given.workloads:
        settle(given.patience)
        rows += figure(3 if given.small else ROUNDS)
    fresh = {(row["workload"], row["peer"]) for row in rows}
    done["rows"] = [
        row for row in kept["rows"] if (row["workload"], row["peer"]) not in fresh
    ] + rows
    if "growth" in given.workloads:
        done["growth"] = []
        for kind, values in (growth.POINTS | {"shares": (1000,)}).items():
            for value in values[:2] if given.small else values:
                done["growth"].append({"kind": kind, "value": value} | growth.measure(kind, value))
                say(done["growth"][-1])
    free = [row["free"] for row in done["rows"] if "free" in row]
    done["machine"]["free"] = statistics.median(free) if free else 1.0
    write(raw, lambda path: path.write_text(json.dumps(done, indent=1)))
    report.main(done, HERE / "small" if given.small else HERE.parents[1] / "figures" / "bench")


if __name__ == "__main__":
    main()
