"""codecheck.yml and the RO-Crate name what is there."""

import hashlib
import json

import pandas as pd

from fedclust.paths import root
from fedclust.report import metadata, papers


def test_every_table_and_figure_of_the_papers_is_listed():
    text = metadata.codecheck(root())
    files = [line.split()[-1] for line in text.splitlines() if line.startswith("  - file:")]
    assert all((root() / file).exists() for file in files) and len(set(files)) == len(files)
    for key in papers.keys():  # noqa: SIM118  a module
        paper = papers.load(key)
        for name, entry in (paper.figures | paper.tables).items():
            listed = any(file.startswith(f"figures/paper/{key}/{name}.") for file in files)
            assert listed or entry.get("extra") or entry.get("kind") == "static", name


def test_the_crate_has_every_record_with_its_hash_and_every_column_with_its_meaning():
    graph = {entry["@id"]: entry for entry in metadata.crate(root())["@graph"]}
    for part in graph["./"]["hasPart"]:
        content = (root() / part["@id"]).read_bytes()
        assert graph[part["@id"]]["sha256"] == hashlib.sha256(content).hexdigest()
        assert graph[part["@id"]]["contentSize"] == str(len(content))
    assert graph["./"]["hasPart"] and graph["#round"]["unitText"] == "rounds"
    columns = pd.read_parquet(root() / "figures/paper/fedac/records.parquet").columns
    assert {*columns} <= {*metadata.COLUMNS}


def test_what_is_shipped_was_written_by_the_program():
    files = json.loads((root() / "ro-crate-metadata.json").read_text(encoding="utf-8"))
    ids = {entry["@id"] for entry in files["@graph"]}
    assert {entry["@id"] for entry in metadata.crate(root())["@graph"]} == ids
    assert (root() / "codecheck.yml").read_text(encoding="utf-8") == metadata.codecheck(root())
