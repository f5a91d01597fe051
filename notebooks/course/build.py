"""Make the assignments, the student's versions here, the teacher's and the keys in out/course: `make course`.

A source is Markdown that jupytext reads: prose as people review it, code in fences, solutions and keys
tagged; {questions} and {points} in the first cell become their numbers. The teacher's version is run, as keys
are computed, and writes its key. The student's version is what `aw.course.handout` makes of it. It is saved
without outputs, and `make notebooks` runs it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext
import nbformat
from nbclient import NotebookClient

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parent
SOURCES = sorted((FOLDER / "source").glob("*.md"))
TEACHERS = FOLDER.parents[1] / "out" / "course"


def teachers(source: Path, folder: Path) -> Path:
    """Write the teacher's version of a source into a folder; return its path."""
    notebook = jupytext.read(source)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    worth = points(cell.source for cell in notebook.cells if cell.cell_type == "code")
    totals = {"{questions}": str(len(worth)), "{points}": f"{sum(worth.values()):g}"}
    for name, total in totals.items():
        notebook.cells[0].source = notebook.cells[0].source.replace(name, total)
    write = f"aw.course.write_key(key, {key_file(source)!r})"
    notebook.cells.append(nbformat.v4.new_code_cell(write, metadata={"tags": ["key"]}))
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number}"  # jupytext draws ids
    notebook.nbformat_minor = 5
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.stem}.ipynb"
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return path


def points(code: Iterable[str]) -> dict[str, float]:
    """Return the points of every question that code asks, by its id."""
    trees = (ast.parse("\n".join("" if line.lstrip().startswith("%") else line for line in cell.split("\n")))
             for cell in code if "aw.ask." in cell)  # fmt: skip
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    options = ({option.arg: option.value for option in call.keywords} for call in calls
               if ast.unparse(call.func).startswith("aw.ask."))  # fmt: skip
    return {
        ast.literal_eval(given["id"]): ast.literal_eval(given["points"]) if "points" in given else 1
        for given in options
        if "id" in given
    }


def key_file(source: Path) -> str:
    """Return the name of the file of a source's key."""
    return f"{source.stem}.key.json"


def write_key(source: Path, folder: Path) -> Path:
    """Run the teacher's version in a folder, and write its key beside it; return the key's path."""
    notebook = nbformat.read(folder / f"{source.stem}.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as scratch:  # its answers go there
        client = NotebookClient(
            notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": scratch}}
        )
        client.execute(env=os.environ | {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"})
        shutil.copy(Path(scratch) / key_file(source), folder)
    return folder / key_file(source)


def students(source: Path, folder: Path, scratch: Path, key: Path | None = None) -> Path:
    """Write the student's version of a source into a folder, searched for the key; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return aw.course.handout(teachers(source, scratch), folder / f"{source.stem}.ipynb", key=key)


def is_as_made(saved: Path, made: Path) -> bool:
    """Return whether a saved notebook has the cells of one that was just made, whatever its outputs are."""
    return _cells(saved) == _cells(made)


def _cells(path: Path) -> list[tuple[str, str]]:
    notebook: Any = json.loads(path.read_text(encoding="utf-8"))
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def main() -> int:
    """Write the versions of the assignments that are named, or of all; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="assignments, by the name of their source; none: all")
    parser.add_argument("--out", type=Path, default=TEACHERS, help="the folder for the teacher's versions")
    given = parser.parse_args()
    wanted = {Path(name).stem for name in given.names}
    for source in SOURCES:
        if wanted and source.stem not in wanted:
            continue
        saved = FOLDER / f"{source.stem}.ipynb"
        key = given.out / key_file(source)
        if not key.exists() or key.stat().st_mtime < source.stat().st_mtime:
            teachers(source, given.out)
            print(f"{write_key(source, given.out)}: written, by running the teacher's version")
        made = students(source, given.out / "student", given.out, key)
        if saved.exists() and is_as_made(saved, made):
            print(f"{saved.name}: as it was")
            continue
        saved.write_bytes(made.read_bytes())
        print(f"{saved.name}: written without outputs; make notebooks NOTEBOOKS={source.stem} runs it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
