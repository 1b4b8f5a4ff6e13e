"""Replications: clean pairs in step, whole at the smoke tier, and without what varies."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from fedclust import cli
from fedclust.paths import root
from fedclust.report import measuring, notebooks, papers, site
from fedclust.report.expressions import parse
from fedclust.report.verdicts import VERDICTS
from tests.report.test_site import left_over

ROOT, KEYS = root(), notebooks.keys()
CODE_LINES = 230
SMOKE = ("--tier", "smoke", "--jobs", "1")
MINE = """from fedclust.algorithms import FedAvg


class Same(FedAvg):
    pass
"""


@pytest.fixture
def replicate(tmp_path, monkeypatch, capsys):
    """`fedclust replicate` on a project of its own: its exit code, and its errors."""
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))

    def run(*words):
        ended = cli.main(["replicate", *words, "--tier", "smoke"])
        return ended, capsys.readouterr().err

    return run


def code(key):
    return [cell for cell in notebooks.read(key).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("key", KEYS)
def test_the_clean_pair_is_in_step_with_its_source(key):
    pair = root() / "replications" / f"{key}.ipynb"
    assert pair.read_text(encoding="utf-8") == notebooks.text(notebooks.read(key)), (
        "run: make notebooks"
    )
    notebook = nbformat.read(pair, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.parametrize("key", KEYS[:2])
def test_jupytext_writes_the_same_bytes_as_make_notebooks(tmp_path, key):
    """JupyterLab's extension reads jupytext.toml, and writes both files of a pair."""
    (tmp_path / "replications").mkdir()
    shutil.copy(root() / "jupytext.toml", tmp_path)
    names = f"replications/{key}.py", f"replications/{key}.ipynb"
    for name in names:
        shutil.copy(root() / name, tmp_path / name)
    sync = [sys.executable, "-m", "jupytext", "--sync", str(tmp_path / names[1])]
    subprocess.run(sync, check=True, capture_output=True)
    for name in names:
        assert (tmp_path / name).read_bytes() == (root() / name).read_bytes(), name


def test_what_jupyterlab_saves_is_the_clean_pair():
    path = root() / "replications" / "dcfl.ipynb"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["metadata"]["language_info"]["version"] = "3.12.1"
    for cell in content["cells"]:
        cell["source"] = "".join(cell["source"])
        cell["metadata"]["editable"] = True
        if cell["cell_type"] == "code":
            cell |= {"execution_count": 7, "outputs": [{"output_type": "stream", "text": "hello"}]}
    model = {"type": "notebook", "content": content}
    notebooks.before_saving(model, path="replications/dcfl.ipynb")
    assert notebooks.text(model["content"]) == path.read_text(encoding="utf-8")
    elsewhere = {"type": "notebook", "content": {"cells": "of somebody else"}}
    notebooks.before_saving(elsewhere, path="mine/dcfl.ipynb")
    assert elsewhere["content"] == {"cells": "of somebody else"}


@pytest.mark.parametrize("key", KEYS)
def test_a_notebook_is_short_and_its_parameters_are_literals(key):
    lines = [line.strip() for cell in code(key) for line in cell.source.splitlines()]
    told = ("#", 'measures["')  # a list of what is measured, one line each
    assert sum(bool(line) and not line.startswith(told) for line in lines) <= CODE_LINES
    first = code(key)[0]
    assert first.metadata.tags == ["parameters"]
    given = {}
    for statement in ast.parse(first.source).body:
        assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        given[statement.targets[0].id] = ast.literal_eval(statement.value)
    settings = papers.load(key).settings
    changeable = {name for name, setting in settings.items() if setting.get("parameter")}
    assert given["tier"] == "quick" and given.keys() <= changeable | {"seeds"} | papers.RUN.keys()


READABLE = KEYS
LONGEST = 25  # lines of a cell


