"""Records that are shipped: those of a paper and tier in one Parquet file, their facts in a JSON.

A trial is found there by its identity, whatever has changed since. Only whole files count: the JSON
has its own checksum, and the hash of the Parquet file.
"""

import hashlib
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedclust.experiments.cache import note, noted
from fedclust.paths import write

NAMES = ("records.parquet", "records.json")
KEPT = ("seed", "task", "settings", "seconds", "depends")  # of a trial's facts
HOW: Any = {"compression": "zstd", "compression_level": 15}
Facts = dict[str, Any]


def facts(folder: Path) -> dict[str, Facts]:
    """What is known of each record in the folder, by identity; nothing if a file is damaged."""
    record, facts_file = (folder / name for name in NAMES)
    found = noted(facts_file)
    with suppress(OSError):
        if found and hashlib.sha256(record.read_bytes()).hexdigest() == found["sha256"]:
            about = {"path": str(record), "sha256": found["sha256"], "reused": True}
            about["why"] = "shipped record"
            return {
                identity: {**each, **about, "depends": found["depends"][each["depends"]]}
                for identity, each in found["trials"].items()
            }
    return {}


def intact(folder: Path) -> dict[str, Facts]:
    """The same; damaged files are an error, so that nobody trains or overwrites what they hold."""
    found = facts(folder)
    if not found and any((folder / name).exists() for name in NAMES):
        raise ValueError(f"{folder / NAMES[1]} or its other file is damaged: `git restore` both")
    return found


def read(about: Facts) -> pd.DataFrame:
    """A record: from a file of its own, or its rows of a file with many."""
    if "rows" not in about:
        return pd.read_parquet(about["path"])
    first, count = about["rows"]
    part = table(about["path"], about["sha256"]).slice(first, count)
    return part.select([*about["columns"]]).to_pandas().astype(about["columns"])


@cache
def table(path: str, sha256: str) -> pa.Table:
    return pq.read_table(path)


def ship(folder: Path, found: Iterable[tuple[str, Facts]], unread: Collection[str] = ()) -> None:
    """Put records into the folder in place of those that are there, without unread metrics."""
    parts, trials, depends, start = [], {}, [], 0
    for identity, about in sorted(found, key=lambda pair: pair[0]):
        record = read(about)
        record = record[~record["metric"].isin(unread)].reset_index(drop=True)
        record.attrs = {}
        texts = [name for name in record if not pd.api.types.is_numeric_dtype(record[name])]
        record = record.astype(dict.fromkeys(texts, str))
        part = pa.Table.from_pandas(record).replace_schema_metadata()
        if about["depends"] not in depends:
            depends.append(about["depends"])
        each = {name: about.get(name) for name in KEPT}
        each |= {
            "seed": int(record["seed"].to_numpy()[0]),
            "depends": depends.index(about["depends"]),
        }
        kinds = {name: str(kind) for name, kind in record.dtypes.items()}
        trials[identity] = each | {"rows": [start, len(record)], "columns": kinds}
        parts.append(part)
        start += len(record)
    whole = pa.concat_tables(parts, promote_options="permissive")
    file, facts_file = (folder / name for name in NAMES)
    folder.mkdir(parents=True, exist_ok=True)
    write(file, lambda aside: pq.write_table(whole, aside, **HOW))
    content: Facts = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    content |= {"depends": depends, "trials": trials}
    note(facts_file, content)
