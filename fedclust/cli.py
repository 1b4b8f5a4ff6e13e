"""The command line: `fedclust --help` lists the commands."""

import argparse
import ast
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fedclust.checks import has_device
from fedclust.paths import TIERS, root, writable

PACKAGES = (
    *("torch", "torchvision", "numba", "numpy", "scikit-learn", "opacus", "pandas"),
    *("papermill", "jupytext", "ipykernel"),
)
STOPS = signal.SIGINT, signal.SIGTERM
INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended
TOGETHER = 2  # notebooks at a time: one trains while the other draws


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for number in STOPS:  # both end the same way, children first; in a background job too
        signal.signal(number, stop)
    try:
        if args.run not in ANYWHERE and not (root() / "papers").is_dir():
            raise FileNotFoundError(f"{root()} has no papers/: set FEDCLUST_ROOT to a checkout")
        return args.run(args)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # as in `fedclust list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"fedclust: {error}", file=sys.stderr)
        return 2


def stop(*_: Any) -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)  # a second one, of make, would stop the stopping
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    text = "Five papers on clustered federated learning, replicated."
    top = argparse.ArgumentParser("fedclust", description=text)
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(run: Callable[[argparse.Namespace], int]) -> Callable[..., Any]:
        """A command is a function; its docstring is the help."""
        name, text = run.__name__.rstrip("_"), run.__doc__
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added.add_argument

    sizes = "smoke: seconds, stand-in data; paper: the paper's own sizes"
    add = command(data)
    add("names", nargs="*", metavar="NAME", help="all by default")
    add("--hash", action="store_true", help="print the content hash of what each source has")
    command(list_)
    for run in (replicate, compare):
        add = command(run)
        if run is replicate:
            add("keys", nargs="+", metavar="KEY", help="dcfl, ocfl, fedac, joint, cafa; or all")
        else:
            add("--method", metavar="PATH", help="one of your own, as mine.MyMethod: a row more")
            add("--tune", action="store_true", help="choose open values anew, on held-out seeds")
        add("--tier", choices=TIERS, default="quick", help=sizes)
        add("--seeds", metavar="N", help="how many seeds, or which: 0,1,2")
        add("--jobs", metavar="N", help="worker processes of each notebook; with 1, one at a time")
        add("--backend", metavar="NAME", help="loky, or ray for a cluster")
        pair = {"nargs": 2, "metavar": ("NAME", "VALUE"), "action": "append", "default": []}
        add("-p", **pair, help="a value to change, or a model or partition of your own")
    add = command(settle)
    add("keys", nargs="*", metavar="KEY", help="papers; all by default")
    add("--tier", choices=TIERS, default="paper", help=sizes)
    add("--hours", type=float, metavar="H", help="end after so long; the same command goes on")
    add("--jobs", type=int, default=2, metavar="N", help="worker processes")
    for run in (report, site):
        command(run)("--tier", choices=TIERS, help="all that are there by default")
    add = command(verify)
    add("--tier", choices=TIERS[1:], default="quick")
    add("--trials", type=int, default=2, help="how many of each paper")
    add("--plain", action="store_true", help="replicate all without compiled code, and judge")
    add = command(plan)
    add("key", metavar="KEY", nargs="?", help="a paper; without one, draw what the rule can see")
    add("--tier", choices=TIERS, default="paper")
    add("--cap", type=int, default=20, metavar="N", help="the most seeds that the tier can pay")
    add = command(readings)
    add("keys", nargs="*", metavar="KEY", help="all papers by default")
    add("--draws", type=int, default=64, metavar="N", help="how many; more keep those before")
    add("--jobs", type=int, default=2, metavar="N", help="worker processes")
    for run in (notebooks, compile_, doctor):
        command(run)
    return top