@pytest.mark.parametrize("key", READABLE)
def test_a_notebook_can_be_read_line_by_line(key):
    for cell in code(key):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert sum(not line.strip().startswith("#") for line in lines) <= LONGEST, lines[0]
        for node in ast.walk(ast.parse(cell.source)):
            chained = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
            assert not chained or not isinstance(node.left, ast.Dict), ast.unparse(node)
            comprehension = isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp))
            assert not comprehension or len(node.generators) <= 2, ast.unparse(node)


@pytest.mark.parametrize("key", READABLE)
def test_every_name_in_a_claim_is_in_the_notebook_in_a_line_of_its_own(key):
    paper, source = papers.load(key), "\n".join(cell.source for cell in code(key))
    entries = [test for claim in paper.claims.values() for test in claim["test"]]
    asked = [entry["expr"] for entry in [*entries, *paper.controls.values()]]
    names = {name for expr in asked for name in parse(expr)} - ELSEWHERE
    lines = [line.partition(" = ")[0] for line in source.splitlines() if " = " in line]
    assert not {name for name in names if lines.count(f'measures["{name}"]') != 1}


ELSEWHERE = {"cafa_gain_extreme"}  # of a claim that is not tested


def check_output(project, key, tier="smoke"):
    """Every table and figure the paper's file lists is there, whole, and every claim is judged."""
    paper, folder = papers.load(key), project / "figures" / tier / key
    for name, entry in paper.figures.items():
        if not entry.get("extra"):
            assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
            assert b"</svg>" in (folder / f"{name}.svg").read_bytes()
    for name, entry in paper.tables.items():
        if not entry.get("extra"):
            assert len((folder / f"{name}.csv").read_text().splitlines()) > 1
            said = (folder / f"{name}.md").read_text()
            assert (f"papers/{key}.toml" if entry.get("kind") == "static" else tier) in said
    if paper.claims:
        verdicts = json.loads((folder / "verdicts.json").read_text())
        assert [claim["id"] for claim in verdicts["claims"]] == list(paper.claims)
        assert {claim["verdict"] for claim in verdicts["claims"]} <= {*VERDICTS}
        assert all(claim["why"] for claim in verdicts["claims"])
    assert json.loads((folder / "run.json").read_text())["tier"] == tier
    executed = project / "replications" / "executed" / tier / f"{key}.ipynb"
    notebook = nbformat.read(executed, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not left_over(site.converted(executed))
    text = executed.read_text()
    assert str(project) not in text and "at 0x7" not in text and '"stderr"' not in text


@pytest.mark.parametrize("key", KEYS)
def test_smoke_makes_every_table_and_figure(key, tmp_path, replicate):
    (tmp_path / "papers").symlink_to(ROOT / "papers")
    (tmp_path / "replications").mkdir()
    shutil.copy(ROOT / "replications" / f"{key}.py", tmp_path / "replications")
    ended, said = replicate(key, "--jobs", "1", "--backend", "sequential")
    assert ended == 0, said
    check_output(tmp_path, key)
    if key == papers.COMPARISON:
        a_row_of_ones_own(tmp_path)
    else:
        same_without_figures(key, tmp_path / "figures" / "smoke" / key / "measures.csv")


def same_without_figures(key, made):
    """What `fedclust readings` measures, under our reading, is what the notebook has measured."""
    paper, whole = papers.load(key), pd.read_csv(made, index_col="seed")
    how = {"tier": "smoke", "jobs": 1, "backend": "sequential"}
    asked = {name: paper.multiverse.get(name, []) for name in ("plans", "without")}
    p = papers.Parameters(paper.at("smoke") | how)
    found = measuring.measures(paper, p, measuring.Sweeper(**asked, seeds=p.seeds)).loc[p.seeds]
    assert len(found.columns) > 10
    pd.testing.assert_frame_equal(
        found.astype(float), whole.loc[p.seeds, found.columns].astype(float)
    )


def a_row_of_ones_own(project):
    """A method in a file beside the project gets a row; everything else is what was there."""
    (project / "mine.py").write_text(MINE)
    folder = project / "figures" / "smoke" / "compare"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "fedclust.cli", "compare", "--method", "mine.Same", *SMOKE],
        env=os.environ | {"FEDCLUST_ROOT": str(project), "OMP_NUM_THREADS": "1"},
        cwd=project,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    (made,) = project.glob("build/figures/changed-*/smoke/compare/run.json")
    assert {run["label"] for run in json.loads(made.read_text())["runs"]} == {"mine.Same"}
    scores = pd.read_csv(made.parent / "scores.csv").set_index("method")
    ours = scores.loc["mine.Same"].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, scores.loc["FedAvg"].reset_index(drop=True))
    assert (
        "mine.Same: share of the gap" in done.stdout and "| 4 class groups (glyphs)" in done.stdout
    )


