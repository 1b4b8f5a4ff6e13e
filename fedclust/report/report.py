"""A notebook's output: figures and tables beside the paper's numbers, verdicts, and our own record of the run."""

import json
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedclust.experiments import Trial, build, sweeps
from fedclust.experiments.cache import LIBRARIES
from fedclust.experiments.sweeps import BACKENDS
from fedclust.models import Model, layers
from fedclust.paths import digest, figures, root, write
from fedclust.report import papers, plots
from fedclust.report.papers import Paper, Parameters


class Report:
    """Collects what a notebook makes and checks at the end that nothing the paper shows is missing.

    Results with changed parameters never overwrite those of the tier: they go to `build/`.
    """

    def __init__(self, paper: Paper, p: Parameters):
        self.paper, self.p = paper, p
        if p.backend not in BACKENDS:
            allowed = ", ".join(BACKENDS)
            raise papers.PaperError(f"parameter backend = {p.backend!r}: allowed are {allowed}")
        base = figures()
        if p.changed:
            base = root() / "build" / "figures" / f"changed-{digest(p.changed)[:8]}"
        self.folder = base / p.tier / paper.key
        self.shipped = self.folder / "records"
        self.made: set[str] = set()
        self.seeds: list[int] = p.seeds  # of what comes next, for the footers
        self.data: dict[str, dict[str, Any]] = {}
        self.runs: dict[
            str, dict[str, Any]
        ] = {}  # by identity: a trial that serves twice counts once
        self.verdicts: list[dict[str, Any]] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write(self.folder / ".writable", Path.touch)
            (self.folder / ".writable").unlink()
        except OSError as error:
            raise OSError(
                f"nothing can be written to {self.folder} ({error}): set FEDCLUST_FIGURES"
            ) from error

    def uses(self, settings: dict[str, Any]) -> None:
        """Data that something is made from; `sweep` says it of its trials by itself."""
        if "data" in settings:
            data = build.dataset(settings)
            self.data[data.name] = {
                "source": data.source,
                "sha256": data.sha256,
                "stand_in": data.stand_in,
            }

    def sweep(self, trials: list[Trial]) -> pd.DataFrame:
        """The trials' records; where each came from, and on which data, is kept for `run.json` and the footers."""
        return self.sweeps({"": trials})[""]

    def sweeps(self, plans: dict[Any, list[Trial]]) -> dict[Any, pd.DataFrame]:
        """Several at once, so that no worker waits for another."""
        trials = [trial for plan in plans.values() for trial in plan]
        for trial in trials:
            self.uses(trial.settings)
        shipped = self.shipped if os.environ.get("FEDCLUST_SHIPPED") == "use" else None
        found = sweeps.run(trials, self.p.jobs, self.p.backend, shipped=shipped)
        records = {name: sweeps.gather(plan, found) for name, plan in plans.items()}
        for record in records.values():
            for run in record.attrs["runs"]:
                self.runs.setdefault(run["identity"], run)
        return records

    @property
    def source(self) -> str:
        """Tier, seeds, data: stands under every figure and table."""
        return self.of(self.seeds)

    def of(self, seeds: list[int], data: str | None = None) -> str:
        known = sorted(self.data.items())
        shown = (
            [(name, facts) for name, facts in known if data in (name, facts["stand_in"])]
            if data
            else known
        )
        names = [
            f"{name} (STAND-IN for {facts['stand_in']})" if facts["stand_in"] else name
            for name, facts in shown or known
        ]
        changed = [
            f"{name} = {papers.show(value)}" for name, value in sorted(self.p.changed.items())
        ]
        count = [f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"] * bool(seeds)
        return " · ".join(
            [self.paper.key, f"tier {self.p.tier}", *count, ", ".join(names) or "no data", *changed]
        )

    def listed(self, name: str, entries: dict[str, dict[str, Any]], extra: str) -> dict[str, Any]:
        """What the paper's file says of a figure or table; ours are named so that nobody takes them for the paper's."""
        if name not in entries and not name.startswith(extra):
            known = ", ".join(entries)
            file = f"papers/{self.paper.key}.toml"
            raise ValueError(
                f"{name!r}: {file} has {known}; what is not there is named {extra}-..."
            )
        return entries.get(name, {})

    def figure(
        self,
        name: str,
        fig: Any,
        caption: str | None = None,
        seeds: list[int] | None = None,
        data: str | None = None,
    ) -> None:
        """Save as SVG and PNG with a footer that says tier, seeds and data; show it with its caption.

        `seeds` are those it shows, if not all of the notebook's; an empty list for what has none. `data` is the set it
        shows, if not all that were used so far.
        """
        from IPython.display import Image, Markdown, display
        from matplotlib import pyplot as plt

        known = self.listed(name, self.paper.figures, "fig-extra")
        plots.footer(fig, self.of(self.seeds if seeds is None else seeds, data))
        plots.save(fig, self.folder / name)
        plt.close(fig)
        self.made.add(name)
        png = (self.folder / f"{name}.png").read_bytes()
        width = (
            int.from_bytes(png[16:20], "big") * 3 // 4
        )  # all figures at one scale, letters as large as the text's
        caption = caption or known["caption"]
        display(Image(data=png, format="png", width=width, alt=caption))
        display(Markdown(f"*{name}. {caption}*"))

    def table(self, name: str, frame: pd.DataFrame, caption: str | None = None) -> None:
        """Save as CSV and Markdown; show it."""
        from IPython.display import Markdown, display

        known = self.listed(name, self.paper.tables, "table-extra")
        text = f"{markdown(frame)}\n\n*{name}. {caption or known['caption']}*\n"
        write(self.folder / f"{name}.csv", lambda path: frame.to_csv(path, index=False))
        write(
            self.folder / f"{name}.md",
            lambda path: path.write_text(f"{text}\n{self.source}\n", encoding="utf-8"),
        )
        self.made.add(name)
        display(Markdown(text))

    def static(self, name: str) -> None:
        """A table without measurements, as it is printed."""
        table = self.paper.tables[name]
        self.table(name, pd.DataFrame(table["rows"], columns=["", *table["columns"]]))

    def layers(self, name: str, nets: dict[tuple[str, str], Model]) -> None:
        """Models by (kind, column), layer by layer with their numbers of parameters; in brackets what is printed."""
        printed, cells = self.paper.printed(name), {}
        for (kind, column), model in nets.items():
            cells[f"{kind} input", column] = " x ".join(
                map(str, model.shape[model.shape[0] == 1 :])
            )
            cells |= {
                (f"{kind} {row}", column): f"{text}: {n:,}" if n else text
                for row, text, n in layers(model)
            }
            cells[f"{kind} parameters", column] = f"{model.parameters:,}"
        columns = self.paper.tables[name]["columns"]
        known = [*dict.fromkeys(row for row, _ in printed)]
        rows = [row for kind in dict.fromkeys(kind for kind, _ in nets)
                for row in [*(row for row in known if row.startswith(kind)), f"{kind} parameters"]]  # fmt: skip
        said = [
            [f"{cells.get((r, c), '/')} [{printed.get((r, c), 'not printed')}]" for c in columns]
            for r in rows
        ]
        self.table(name, pd.DataFrame(said, rows, columns).rename_axis("").reset_index())

    def compare(self, name: str, samples: pd.DataFrame) -> None:
        """The paper's number, ours with its 95 % interval over seeds, and the difference.

        `samples` has a row per seed and columns (row, column) as in the paper's table; rows of ours may be added.
        """
        table = self.paper.tables[name]
        cells = (zip(table["columns"], row[1:], strict=True) for row in table["rows"])
        printed = {
            (row[0], c): v for row, line in zip(table["rows"], cells, strict=True) for c, v in line
        }
        rows = [row[0] for row in table["rows"]]
        rows += [
            row for row in dict.fromkeys(samples.columns.get_level_values(0)) if row not in rows
        ]
        lines = []
        for row in rows:
            for column in table["columns"]:
                cell = printed.get((row, column))
                if (row, column) not in samples.columns:
                    lines.append([row, column, cell, "not run", ""])
                    continue
                mean, low, high = papers.interval(samples[row, column])
                spread = f" [{low:.3f}, {high:.3f}]" if low > -float("inf") else " (1 seed)"
                difference = f"{mean - cell:+.3f}" if isinstance(cell, (int, float)) else ""
                lines.append([row, column, cell, f"{mean:.3f}{spread}", difference])
        header = ["", "value", "paper", "ours [95 % interval]", "difference"]
        self.table(name, pd.DataFrame(lines, columns=header))

    def summary(self, name: str, samples: pd.DataFrame, caption: str, digits: int = 3) -> None:
        """Mean and 95 % interval: `samples` has a row per seed and columns (row, column) of the table."""
        cells = pd.Series({key: spread(samples[key], digits) for key in samples}).unstack(
            sort=False
        )
        self.table(name, cells.rename_axis("").reset_index(), caption)

    def judge(
        self,
        measures: pd.DataFrame,
        untested: dict[str, str] | None = None,
        remarks: dict[str, str] | None = None,
    ) -> pd.DataFrame:
        """Every claim with its verdict; `verdicts.json` is written. A claim's remark goes wherever its verdict goes."""
        from IPython.display import Markdown, display

        stand_ins = [
            f"{name} for {facts['stand_in']}"
            for name, facts in self.data.items()
            if facts["stand_in"]
        ]
        self.verdicts = papers.judge(self.paper, measures, untested)
        for claim in self.verdicts:
            if claim["id"] in (remarks or {}):
                claim["why"] += f" ({(remarks or {})[claim['id']]})"
            if stand_ins:
                claim["why"] += f" (on stand-in data: {', '.join(stand_ins)})"
        content = {
            "paper": self.paper.key, "tier": self.p.tier, "seeds": self.p.seeds, "changed": self.p.changed,
            "data": sorted(self.data), "stand_in": stand_ins, "claims": self.verdicts,
        }  # fmt: skip
        self.json("verdicts.json", content)
        rows = [
            [c["id"], c["text"], c["where"], f"**{c['verdict']}**", c["why"]] for c in self.verdicts
        ]
        table = pd.DataFrame(rows, columns=["claim", "what", "where", "verdict", "why"])
        display(Markdown(markdown(table)))
        return table

    def costs(self) -> dict[str, Any]:
        """What the trials of this notebook cost: their own seconds, whether or not they were reused."""
        runs = self.runs.values()
        return {
            "trials": len(runs),
            "cpu_seconds": round(sum(run["seconds"] for run in runs), 1),
            "reused": sum(run["reused"] for run in runs),
        }

    def close(self) -> None:
        """Write `run.json`; fail if a table, figure or verdict of the paper was not made."""
        wanted = {
            n for n, e in (self.paper.figures | self.paper.tables).items() if not e.get("extra")
        }
        missing = sorted(wanted - self.made) + ([] if self.verdicts else ["verdicts"])
        ship = os.environ.get("FEDCLUST_SHIPPED") == "write"
        if ship:
            self.ship()
        told = ("label", "tags", "seed", "reused", "why", "seconds")
        about = {
            "paper": self.paper.key, "tier": self.p.tier, "seeds": self.p.seeds, "changed": self.p.changed,
            "parameters": self.p.values, "data": self.data, "made": sorted(self.made), "cost": self.costs(), **commit(),
            "versions": {name: version(name) for name in LIBRARIES}, "python": platform.python_version(),
            "host": {
                "processor": processor(), "instructions": torch.backends.cpu.get_cpu_capability(),
                "machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count(),
            },
            "time": pd.Timestamp.now(tz="UTC").isoformat(timespec="seconds"),
            "runs": [{name: run[name] for name in told} for run in self.runs.values()],
        }  # fmt: skip
        self.json("run.json", about)
        if missing:
            key = self.paper.key
            raise RuntimeError(
                f"{key}: {', '.join(missing)} not made, though papers/{key}.toml lists them"
            )

    def ship(self) -> None:
        """Put the records beside the figures, so that others can redraw them without training."""
        self.shipped.mkdir(exist_ok=True)
        wanted = {run["identity"][:20]: Path(run["path"]) for run in self.runs.values()}
        for name, record in wanted.items():
            for suffix in (".parquet", ".json"):
                content = record.with_suffix(suffix).read_bytes()
                write(
                    self.shipped / f"{name}{suffix}",
                    lambda path, content=content: path.write_bytes(content),
                )
        for old in self.shipped.iterdir():
            if old.stem not in wanted:
                old.unlink()

    def json(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1, default=str, ensure_ascii=False) + "\n"
        write(self.folder / name, lambda path: path.write_text(text, encoding="utf-8"))


def spread(samples: pd.Series, digits: int = 3) -> str:
    """Mean over seeds with its 95 % interval."""
    mean, low, high = papers.interval(samples)
    if mean != mean:
        return ""
    exact = low == -float("inf")  # one seed has no interval
    return f"{mean:.{digits}f}" + (
        " (1 seed)" if exact else f" [{low:.{digits}f}, {high:.{digits}f}]"
    )


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table; numbers as they are, floats to three places."""

    def cell(value: Any) -> str:
        text = (
            ""
            if value is None or value != value
            else f"{value:.3f}"
            if isinstance(value, float)
            else str(value)
        )
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [
        list(map(str, frame.columns)),
        ["---"] * frame.shape[1],
        *frame.to_numpy(dtype=object).tolist(),
    ]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def processor() -> str:
    """Its name: each kind rounds in its own way, so close verdicts may differ."""
    with suppress(OSError):  # not Linux
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> dict[str, Any]:
    """The code's commit, and whether anything was changed since."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *words], cwd=root(), capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    changes = git("status", "--porcelain", "--", "fedclust", "papers", "replications/*.py")
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changes)}