def data(args: argparse.Namespace) -> int:
    """fetch the real data sets and say where each came from"""
    from fedclust import datasets

    missing = 0
    for name in args.names or datasets.SPECS:
        datasets.forget(name)
        try:
            if args.hash:
                for source, content in datasets.hashes(name):
                    print(f"{name:14} {content}  {source}")
                continue
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
    """the methods with their parameters, and the papers"""
    from dataclasses import MISSING

    from fedclust import algorithms
    from fedclust.report import papers

    for method in algorithms.catalogue():
        given = method["parameters"].items()
        shown = [f"{n}={'(needed)' if v is MISSING else repr(v)}" for n, v in given]
        print(f"{method['name']:10} {method['paper']}")
        print(f"{'':10} {', '.join(shown) or 'no parameters'}")
    for key in papers.keys():  # noqa: SIM118  a module
        about = papers.load(key).about
        executed = root() / "replications" / "executed"
        tiers = [tier for tier in TIERS if (executed / tier / f"{key}.ipynb").exists()]
        print(f"\n{key:10} {about['title']} ({about['venue']}, {about['year']})")
        print(f"{'':10} executed at tiers: {', '.join(tiers) or 'none yet'}")
    return 0


def replicate(args: argparse.Namespace) -> int:
    """run papers' notebooks; what has not changed is not trained again"""
    from fedclust.report import notebooks as books
    from fedclust.report import papers
    from fedclust.report.replicating import replicated

    everything = [key for key in books.keys() if key != papers.COMPARISON]  # noqa: SIM118
    keys = [k for key in args.keys for k in (everything if key == "all" else [key])]
    keys = list(dict.fromkeys(keys))  # each once
    options = {"tier": args.tier, "seeds": args.seeds, "jobs": args.jobs, "backend": args.backend}
    run = {name: literal(value) for name, value in options.items() if value is not None}
    if isinstance(run.get("seeds"), tuple):
        run["seeds"] = list(run["seeds"])
    asked = {name: literal(value) for name, value in args.p}
    names = [name for name, _ in args.p]
    for name in names:
        if name in options:
            raise ValueError(f"-p {name}: use --{name}")
        if names.count(name) > 1:
            raise ValueError(f"-p {name}: given {names.count(name)} times, once is allowed")
    read = [papers.start(key, {**run, **asked}) for key in keys]  # errors before any is run
    remedy = "set FEDCLUST_ROOT to a folder of your own with copies of papers/ and replications/"
    writable(root() / "replications" / "executed" / args.tier, remedy)
    together = TOGETHER if any(p.jobs > 1 for _, p in read) else 1
    with ThreadPoolExecutor(together) as pool:
        try:
            fine = list(pool.map(lambda one: replicated(one[0], args.tier, run, asked), read))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            books.end_all()
            raise
    if failed := [key for key, well in zip(keys, fine, strict=True) if not well]:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def settle(args: argparse.Namespace) -> int:
    """train what the plan of seeds asks for, most claims per hour first"""
    from fedclust.report import papers, settling

    ends = time.monotonic() + (args.hours or math.inf) * 3600
    if args.hours:
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, args.hours * 3600)
    try:
        failed = settling.settle(args.keys or papers.keys(), args.tier, args.jobs)
        return 1 if failed else 0
    except KeyboardInterrupt:
        if time.monotonic() < ends:
            raise
        settling.say(f"{args.hours:g} hours are over; the same command goes on from here")
    return 0


def compare(args: argparse.Namespace) -> int:
    """all methods on one bench: when does clustering pay?"""
    from fedclust.report import bench, papers

    args.keys = [papers.COMPARISON]
    args.p = [*args.p, *([["tune", "True"]] if args.tune else [])]
    if not args.method:
        return replicate(args)
    args.p = [*args.p, ["method", args.method]]
    failed = replicate(args)
    if not failed:
        print(bench.row_of(args.tier, args.method))
    return failed


def literal(text: str) -> Any:
    """As Python reads it, else as text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def report(args: argparse.Namespace) -> int:
    """fill the scoreboard, the forest plot and the README's part"""
    from fedclust.report import forest, metadata, scoreboard

    shipped = scoreboard.shipped()  # before a run of tier paper becomes the shipped one
    for path in [*scoreboard.publish(), *forest.draw(), *metadata.publish()]:
        print(os.path.relpath(path))
    if args.tier:
        print(scoreboard.summary(shipped, args.tier))
    return 0


def site(args: argparse.Namespace) -> int:
    """static pages in build/site"""
    from fedclust.report import site as pages

    print(os.path.relpath(pages.build([args.tier] if args.tier else TIERS[1:])))
    return 0


