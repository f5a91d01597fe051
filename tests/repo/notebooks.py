"""Notebooks run from top to bottom, and what they showed."""

from __future__ import annotations

from typing import Any

import pytest


def run(path, folder, *, timeout: int = 120) -> Any:
    """Return a notebook with its outputs, run in `folder`."""
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient (make test does it)")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": str(folder)}}}
    nbclient.NotebookClient(notebook, timeout=timeout, **options).execute()
    notebook.metadata["folder"] = str(folder)
    return notebook


def outputs(notebook) -> list[Any]:
    """Return all outputs, from top to bottom."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output for cell in cells for output in cell.outputs]


def printed(notebook) -> str:
    """Return what was printed, and the text of what was shown."""
    found = outputs(notebook)
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in found)


def complaints(notebook) -> list[str]:
    """Return what was written to stderr."""
    return [output["text"] for output in outputs(notebook) if output.get("name") == "stderr"]


def widgets(notebook) -> list[Any]:
    """Return the outputs that are widgets."""
    mime = "application/vnd.jupyter.widget-view+json"
    return [output for output in outputs(notebook) if mime in output.get("data", {})]
