"""Run notebooks from top to bottom and read their outputs."""

from __future__ import annotations

import runpy
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from traitlets.config import Config

from tests.warm_kernels import connection, warm_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(
    path.relative_to(FOLDER).as_posix() for path in [*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/*.ipynb")]
)


@cache
def refresh() -> dict[str, Any]:
    """Return the names of notebooks/refresh.py."""
    pytest.importorskip("nbclient", reason="pip install nbclient (make test does it)")
    return runpy.run_path(str(FOLDER / "refresh.py"))


@contextmanager
def kernels_are_forked() -> Iterator[None]:
    """Let kernels that this process starts be forked from a warm kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(warm_kernels()))
        yield


def run(path, folder, *, timeout: int = 120, cold: bool = False) -> Any:
    """Run a notebook in `folder` and return it with its outputs.

    Args:
        path: The notebook.
        folder: The folder of its kernel.
        timeout: Seconds that a cell may take.
        cold: Whether its kernel is a new process, as for a user, and not forked from a warm kernel.
    """
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient (make test does it)")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": str(folder)}}}
    options["config"] = Config({} if cold else {"KernelManager": connection()})
    with nullcontext() if cold else kernels_are_forked():
        nbclient.NotebookClient(notebook, timeout=timeout, **options).execute()
    notebook.metadata["folder"] = str(folder)
    return notebook


def outputs(notebook) -> list[Any]:
    """Return all outputs, from top to bottom."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output for cell in cells for output in cell.outputs]


def printed(notebook) -> str:
    """Return all printed text, and the text form of displayed objects."""
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs(notebook))


def complaints(notebook) -> list[str]:
    """Return the outputs on stderr."""
    return [output["text"] for output in outputs(notebook) if output.get("name") == "stderr"]


def widgets(notebook) -> list[Any]:
    """Return the widget outputs."""
    mime = "application/vnd.jupyter.widget-view+json"
    return [output for output in outputs(notebook) if mime in output.get("data", {})]
