"""Replications as notebooks: `replications/<key>.py` is the source of a clean `.ipynb` pair.

Executed copies are kept per tier. What varies without meaning is taken out, so that a rerun's diff
shows numbers.
"""

import hashlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from fedclust.paths import root, write

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
ending = threading.Event()  # after an interrupt
PULSE = 0.5  # seconds between two looks at the progress
SHOWN = 8  # lines of a long error, at each end


class NotebookFailed(RuntimeError):
    """A cell failed; the message says which and why, in short."""


def keys() -> list[str]:
    return sorted(path.stem for path in (root() / "replications").glob("*.py"))


def others() -> list[str]:
    """Notebooks that belong to no paper, in folders of their own."""
    base = root() / "replications"
    return sorted(path.relative_to(base).with_suffix("").as_posix() for path in base.glob("*/*.py"))


def read(key: str) -> NotebookNode:
    """The notebook that a source stands for, without outputs."""
    path = root() / "replications" / f"{key}.py"
    if not path.exists():
        raise FileNotFoundError(f"no replication {key!r}: there are {', '.join(keys()) or 'none'}")
    return tidy(jupytext.read(path, fmt="py:percent"))


def text(notebook: NotebookNode) -> str:
    """As Jupyter writes it: one line of a cell per line of the file."""
    return nbformat.writes(notebook) + "\n"


def pair(key: str) -> Path:
    """Bring replications/<key>.ipynb in step with its source."""
    target, content = root() / "replications" / f"{key}.ipynb", text(read(key))
    if not target.exists() or target.read_text(encoding="utf-8") != content:
        write(target, content)
    return target


def before_saving(model: dict[str, Any], path: str, **_: Any) -> None:
    """`make lab` lets JupyterLab call this: what it saves is what `pair` would have written."""
    if model["type"] == "notebook" and Path(path).parent.name == "replications":
        notebook = nbformat.from_dict(model["content"])
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        model["content"] = tidy(notebook)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Without times, machine, paths, warnings and the cuts of outputs. Ids follow content."""
    notebook.metadata = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if tags == ["injected-parameters"]:  # how many workers there are changes no number
            lines = cell.source.splitlines()
            cell.source = "\n".join(
                line for line in lines if not re.match(r"(jobs|backend) = ", line)
            )
        name = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        seen[name] = seen.get(name, 0) + 1
        cell.id = name if seen[name] == 1 else f"{name}-{seen[name]}"
        if cell.cell_type == "code":
            cell.outputs = [plain(output) for output in joined(cell.outputs)]
    return notebook


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Printed text in one piece; warnings and progress go to the terminal, not into the article."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if output.output_type == "stream" and kept and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def plain(output: NotebookNode) -> NotebookNode:
    """Without this machine's paths and memory addresses."""
    for part in (output, output.get("data", {})):
        for kind, content in part.items():
            if isinstance(content, str) and not kind.startswith("image/"):
                content = content.replace(f"{root()}{os.sep}", "")
                part[kind] = re.sub(r"\bat 0x[0-9a-f]+", "at 0x0", content)
    return output


