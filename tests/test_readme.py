"""The README is true: its commands exist, its code runs, its scoreboard follows the verdicts."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fedclust as fc
from fedclust import cli
from fedclust.report import multiverse, papers, scoreboard
from fedclust.report.verdicts import RULE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line.strip()
]
RUFF = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120"]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M)) | set(papers.keys()) | {"mypaper"}
    asked = [word for line in SHELL for word in shlex.split(line) if "make" in line]
    named = {word for word in asked if re.fullmatch(r"[a-z][a-z-]*", word)} - {"make"}
    assert named and named <= targets


@pytest.mark.parametrize("key", ["site", "test", "all", "template", "dcfl", "My-Paper"])
def test_a_new_paper_gets_a_name_of_its_own(key):
    done = subprocess.run(
        ["make", "new-paper", f"KEY={key}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert key == "dcfl" or not (ROOT / "papers" / f"{key}.md").exists()


def test_every_fedclust_command_parses():
    commands = [shlex.split(line)[1:] for line in SHELL if line.startswith(".venv/bin/fedclust")]
    assert commands
    for words in commands:
        assert callable(cli.parser().parse_args(words).run)


def test_papermill_parameters_are_parameters():
    line = next(line for line in SHELL if "papermill" in line)
    notebook, names = (
        re.search(r"replications/(\w+)\.ipynb", line)[1],
        re.findall(r"-p (\w+)", line),
    )
    allowed = (
        {n for n, s in papers.load(notebook).settings.items() if s.get("parameter")}
        | {"seeds"}
        | papers.RUN.keys()
    )
    assert set(names) <= allowed
    target = Path(shlex.split(line)[2])
    assert (
        f"mkdir -p {target.parent}" in SHELL[: SHELL.index(line)]
    )  # papermill makes no folders, a new clone has none


@pytest.mark.parametrize("code", PYTHON)
def test_python_examples_run(code, tmp_path, monkeypatch, capsys):
    real = fc.datasets.load
    monkeypatch.setattr(
        fc.datasets, "load", lambda name, **kw: real("glyphs", **({"n": 2000, "n_test": 500} | kw))
    )
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))
    done = subprocess.run([*RUFF, "-"], input=code, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
    mine = next(block for block in PYTHON if block.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(mine)
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(code, namespace)
    if "wide" in namespace:
        assert len(mine.splitlines()) + len(code.splitlines()) < 20
    elif "own" in namespace:
        assert re.search(r"FedAvg +1 +4 +0\.[3-9]", capsys.readouterr().out, re.M)
    elif "Median" in namespace:
        data = fc.datasets.load("mnist")
        fed = fc.partition.iid(data, 4, seed=0)
        model = fc.models.mlp(data.shape, len(data.classes), hidden=(16,))
        record = fc.run(
            namespace["Median"](fc.LocalSGD(model, lr=0.1)), fed, model, rounds=3, seed=0
        )
        loss = record[record.metric == "loss"].groupby("round").value.mean()
        assert loss.iloc[-1] < loss.iloc[0]
    else:
        fedavg, dcfl = capsys.readouterr().out.split("Name: value")[:2]
        assert re.search(r"ari +0\.0", fedavg) and re.search(r"ari +1\.0", dcfl)


def test_scoreboard_is_what_the_verdicts_say():
    rows = scoreboard.rows(ROOT)
    assert json.dumps(scoreboard.shipped(ROOT)) == json.dumps(rows)
    assert scoreboard.board(rows) in README and RULE in README
    found = json.loads((ROOT / "figures" / "scoreboard.json").read_text(encoding="utf-8"))
    assert found["findings"] == scoreboard.findings(ROOT)
    for key, said in found["findings"].items():
        assert f"- {said} {multiverse.sentence(key, ROOT)}".rstrip() + "\n" in README


def test_the_readme_is_short():
    assert len(README.splitlines()) < 200


def test_rows_of_the_scoreboard_are_the_papers_claims():
    rows = scoreboard.rows(ROOT)
    page = (ROOT / "figures" / "scoreboard.md").read_text(encoding="utf-8")
    assert scoreboard.claims(rows) in page
    assert {(row["paper"], row["id"]) for row in rows} == {
        (key, claim)
        for key in papers.keys()  # noqa: SIM118
        for claim in papers.load(key).claims
    }


def test_reading_notes_number_their_deviations():
    for key in papers.keys():  # noqa: SIM118
        notes = (ROOT / "papers" / f"{key}.md").read_text(encoding="utf-8")
        numbers = [int(n) for n in re.findall(r"^(?:[-*#]+ )?\**D(\d+)\b", notes, re.M)]
        assert numbers == list(range(1, len(numbers) + 1)) and numbers, key


def test_nothing_of_this_machine_is_in_the_project():
    for pattern in ("fedclust/**/*.py", "papers/*.*", "replications/*.py", "README.md"):
        for path in ROOT.glob(pattern):
            assert not re.search(r"/work/|/root/|/home/\w", path.read_text(encoding="utf-8")), path