def verify(args: argparse.Namespace) -> int:
    """train some of the shipped trials again and compare"""
    if args.plain:
        return verify_plainly(args.tier)
    from fedclust.experiments import verify as shipped

    gaps = []
    for name, gap in shipped.verify(args.tier, args.trials):
        gaps.append(gap)
        found = "identical" if gap == 0 else f"means differ by up to {gap:.2g}"
        print(f"{name}  {found}", flush=True)
    wrong = sum(not gap < shipped.NEAR for gap in gaps)
    found = f"{len(gaps)} trials, {wrong} differ by more than {shipped.NEAR}"
    print(found if gaps else f"no records are shipped at tier {args.tier}")
    return 1 if wrong or not gaps else 0


def verify_plainly(tier: str) -> int:
    """Whether any verdict is another one without compiled code."""
    from fedclust.report import plainly

    plainly.replicate(tier)
    found = list(plainly.compare(tier))
    plainly.keep(tier, found)
    other = [f"{key} {name}: {one}, plainly {two}" for key, name, one, two in found if one != two]
    print("\n".join([*other, f"{len(found)} claims, {len(other)} with another verdict"]))
    return 1 if other else 0


def plan(args: argparse.Namespace) -> int:
    """how many seeds each claim needs, from a run's first five"""
    from fedclust.report import papers
    from fedclust.report import plan as seeds

    if args.key is None:
        print(os.path.relpath(seeds.power()))
        return 0
    found = seeds.table(papers.load(args.key), *seeds.read(args.key, args.tier), args.cap)
    print(seeds.text_of(found))
    most, asked = found["seeds"].max(), found["seeds"].dropna()
    for number in (5, 11, args.cap):
        print(f"{number} seeds surely decide {(asked <= number).sum()} of {len(found)} claims")
    print(f"seeds: {min(most, args.cap):.0f} (claims need up to {most:.0f}, the cap is {args.cap})")
    return 0


def readings(args: argparse.Namespace) -> int:
    """what becomes of the claims if open values are read otherwise; draws that are there stay"""
    from fedclust.report import multiverse, papers

    if args.draws < 1:
        raise ValueError(f"--draws {args.draws}: must be at least 1")
    read = [papers.load(key) for key in args.keys or papers.keys()]  # errors before any is run
    for paper in read:
        if not paper.multiverse:
            raise ValueError(f"papers/{paper.key}.toml has no [multiverse]: name plans and claims")
    for paper in read:
        for path in multiverse.publish(paper, args.draws, args.jobs, partial(print, flush=True)):
            print(os.path.relpath(path))
        print(f"{paper.key}: {multiverse.sentence(paper.key)}")
    return 0


def notebooks(args: argparse.Namespace) -> int:
    """bring the clean .ipynb pairs in step with replications/*.py"""
    from fedclust.report import notebooks as books

    for key in [*books.keys(), *books.others()]:
        print(os.path.relpath(books.pair(key)))
    return 0


def compile_(args: argparse.Namespace) -> int:
    """compile now what would be compiled when it is first needed"""
    import tempfile

    from fedclust.experiments import Trial, sweep

    started = time.monotonic()
    data = {"data": {"name": "glyphs", "n": 60, "n_test": 20}, "rounds": 2}
    few = {**data, "partition": {"kind": "iid", "clients": 4}, "train": {"lr": 0.1}}
    perceptron = few | {"model": {"kind": "mlp", "hidden": [8]}}
    convolutions = few | {"model": {"kind": "cnn", "channels": [2, 2], "hidden": [8]}}
    kinds = (("Joint", perceptron), ("FedAvg", perceptron), ("FedAvg", convolutions))
    trials = [Trial(settings | {"method": {"kind": kind}}, seed=0) for kind, settings in kinds]
    with tempfile.TemporaryDirectory() as folder:
        sweep(trials, folder=folder)
    print(f"compiled in {time.monotonic() - started:.0f} s")
    return 0


def doctor(args: argparse.Namespace) -> int:
    """what works on this machine and what is missing"""
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    from fedclust import datasets
    from fedclust.experiments.parts.cafa import torchvision_vgg

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

    accelerator = next((name for name in ("cuda", "mps") if has_device(name)), "none")
    ray = "installed" if find_spec("ray") else "not installed: only needed for --backend ray"
    threads = torch.get_num_threads()
    print(f"processor      {os.cpu_count()} cores, torch uses {threads}; GPU: {accelerator}")
    print(f"ray            {ray}")
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


ANYWHERE = (data, list_, compile_, doctor)  # commands that need no checkout

if __name__ == "__main__":
    sys.exit(main())