def test_a_paper_from_the_template_runs_repeats_and_refuses(tmp_path, replicate):
    """`make new-paper`, then the whole way: fresh, again from the cache, from nothing, wrongly."""
    shutil.copytree(ROOT / "papers" / "template", tmp_path / "papers" / "template")
    (tmp_path / "replications").mkdir()
    make = ["make", "-f", str(ROOT / "Makefile"), "new-paper"]
    assert subprocess.run([*make, "KEY=../x"], cwd=tmp_path, capture_output=True).returncode == 2
    subprocess.run([*make, "KEY=toy"], cwd=tmp_path, check=True, capture_output=True)
    assert (
        subprocess.run([*make, "KEY=toy"], cwd=tmp_path, capture_output=True).returncode == 2
    )  # never overwritten

    def run(*words):
        ended, said = replicate("toy", *words)
        made = [
            p
            for p in tmp_path.rglob("*")
            if p.is_file() and p.suffix in (".svg", ".png", ".csv", ".md", ".ipynb")
        ]
        made += tmp_path.glob("figures/**/verdicts.json")
        return ended, said, {path: path.read_bytes() for path in made}

    def reused():
        about = json.loads((tmp_path / "figures" / "smoke" / "toy" / "run.json").read_text())
        return about["cost"]["reused"]

    here = "--jobs", "1", "--backend", "sequential"
    ended, said, first = run("--jobs", "2")
    assert ended == 0, said
    check_output(tmp_path, "toy")
    *_, again = run(*here)
    assert reused() == 6 and again == first
    shutil.rmtree(tmp_path / ".fedclust")
    *_, anew = run(*here)
    assert reused() == 0 and anew == first
    ended, said, after = run(*here, "-p", "rounds", "3")  # by its line in the paper's file alone
    assert ended == 0, said
    assert {k: after[k] for k in first} == first
    assert list(tmp_path.glob("build/figures/changed-*/smoke/toy/verdicts.json"))
    assert list(tmp_path.glob("build/executed/changed-*/smoke/toy.ipynb"))
    for words, message in (
        (("-p", "rounds", "0"), "rounds = 0: must be at least 1"),
        (("-p", "clients", "5"), "clients is a setting but no parameter: add parameter = true"),
        (("--seeds", "0"), "seeds = 0: must be a number from 1"),
    ):
        ended, said, after = run(*words)
        assert ended == 2 and message in said
        assert {k: after[k] for k in first} == first


