"""A notebook's output: figures, tables, verdicts, and the record of the run."""

import json
import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedclust import fast
from fedclust.experiments import Trial, build, own, sweeps
from fedclust.experiments import shipped as shelf
from fedclust.experiments.cache import LIBRARIES
from fedclust.experiments.sweeps import BACKENDS
from fedclust.paths import digest, figures, root, writable, write
from fedclust.report import (
    findings,
    markup,
    multiverse,
    papers,
    plots,
    settling,
    tables,
    verdicts,
    words,
)
from fedclust.report.papers import Paper, Parameters
from fedclust.report.plainly import PLAIN

LONGEST = 48  # letters of a folder's name that say what was changed
TOLD = ("label", "tags", "seed", "reused", "why", "seconds")  # of each run, in `run.json`


class Report:
    """Collects what a notebook makes; `close` writes it if nothing that the paper shows is missing.

    Only a tier's own run writes into the tier's folder. With changed parameters, with other seeds
    than the tier's, or on stand-in data the results go to `build/`.
    """

    def __init__(self, paper: Paper, p: Parameters):
        self.paper, self.p = paper, p
        if p.backend not in BACKENDS:
            allowed = ", ".join(BACKENDS)
            raise papers.PaperError(f"parameter backend = {p.backend!r}: allowed are {allowed}")
        self.files: dict[str, bytes] = {}  # written when all are there
        self.made: dict[str, str] = {}  # captions by name
        self.first = ""  # the figure that opens the notebook
        self.findings: list[str] = []
        self.seeds: list[int] = p.seeds  # of what comes next, for the footers
        self.data: dict[str, dict[str, Any]] = {}
        self.rounds: set[int] = set()  # of the trials so far
        self.runs: dict[str, dict[str, Any]] = {}  # by identity: a trial used twice counts once
        self.verdicts: list[dict[str, Any]] = []
        writable(self.folder, "set FEDCLUST_FIGURES")

    @property
    def stand_ins(self) -> list[str]:
        known = self.data.items()
        return [f"{name} for {facts['stand_in']}" for name, facts in known if facts["stand_in"]]

    @property
    def label(self) -> str:
        """Where other results than the tier's own go; empty for the tier's own."""
        differs: dict[str, Any] = dict(self.p.changed)
        if not {*self.paper.at(self.p.tier)["seeds"]} <= {*self.p.seeds}:  # more seeds are welcome
            differs["seeds"] = self.p.seeds
        if self.stand_ins:
            differs["stand-in"] = self.stand_ins
        if fast.plain():
            differs[PLAIN] = True
        if not differs or [*differs] == [PLAIN]:
            return PLAIN * bool(differs)
        said = "-".join(f"{name}-{papers.show(value)}" for name, value in sorted(differs.items()))
        said = re.sub(r"[^\w.=-]+", "_", said)
        return "changed-" + (
            said if len(said) <= LONGEST else f"{said[:LONGEST]}-{digest(said)[:8]}"
        )

    @property
    def planned(self) -> str:
        """How many of the planned seeds were run, if not all."""
        plan = self.paper.at(self.p.tier, planned=True).get("seeds", [])
        here, asked = len(self.p.seeds), len(plan)
        return f"{here} of {asked} planned seeds" if here < asked else ""

    @property
    def folder(self) -> Path:
        base = root() / "build" / "figures" / self.label if self.label else figures()
        return base / self.p.tier / self.paper.key

    # --- runs -------------------------------------------------------------------------------------

    def uses(self, settings: dict[str, Any]) -> None:
        """Data that something is made from; `sweep` does this for its trials."""
        if "data" in settings:
            data = build.dataset(settings)
            facts = ("source", "sha256", "stand_in")
            self.data[data.name] = {name: getattr(data, name) for name in facts}

    def sweep(self, trials: list[Trial]) -> pd.DataFrame:
        """The trials' records; `run.json` has the origin of each."""
        return self.sweeps({"": trials})[""]

    def sweeps(self, plans: dict[Any, list[Trial]]) -> dict[Any, pd.DataFrame]:
        """Several sweeps at once, so that no worker waits for another."""
        if mine := {part: self.p.changed[part] for part in papers.OWN if part in self.p.changed}:
            plans = {name: [own.with_parts(t, mine) for t in plan] for name, plan in plans.items()}
        trials = [trial for plan in plans.values() for trial in plan]
        for trial in trials:
            self.uses(trial.settings)
        self.rounds |= {trial.rounds for trial in trials if "rounds" in trial.settings}
        if os.environ.get(settling.SETTLE) == settling.ONLY_PLAN:
            raise settling.Planned(trials)
        how = os.environ.get("FEDCLUST_SHIPPED")
        kept = figures() / self.p.tier / self.paper.key
        shipped = kept if how in ("use", "settle") else None
        if how == "use":
            self.need(trials, kept)
        found = sweeps.run(trials, self.p.jobs, self.p.backend, shipped=shipped)
        records = {name: sweeps.gather(plan, found) for name, plan in plans.items()}
        for record in records.values():
            for run in record.attrs["runs"]:
                self.runs.setdefault(run["identity"], run)
        return records

    def need(self, trials: list[Trial], folder: Path) -> None:
        """An error if a trial's record is not shipped: drawing never trains."""
        if missing := settling.missing(trials, folder):
            names = ", ".join([*dict.fromkeys(trial.name for trial in missing)][:3])
            hours = settling.hours(self.paper, missing, trials)
            cost = f"{len(missing)} of {len(trials)} trials are not shipped ({names}, ...)"
            remedy = f"`fedclust settle {self.paper.key}` trains them, about {hours:.1f} hours"
            raise RuntimeError(f"{cost}: {remedy} of a processor")

    # --- figures and tables -----------------------------------------------------------------------

    def source(self, seeds: list[int] | None = None, data: str | None = None) -> str:
        """Tier, seeds, rounds, data: the line under every figure and table.

        `data` is the set that it shows, if not all that were used so far.
        """
        seeds = self.seeds if seeds is None else seeds
        known = sorted(self.data.items())
        shown = [(n, facts) for n, facts in known if data and data in (n, facts["stand_in"])]
        names = [
            f"{name} (STAND-IN for {facts['stand_in']})" if facts["stand_in"] else name
            for name, facts in shown or known
        ]
        parts = [self.paper.key, f"tier {self.p.tier}"]
        if seeds:
            missing = self.planned if seeds == self.p.seeds else ""
            parts.append(missing or words.span([len(seeds)], "seed"))
            if self.rounds:
                parts.append(words.span(self.rounds, "round"))
        parts.append(", ".join(names) or "no data")
        changed = sorted(self.p.changed.items())
        return " · ".join([*parts, *(f"{name} = {papers.show(value)}" for name, value in changed)])

    def caption(self, name: str, entries: papers.Entries, extra: str, own: str | None) -> str:
        """The caption of a figure or table: our own, or that in the paper's file.

        What is not in the paper has a name of its own, so that nobody takes it for the paper's.
        """
        if name not in entries and not name.startswith(extra):
            known = f"papers/{self.paper.key}.toml has {', '.join(entries)}"
            raise ValueError(f"{name!r}: {known}; what is not there is named {extra}-...")
        if own is None and name not in entries:
            raise ValueError(f"{name!r}: what is not in the paper needs its caption as an argument")
        return own or entries[name]["caption"]

    def figure(
        self,
        name: str,
        fig: Any,
        caption: str | None = None,
        seeds: list[int] | None = None,
        data: str | None = None,
    ) -> None:
        """Keep a figure as SVG and PNG with its `source`, and show it with its caption.

        `seeds` are those it shows, if not all of the notebook's: an empty list for none.
        """
        caption = self.caption(name, self.paper.figures, "fig-extra", caption)
        plots.footer(fig, self.source(seeds, data))
        made = plots.render(fig)
        self.files |= {f"{name}{suffix}": content for suffix, content in made.items()}
        self.made[name] = caption
        self.show_picture(name, name)
        show(f'<a id="{name}"></a>**{markup.named(name).capitalize()}.** {caption}', figure=name)
        self.room_for_claims(name)
        if name == self.first:
            self.show_picture(name, f"first {name}", update=True)

    def show_picture(self, name: str, place: str, update: bool = False) -> None:
        """The PNG of a figure; its alternative text states what the claims on it came to."""
        from IPython.display import Image, display

        png = self.files[f"{name}.png"]
        width = int.from_bytes(png[16:20], "big") * 3 // 4  # all figures at one scale
        said = [f"{markup.named(name).capitalize()}: {self.made[name]}"]
        said += [f"{c['id']} {words.shown(c)}: {c['short']}" for c in self.claims_on(name)]
        alt = "; ".join(re.sub(r"[*$`\\]", "", each).rstrip(".") for each in said)
        image = Image(data=png, format="png", width=width, alt=alt)
        display(image, display_id=place, update=update, metadata={"figure": name})

    def table(
        self,
        name: str,
        frame: pd.DataFrame,
        caption: str | None = None,
        source: str | None = None,
        shown: pd.DataFrame | None = None,
    ) -> None:
        """Keep a table as CSV and Markdown, and show it, or what is `shown` in its place."""
        caption = self.caption(name, self.paper.tables, "table-extra", caption)
        shown = frame if shown is None else shown
        title = f'<a id="{name}"></a>**{markup.named(name).capitalize()}.** {caption}'
        text = f"{title}\n\n{tables.markdown(shown)}\n\n*{source or self.source()}*\n"
        self.files[f"{name}.csv"] = frame.to_csv(index=False).encode()
        self.files[f"{name}.md"] = text.encode()
        self.made[name] = caption
        show(text)
        self.room_for_claims(name)

    def static(self, name: str) -> None:
        """A table of the paper's file: no run of this tier made it."""
        table, file = self.paper.tables[name], f"papers/{self.paper.key}.toml"
        frame = pd.DataFrame(table["rows"], columns=["", *table["columns"]])
        self.table(name, frame, source=f"{self.paper.key} · {file}")

    def compare(self, name: str, samples: pd.DataFrame) -> None:
        """A table of the paper with our numbers, in its layout; a line per cell in the CSV."""
        compared = tables.comparison(self.paper, name, samples)
        self.table(name, compared, shown=tables.as_printed(compared))

    def summary(
        self,
        name: str,
        samples: pd.DataFrame,
        caption: str,
        digits: int | None = None,
        bounded: bool = False,
    ) -> None:
        """A table of our own: means with intervals (see `tables.summary`)."""
        self.table(name, tables.summary(samples, digits, bounded), caption)

    # --- verdicts ---------------------------------------------------------------------------------

    def opening(self, first: str) -> None:
        """Room for the result and for the figure that shows it; both come with the verdicts."""
        self.first = first
        show(markup.PENDING, place="result")
        show(markup.PENDING, place=f"first {first}")

    def settings(self) -> None:
        """What was run and what the paper says, folded."""
        table = self.paper.settings_table(self.p.tier, self.p.values.get("device", "cpu"))
        same = int((table.iloc[:, 2] == "the same").sum())
        said = f"{len(table)} settings and where each is from; {same} have the paper's size here"
        show(markup.folded(said, tables.markdown(table)))

    def notes(self, heading: str) -> None:
        """A section of papers/<key>.md."""
        text = (root() / "papers" / f"{self.paper.key}.md").read_text(encoding="utf-8")
        found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
        if not found:
            raise ValueError(f"papers/{self.paper.key}.md has no section {heading!r}")
        show(f"## {heading}\n{found[1]}".strip())

    def claims_on(self, name: str) -> list[dict[str, Any]]:
        return [claim for claim in self.verdicts if name in claim["figure"]]

    def room_for_claims(self, name: str) -> None:
        """A place below a figure or table for the verdicts of the claims that it shows."""
        if any(name in claim["figure"] for claim in self.paper.claims.values()):
            show(markup.PENDING, place=f"claims {name}")

    def judge(
        self,
        measures: pd.DataFrame,
        untested: dict[str, str] | None = None,
        remarks: dict[str, str] | None = None,
    ) -> None:
        """Every claim with its verdict, here and at what shows it, and each with its remark."""
        self.verdicts = verdicts.judge(self.paper, measures, untested)
        self.files["measures.csv"] = measures.rename_axis("seed").to_csv().encode()
        for claim in self.verdicts:
            said = [(remarks or {}).get(claim["id"], "")]
            said += [f"on stand-in data: {', '.join(self.stand_ins)}"] * bool(self.stand_ins)
            said += [self.planned] * bool(claim["tests"])
            claim["remark"] = "; ".join(filter(None, said))
            claim["because"] = self.because(claim, measures)
        found = self.paper.findings.values()
        self.findings = [findings.filled(f["text"], measures, self.verdicts) for f in found]
        content = {
            **self.facts(),
            "data": sorted(self.data),
            "stand_in": self.stand_ins,
            "findings": self.findings,
            "claims": self.verdicts,
        }
        self.files["verdicts.json"] = as_json(content)
        names = {name: markup.named(name) for name in self.made}
        show(markup.cards(self.verdicts, names, self.paper.about.get("excluded", "")))
        seeds = papers.show(self.p.seeds)
        seeds += f" ({self.planned})" * bool(self.planned)
        about = f"Tier {self.p.tier}, seeds {seeds}, {', '.join(sorted(self.data)) or 'no data'}."
        shown = {claim["id"]: words.shown(claim) for claim in self.verdicts}
        other = []
        if self.p.tier != "smoke":
            other = multiverse.disagreements(self.paper.key, shown)
            about += multiverse.drawn(self.paper.key)
        box = markup.box(about, "".join(self.findings[:1]), self.verdicts, other)
        show(box, place="result", update=True)
        for name in self.made:
            if claims := self.claims_on(name):
                text = "\n".join(f"- {markup.line(claim)}" for claim in claims)
                show(text, place=f"claims {name}", update=True)
                if f"{name}.png" in self.files:
                    self.show_picture(name, name, update=True)
        if f"{self.first}.png" in self.files:
            self.show_picture(self.first, f"first {self.first}", update=True)

    def because(self, claim: dict[str, Any], measures: pd.DataFrame) -> str:
        """Why a claim does not hold as printed, and in how many other readings it does."""
        if not verdicts.doubtful(claim):
            return ""
        text = self.paper.claims[claim["id"]].get("because", "")
        tried = "" if self.p.tier == "smoke" else multiverse.tried(self.paper.key, claim["id"])
        filled = findings.filled(text, measures, self.verdicts)
        return " ".join(filter(None, [filled, tried]))

    def learned(self) -> None:
        """The findings of the paper's file, with this run's numbers."""
        show("## What we learned\n\n" + "\n".join(f"- {finding}" for finding in self.findings))

    # --- the end ----------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        p = self.p
        return {"paper": self.paper.key, "tier": p.tier, "seeds": p.seeds, "changed": p.changed}

    def costs(self) -> dict[str, Any]:
        """What the trials cost: their own seconds, whether or not they were reused."""
        runs = self.runs.values()
        seconds = round(sum(run["seconds"] for run in runs), 1)
        reused = sum(run["reused"] for run in runs)
        return {"trials": len(runs), "cpu_seconds": seconds, "reused": reused}

    def close(self) -> None:
        """Write everything, if no table, figure or verdict of the paper is missing."""
        listed = self.paper.figures | self.paper.tables
        wanted = {name for name, entry in listed.items() if not entry.get("extra")}
        missing = sorted(wanted - self.made.keys())
        missing += ["verdicts"] * (bool(self.paper.claims) and not self.verdicts)
        if missing:
            listing = f"papers/{self.paper.key}.toml lists {', '.join(missing)}"
            raise RuntimeError(f"{listing}, but this notebook does not make it")
        about = {
            **self.facts(),
            "parameters": self.p.values,
            "data": self.data,
            "made": sorted(self.made),
            "cost": self.costs(),
            **commit(),
            **machine(),
            "time": pd.Timestamp.now(tz="UTC").isoformat(timespec="seconds"),
            "runs": [{name: run[name] for name in TOLD} for run in self.runs.values()],
        }
        self.files["run.json"] = as_json(about)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            write(self.folder / name, methodcaller("write_bytes", content))
        if os.environ.get("FEDCLUST_SHIPPED") in ("write", "settle"):
            shelf.ship(self.folder, self.runs.items(), self.paper.about.get("unread", ()))
        if told := os.environ.get("FEDCLUST_LABEL"):
            Path(told).write_text(self.label, encoding="utf-8")


def show(text: str, place: str | None = None, update: bool = False, **about: Any) -> None:
    """Markdown in the notebook; what has a `place` can be replaced later."""
    from IPython.display import Markdown, display

    display(Markdown(text), display_id=place, update=update, metadata=about or None)


def as_json(content: dict[str, Any]) -> bytes:
    return f"{json.dumps(content, indent=1, default=str, ensure_ascii=False)}\n".encode()


def machine() -> dict[str, Any]:
    """What the numbers were made with and on."""
    host = {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
    }
    versions = {name: version(name) for name in LIBRARIES}
    return {"versions": versions, "python": platform.python_version(), "host": host}


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
        how: Any = {"cwd": root(), "capture_output": True, "text": True, "timeout": 10}
        try:
            return subprocess.run(["git", *words], check=True, **how).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return None

    changes = git("status", "--porcelain", "--", "fedclust", "papers", "replications/*.py")
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changes)}