def tidy_scratch() -> None:
    """Remove the temporary folders of processes that were killed."""
    import psutil

    for left in Path(tempfile.gettempdir()).glob("fedclust-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def execute(key: str, parameters: dict[str, Any], out: Path, say: Callable[[str], None]) -> Path:
    """Run a notebook with these parameters into `out`/<key>.ipynb.

    What is not the tier's own (`Report.label`) goes to build/ instead. `say` gets the progress and
    the warnings. If a cell fails, the last good notebook stays, the failed one is in build/failed,
    and `NotebookFailed` says why.
    """
    notebook = read(key)
    build = root() / "build"
    failed = build / "failed" / out.name / f"{key}.failed.ipynb"
    tidy_scratch()
    mine = f"fedclust-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=mine, ignore_cleanup_errors=True) as scratch:
        names = ("given.ipynb", "made.ipynb", "progress", "label")
        given, made, progress, label = (Path(scratch) / name for name in names)
        given.write_text(text(notebook), encoding="utf-8")
        progress.touch()
        label.touch()
        here = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]  # parts of one's own
        variables = {"FEDCLUST_PROGRESS": str(progress), "FEDCLUST_LABEL": str(label)}
        variables["PYTHONPATH"] = os.pathsep.join(here)
        run = partial(papermill, given, made, parameters, variables)
        error = in_background(run, teller(progress, say))
        done = nbformat.read(made, as_version=4) if made.exists() else notebook
        for warning in dict.fromkeys(warnings(done)):
            say(warning)
        if other := label.read_text(encoding="utf-8"):
            out = build / "executed" / other / out.name
    target = failed if error else out / f"{key}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target, text(tidy(done)))
    if error:
        raise NotebookFailed(f"{story(error)}\n(the notebook so far: {failed})") from error
    failed.unlink(missing_ok=True)
    return target


def story(error: BaseException) -> str:
    """Which cell, which error; of a long one the beginning and the end."""
    name = getattr(error, "ename", type(error).__name__)
    lines = getattr(error, "evalue", str(error)).strip().splitlines()
    if len(lines) > 2 * SHOWN:
        lines = [*lines[:SHOWN], "  [...]", *lines[-SHOWN:]]
    cell = getattr(error, "exec_count", None)
    return f"{f'cell [{cell}]: ' if cell else ''}{name}: " + "\n".join(lines)


def papermill(
    given: Path, made: Path, parameters: dict[str, Any], variables: dict[str, str]
) -> None:
    """In a kernel that is this interpreter, whatever kernels are installed under which names."""
    import logging

    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from papermill import execute_notebook
    from traitlets.config import Config

    argv = [sys.executable, "-m", "ipykernel_launcher", "--log-level=CRITICAL"]

    class ThisPython(AsyncKernelManager):
        kernel_spec = KernelSpec(
            argv=[*argv, "-f", "{connection_file}"], language="python", env=variables
        )

    logging.getLogger("papermill").setLevel(logging.ERROR)  # `papers.start` checks the parameters
    leave = Config(KernelManager={"shutdown_wait_time": 0.2})  # seconds, in place of 2.5
    options: Any = {"progress_bar": False, "request_save_on_cell_execute": False, "config": leave}
    # Not papermill's own `cwd`: that is this process's, and other notebooks may run in it.
    where = {"kernel_manager_class": ThisPython, "resources": {"metadata": {"path": str(root())}}}
    execute_notebook(given, made, parameters, kernel_name="this-python", **options, **where)


def in_background(work: Callable[[], None], look: Callable[[], None]) -> BaseException | None:
    """Do the work in a thread and keep looking; the result is its error, if any."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            while not future.done():
                wait([future], PULSE)
                look()
        except BaseException:
            end_all()  # else the work would go on
            raise
    if ending.is_set():
        raise KeyboardInterrupt
    return future.exception()


def end_all() -> None:
    """End every kernel and worker that this process started, and all waiting for a notebook."""
    import psutil

    ending.set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if not any("resource_tracker" in word for word in child.cmdline()):  # ends by itself
                child.send_signal(signal.SIGKILL)


def teller(progress: Path, say: Callable[[str], None]) -> Callable[[], None]:
    """Says what is new in the progress file; of several lines on a sweep only the last."""
    heard = 0

    def tell() -> None:
        nonlocal heard
        lines = progress.read_text().splitlines()
        new, heard = lines[heard:], len(lines)
        for line, following in zip(new, [*new[1:], ""], strict=False):
            if not (line.startswith("trial ") and following.startswith("trial ")):
                say(line)

    return tell


def warnings(notebook: NotebookNode) -> Iterator[str]:
    """The lines that cells wrote to stderr."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                yield from (line for line in output.text.splitlines() if line.strip())