def test_tidy_takes_out_what_varies():
    stream = {"output_type": "stream", "name": "stdout"}
    cell = nbformat.v4.new_code_cell(
        "f()",
        metadata={
            "tags": ["x"],
            "papermill": {"duration": 1.5},
            "execution": {"iopub.status.busy": "2024"},
        },
        outputs=[
            nbformat.from_dict({**stream, "text": "a"}),
            nbformat.from_dict({**stream, "name": "stderr", "text": "warning"}),
            nbformat.from_dict({**stream, "text": "b\n"}),
            nbformat.v4.new_output(
                "display_data", {"text/plain": f"<T at 0x7f12> {root()}{os.sep}papers"}
            ),
        ],
    )
    injected = {"metadata": {"tags": ["injected-parameters"]}}
    given = [
        nbformat.v4.new_code_cell('tier = "smoke"\njobs = 4\nbackend = "loky"\nlr = 1', **injected)
        for _ in "ab"
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[cell, *given], metadata={"papermill": {"version": "2"}}
    )
    tidy = notebooks.tidy(notebook)
    assert "papermill" not in notebooks.text(tidy) and tidy.cells[0].metadata == {"tags": ["x"]}
    assert [o.get("text") for o in tidy.cells[0].outputs] == ["ab\n", None]
    assert tidy.cells[0].outputs[1].data["text/plain"] == "<T at 0x0> papers"
    assert tidy.cells[1].source == 'tier = "smoke"\nlr = 1'
    assert len({cell.id for cell in tidy.cells}) == 3
    before = notebooks.text(tidy)
    assert notebooks.text(notebooks.tidy(tidy)) == before
    nbformat.validate(tidy)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A project with one notebook that uses no fedclust."""
    (tmp_path / "replications").mkdir()
    monkeypatch.setenv("FEDCLUST_ROOT", str(tmp_path))

    def write(body):
        head = '# %% tags=["parameters"]\ntier = "quick"\n\n# %%\n'
        (tmp_path / "replications" / "m.py").write_text(head + body)
        return tmp_path / "out"

    return write


def test_execute_uses_this_interpreter_says_warnings_and_keeps_the_last_good_notebook(
    small, monkeypatch
):
    monkeypatch.setenv("JUPYTER_PATH", "/nowhere")
    said = []
    out = small(
        "import os, pathlib, sys, time\n"
        "print(sys.executable, tier, pathlib.Path.cwd())\n"
        "print('w', file=sys.stderr)\n"
        "pathlib.Path(os.environ['FEDCLUST_PROGRESS']).write_text('trial 1/2\\n')\n"
        "time.sleep(1.5)"
    )
    made = notebooks.execute("m", {"tier": "smoke"}, out, said.append)
    text = nbformat.read(made, as_version=4).cells[-1].outputs[0].text
    assert text.split() == [
        sys.executable,
        "smoke",
        str(Path(os.environ["FEDCLUST_ROOT"]).resolve()),
    ]
    assert said == ["trial 1/2", "w"]
    assert os.environ["JUPYTER_PATH"] == "/nowhere" and "FEDCLUST_PROGRESS" not in os.environ
    before = made.read_bytes()
    small("raise ValueError('\\n'.join(map(str, range(100))))")
    with pytest.raises(notebooks.NotebookFailed, match=r"cell \[3\]: ValueError: 0\n1\n") as caught:
        notebooks.execute("m", {"tier": "smoke"}, out, said.append)
    assert "[...]" in str(caught.value) and len(str(caught.value).splitlines()) < 25
    assert made.read_bytes() == before
    failed = out.parent / "build" / "failed" / out.name / "m.failed.ipynb"
    assert "ValueError" in failed.read_text()
    small("1")
    notebooks.execute("m", {}, out, said.append)
    assert sorted(path.name for path in out.iterdir()) == ["m.ipynb"]
    assert not failed.exists()
    small("import os, pathlib\npathlib.Path(os.environ['FEDCLUST_LABEL']).write_text('changed-x')")
    before = made.read_bytes()
    other = notebooks.execute("m", {}, out, said.append)
    assert other == out.parent / "build" / "executed" / "changed-x" / out.name / "m.ipynb"
    assert made.read_bytes() == before


def test_an_unknown_key_names_those_there_are(small):
    small("1")
    with pytest.raises(FileNotFoundError, match=r"'n'.*m"):
        notebooks.read("n")


def test_what_killed_runs_left_in_the_folder_for_temporary_files_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [f"fedclust-{gone.pid}-x", f"fedclust-{os.getpid()}-x", "fedclust-other-x", "else"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "given.ipynb").write_text("left")
    notebooks.tidy_scratch()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
