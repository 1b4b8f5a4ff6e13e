"""What others need to find and check the results: codecheck.yml and an RO-Crate of the records.

codecheck.yml lists every table and figure (codecheck.org.uk). ro-crate-metadata.json describes the
shipped records: their files with size and hash, their columns with units (RO-Crate 1.1).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fedclust.paths import root, write
from fedclust.report import papers, scoreboard

COLUMNS = {  # of a record: what it is, its unit
    "algorithm": ("the method, or the label of the run", ""),
    "seed": ("of split, initial model and batches", ""),
    "round": ("communication round or iteration, from 0", "rounds"),
    "client": ("-1 in rows of the server", ""),
    "group": ("the client's true group, for scores only", ""),
    "cluster": ("the client's cluster", ""),
    "metric": ("what the row has the value of", ""),
    "value": (
        "accuracy, purity, ARI and NMI from 0 to 1; loss in nats; counts; bytes",
        "see metric",
    ),
}
LICENCE = "https://spdx.org/licenses/MIT"


def publish(base: Path | None = None) -> list[Path]:
    """Write codecheck.yml and ro-crate-metadata.json."""
    base = base or root()
    made = {
        base / "codecheck.yml": codecheck(base),
        base / "ro-crate-metadata.json": json.dumps(crate(base), indent=1, ensure_ascii=False)
        + "\n",
    }
    for path, text in made.items():
        write(path, text)
    return list(made)


def codecheck(base: Path) -> str:
    """Every table and figure of tier paper with its caption, as codecheck.yml has it."""
    lines = ["---", "version: https://codecheck.org.uk/spec/config/1.0/", "manifest:"]
    for found in scoreboard.verdicts(base, "paper"):
        key = found["paper"]
        paper = papers.load(key, base / "papers" / f"{key}.toml")
        for suffix, entries in ((".svg", paper.figures), (".csv", paper.tables)):
            for name, entry in entries.items():
                file = f"figures/paper/{key}/{name}{suffix}"
                file = file if (base / file).exists() else file.replace(".svg", ".csv")
                if (base / file).exists():
                    caption = json.dumps(f"{key} {name}: {entry['caption']}", ensure_ascii=False)
                    lines += [f"  - file: {file}", f"    comment: {caption}"]
    lines += ["summary: make test; make figures TIER=paper redraws all of them without training"]
    return "\n".join(lines) + "\n"


def crate(base: Path) -> dict[str, Any]:
    """The shipped records as an RO-Crate."""
    files = sorted(base.glob("figures/*/*/records*.parquet"))
    about = {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"}}
    about["conformsTo"] = {"@id": "https://w3id.org/ro/crate/1.1"}
    whole: dict[str, Any] = {"@id": "./", "@type": "Dataset", "license": {"@id": LICENCE}}
    whole["name"] = "fedclust: records of five replications of clustered federated learning"
    whole["description"] = "Every measurement of the shipped runs, a row each; trials in the JSON."
    whole["hasPart"] = [{"@id": path.relative_to(base).as_posix()} for path in files]
    whole["variableMeasured"] = [{"@id": f"#{name}"} for name in COLUMNS]
    graph = [about, whole, *(described(base, path) for path in files)]
    for name, (said, unit) in COLUMNS.items():
        entry = {"@id": f"#{name}", "@type": "PropertyValue", "name": name, "description": said}
        graph.append(entry | ({"unitText": unit} if unit else {}))
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def described(base: Path, path: Path) -> dict[str, Any]:
    """A file of records."""
    key, tier = path.parent.name, path.parent.parent.name
    about = papers.load(key, base / "papers" / f"{key}.toml").about
    content = path.read_bytes()
    return {
        "@id": path.relative_to(base).as_posix(),
        "@type": "File",
        "name": f"{key} at tier {tier}: {about['title']}",
        "encodingFormat": "application/vnd.apache.parquet",
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
