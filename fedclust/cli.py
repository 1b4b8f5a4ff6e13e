"""The command line: fedclust data | list | replicate | plan | report | site | verify | notebooks | compile | doctor."""

import argparse
import ast
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TIERS = ("smoke", "quick", "paper")
PACKAGES = (
    "torch", "torchvision", "numba", "numpy", "scikit-learn", "opacus", "pandas", "papermill", "jupytext", "ipykernel",
)  # fmt: skip
STOPS = signal.SIGINT, signal.SIGTERM
INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended
TOGETHER = 2  # notebooks at a time, so that one trains while the other draws
QUIET = 10.0  # seconds between two lines of progress where lines cannot be overwritten


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for number in STOPS:  # both end the same way, children first; in a background job too
        signal.signal(number, stop)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError) as error:
        print(f"fedclust: {error}", file=sys.stderr)
        return 2


def stop(*_: Any) -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)  # a second one, e.g. from make, would stop the stopping
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("fedclust", description="Five papers on clustered federated learning, replicated.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(run.__name__.rstrip("_"), help=text, description=text)
        added.set_defaults(run=run)
        return added

    add = command(data, "fetch the real data sets and say where each came from").add_argument
    add("names", nargs="*", metavar="NAME", help="mnist, fashion_mnist, cifar10, emnist; all by default")
    command(list_, "the methods with their parameters, and the papers")
    add = command(replicate, "run papers' notebooks; what has not changed is not trained again").add_argument
    add("keys", nargs="+", metavar="KEY", help="dcfl, ocfl, fedac, joint, cafa; or all")
    add("--tier", choices=TIERS, default="quick", help="smoke: seconds, stand-in data; paper: the paper's own sizes")
    add("--seeds", metavar="N", help="how many seeds, or which: 0,1,2")
    add("--jobs", metavar="N", help="worker processes, for all papers together")
    add("--backend", metavar="NAME", help="loky, or ray for a cluster")
    add("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a value to change: goes to build/")
    for run, text in (
        (report, "fill the scoreboard: README and figures/<tier>/"),
        (site, "static pages in build/site"),
    ):
        command(run, text).add_argument("--tier", choices=TIERS, help="all that are there by default")
    add = command(verify, "train some of the shipped trials again and compare").add_argument
    add("--tier", choices=TIERS[1:], default="quick")
    add("--trials", type=int, default=2, help="how many of each paper")
    add = command(plan, "how many seeds each claim needs, from a run's first five").add_argument
    add("key", metavar="KEY", nargs="?", help="a paper; without one, draw what the rule can see")
    add("--tier", choices=TIERS, default="paper")
    add("--cap", type=int, default=20, metavar="N", help="the most seeds that the tier can pay")
    command(notebooks, "bring the clean .ipynb pairs in step with replications/*.py")
    command(compile_, "compile now what would be compiled when it is first needed")
    command(doctor, "what works on this machine and what is missing")
    return top


def data(args: argparse.Namespace) -> int:
    from fedclust import datasets

    missing = 0
    for name in args.names or datasets.SPECS:
        try:
            found = datasets.load(name)
        except (OSError, RuntimeError) as error:
            missing += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        count = len(found.y) + len(found.y_test)
        size = "x".join(map(str, found.shape))
        print(f"{name:14} {count:>7,} images {size:8} {len(found.classes)} classes  {found.source}")
    return 1 if missing else 0


def list_(args: argparse.Namespace) -> int:
    from dataclasses import MISSING

    from fedclust import algorithms
    from fedclust.paths import root
    from fedclust.report import papers

    for method in algorithms.catalogue():
        given = {n: "(needed)" if v is MISSING else f"{v!r}" for n, v in method["parameters"].items()}
        print(f"{method['name']:10} {method['paper']}")
        print(f"{'':10} {', '.join(f'{n}={v}' for n, v in given.items()) or 'no parameters'}")
    for key in papers.keys():  # noqa: SIM118  a module
        about = papers.load(key).about
        tiers = [t for t in TIERS if (root() / "replications" / "executed" / t / f"{key}.ipynb").exists()]
        print(f"\n{key:10} {about['title']} ({about['venue']}, {about['year']})")
        print(f"{'':10} executed at tiers: {', '.join(tiers) or 'none yet'}")
    return 0


def replicate(args: argparse.Namespace) -> int:
    from fedclust.report import notebooks as books
    from fedclust.report import papers

    keys = list(dict.fromkeys(k for key in args.keys for k in (books.keys() if key == "all" else [key])))
    read = [papers.load(key) for key in keys]  # a misspelt one is named before any is run
    asked = {name: literal(value) for name, value in args.p}
    run = {"tier": args.tier, "seeds": args.seeds, "jobs": args.jobs, "backend": args.backend}
    run = {name: literal(value) for name, value in run.items() if value is not None}
    if isinstance(run.get("seeds"), tuple):
        run["seeds"] = list(run["seeds"])
    with ThreadPoolExecutor(TOGETHER if run.get("jobs", 2) > 1 else 1) as pool:
        try:
            fine = list(pool.map(lambda paper: replicated(paper, args.tier, run, asked), read))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            books.end_all()
            raise
    if failed := [key for key, well in zip(keys, fine, strict=True) if not well]:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def replicated(paper: Any, tier: str, run: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether one paper's notebook ran to its end."""
    from fedclust.paths import digest, figures, root
    from fedclust.report import notebooks, papers, scoreboard

    key, usual = paper.key, paper.at(tier, str(asked.get("device", "cpu")))
    changed = {n: v for n, v in asked.items() if v is not None and n not in {"seeds", *papers.RUN} and usual.get(n) != v}
    place = Path("build", "executed", f"changed-{digest(changed)[:8]}") if changed else Path("replications", "executed")
    if tier == "paper":
        print(f"{key}: {estimate(key)}", file=sys.stderr)
    started, line = time.monotonic(), Line(key)
    verdicts = figures() / tier / key / "verdicts.json"
    standing = scoreboard.known(verdicts)
    try:
        made = notebooks.execute(key, {**run, **asked}, root() / place / tier, line)
    except notebooks.NotebookFailed as error:
        line.end()
        print(f"{key}: {error}", file=sys.stderr)
        return False
    line.end()
    print(f"{key}: {time.monotonic() - started:.0f} s, {os.path.relpath(made)}")
    for each in scoreboard.moved(standing, scoreboard.known(verdicts)):
        print(f"{key}: {each}")
    return True


def literal(text: str) -> Any:
    """As Python reads it, else as text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def estimate(key: str) -> str:
    """What the paper's own sizes cost when they were last run here or where they were shipped from; else, what was
    worked out from seconds per round."""
    from fedclust.paths import root
    from fedclust.report import papers

    try:
        about = json.loads((root() / "figures" / "paper" / key / "run.json").read_text())
        hours, cores = about["cost"]["cpu_seconds"] / 3600, about["host"]["cores"]
        return f"about {hours:.1f} processor hours if nothing is cached (measured on a machine with {cores} cores)"
    except (OSError, ValueError, KeyError):
        hours = papers.load(key).about.get("hours")
        guess = "expect hours" if hours is None else f"about {hours:g} processor hours by seconds per round"
        return f"not measured yet at this size: {guess}; the time left is shown after the first rounds"


class Line:
    """Progress: one line that is overwritten on a terminal, a line now and then elsewhere."""

    def __init__(self, key: str):
        self.key, self.last, self.tty = key, -QUIET, sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        moving = text.startswith("trial ")
        if self.tty:
            print(f"\r\033[K{self.key}  {text}", end="" if moving else "\n", file=sys.stderr, flush=True)
        elif not moving or time.monotonic() - self.last >= QUIET:
            self.last = time.monotonic() if moving else self.last
            print(f"{self.key}  {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def report(args: argparse.Namespace) -> int:
    from fedclust.report import scoreboard

    for path in scoreboard.publish([args.tier] if args.tier else TIERS[1:]):
        print(os.path.relpath(path))
    return 0


def site(args: argparse.Namespace) -> int:
    from fedclust.report import site as pages

    print(os.path.relpath(pages.build([args.tier] if args.tier else TIERS[1:])))
    return 0


def verify(args: argparse.Namespace) -> int:
    from fedclust.experiments import verify as shipped

    gaps = []
    for name, gap in shipped.verify(args.tier, args.trials):
        gaps.append(gap)
        print(f"{name}  {'identical' if gap == 0 else f'means differ by up to {gap:.2g}'}", flush=True)
    wrong = sum(not gap < shipped.NEAR for gap in gaps)
    found = f"{len(gaps)} trials, {wrong} differ by more than {shipped.NEAR}"
    print(found if gaps else f"no records are shipped at tier {args.tier}")
    return 1 if wrong or not gaps else 0


def plan(args: argparse.Namespace) -> int:
    from fedclust.report import papers
    from fedclust.report import plan as seeds

    if args.key is None:
        print(os.path.relpath(seeds.power()))
        return 0
    found = seeds.table(papers.load(args.key), *seeds.read(args.key, args.tier), args.cap)
    print(seeds.text_of(found))
    most = found["seeds"].max()
    print(f"seeds: {min(most, args.cap):.0f} (claims ask for up to {most:.0f}, the cap is {args.cap})")
    return 0


def notebooks(args: argparse.Namespace) -> int:
    from fedclust.report import notebooks as books

    for key in books.keys():  # noqa: SIM118  a module
        print(os.path.relpath(books.pair(key)))
    return 0


def compile_(args: argparse.Namespace) -> int:
    import tempfile

    from fedclust.experiments import Trial, sweep

    started, data = time.monotonic(), {"name": "glyphs", "n": 60, "n_test": 20}
    few = {"data": data, "partition": {"kind": "iid", "clients": 4}, "train": {"lr": 0.1}, "rounds": 2}
    perceptron, convolutions = {"kind": "mlp", "hidden": [8]}, {"kind": "cnn", "channels": [2, 2], "hidden": [8]}
    kinds = (("Joint", perceptron), ("FedAvg", perceptron), ("FedAvg", convolutions))
    trials = [Trial(few | {"method": {"kind": kind}, "model": model}, seed=0) for kind, model in kinds]
    with tempfile.TemporaryDirectory() as folder:
        sweep(trials, folder=folder)
    print(f"compiled in {time.monotonic() - started:.0f} s")
    return 0


def doctor(args: argparse.Namespace) -> int:
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    from fedclust import datasets
    from fedclust.models import torchvision_vgg
    from fedclust.paths import root

    wrong = []
    print(f"python         {platform.python_version()}  {sys.executable}")
    torchvision_vgg()  # after this torchvision can be imported on every machine
    for name in PACKAGES:
        try:
            __import__({"scikit-learn": "sklearn"}.get(name, name))
            print(f"{name:14} {version(name)}")
        except (ImportError, PackageNotFoundError, RuntimeError) as error:
            wrong.append(f"{name} cannot be imported ({error}): make setup")
    import torch

    fast = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "none"
    print(f"processor      {os.cpu_count()} cores, torch uses {torch.get_num_threads()}; accelerator: {fast}")
    print(f"ray            {'installed' if find_spec('ray') else 'not installed: only needed for --backend ray'}")
    for name in datasets.SPECS:
        kept = datasets.cached(name)
        print(f"data           {name:14} {f'ready    {kept.source}' if kept else 'missing'}")
        if kept is None:
            wrong.append(f"{name} is not here yet: fedclust data {name}")
    files = [path.stat().st_size for path in (root() / ".fedclust").rglob("*") if path.is_file()]
    free = shutil.disk_usage(root()).free
    print(f"cache          {len(files)} files, {sum(files) / 1e6:.1f} MB; {free / 1e9:.0f} GB free")
    if free < 1e9:
        wrong.append("less than 1 GB is free on this disk")
    for line in wrong:
        print(f"!  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
