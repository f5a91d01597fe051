"""Make the assignments, the student's versions here and the teacher's in out/course: `make course`.

A source is Markdown that jupytext reads: prose as people review it, code in fences, solutions and keys
tagged. The student's version is what `aw.course.handout` makes of it. It is saved without outputs, and
`make notebooks` runs it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat

import attnwidgets as aw

FOLDER = Path(__file__).parent
SOURCES = sorted((FOLDER / "source").glob("*.md"))
TEACHERS = FOLDER.parents[1] / "out" / "course"


def teachers(source: Path, folder: Path) -> Path:
    """Write the teacher's version of a source into a folder; return its path."""
    notebook = jupytext.read(source)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number}"  # jupytext draws ids
    notebook.nbformat_minor = 5
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.stem}.ipynb"
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return path


def students(source: Path, folder: Path, scratch: Path) -> Path:
    """Write the student's version of a source into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return aw.course.handout(teachers(source, scratch), folder / f"{source.stem}.ipynb")


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
        made = students(source, given.out / "student", given.out)
        if saved.exists() and is_as_made(saved, made):
            print(f"{saved.name}: as it was")
            continue
        saved.write_bytes(made.read_bytes())
        print(f"{saved.name}: written without outputs; make notebooks NOTEBOOKS={source.stem} runs it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
