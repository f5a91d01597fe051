"""The student's version of a teacher's notebook: without solutions and keys, and searched for them."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted, suggest
from attnwidgets._files import write_bytes
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.grading.grade import checked_key
from attnwidgets.course.handouts.leaks import find_leak, values_in_code, values_in_key

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from attnwidgets.course.grading.rules import Rule

REMOVED = ("solution", "key")
"""Tags of cells that only the teacher's version holds."""
PLACEHOLDER = "# Your code here"
_BEGIN = re.compile(r"^(?P<indent>\s*)(?:###|<!--)\s*BEGIN SOLUTION\s*(?:-->)?\s*$")
_END = re.compile(r"^\s*(?:###|<!--)\s*END SOLUTION\s*(?:-->)?\s*$")
_MARK = re.compile(r"\b(BEGIN|END) SOLUTION\b")


def handout(
    source: str | os.PathLike[str],
    student: str | os.PathLike[str],
    *,
    outputs: bool = False,
    placeholder: str = PLACEHOLDER,
    allow: Iterable[str] = (),
    key: Mapping[str, Rule] | str | os.PathLike[str] | None = None,
) -> Path:
    """Write the student's version of a teacher's notebook.

    Cells tagged `solution` or `key` are left out. The text between the lines `### BEGIN SOLUTION` and
    `### END SOLUTION` (in text cells `<!-- BEGIN SOLUTION -->`) is replaced by a line to fill in. Outputs,
    counts and metadata are removed. Then the result is searched, outputs and the text in pictures included:
    nothing is written if a line of a solution or key, the value of an answer, `feedback=`, or an answer in an
    output is left. Values are compared, not how they are written: 0.847 is also `.8470`, `84.7 %` and
    `8.47e-1`, and (5, 9) is also `[5,9]`, `5.9`, `L5H9` and `head 9 of layer 5`. Not searched for are names,
    as a question must name its options, numbers of fewer than three digits, and numbers in words.

    Args:
        source: The teacher's notebook (.ipynb).
        student: The file to write.
        outputs: Keep outputs, other than those of cells with a solution in them. They are searched, too.
        placeholder: The line that replaces a solution.
        allow: Lines of solutions, and values, that may stay because the text gives them anyway; "feedback".
        key: The key, or its file (`write_key`): its values are searched for, too. Give it where the source
            computes answers.

    Returns:
        The path of the student's version. The same source gives the same bytes.

    Raises:
        AnswerError: Something of a solution is left, a region has no end, or a tag is almost `solution` or
            `key`; the message names the cell (a ValueError).
        OSError: A file cannot be read or written.

    Warns:
        UserWarning: The source computes answers, and no `key` gives their values: they were not searched for.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> solution = {"cell_type": "code", "source": "q1.answer = 3", "metadata": {"tags": ["solution"]}}
        >>> cells = [{"cell_type": "markdown", "source": "# Which layer?", "metadata": {}}, solution]
        >>> _ = Path("teacher.ipynb").write_text(json.dumps({"cells": cells}))
        >>> path = aw.course.handout("teacher.ipynb", "ps1.ipynb")
        >>> [cell["source"] for cell in json.loads(path.read_text())["cells"]]
        [['# Which layer?']]
    """
    path, target = Path(source), Path(student)
    if target.exists() and target.samefile(path):
        raise AnswerError(f"student={str(student)!r} is the source itself: the solutions would be lost")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = notebook["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise AnswerError(f"{path.name} is not a notebook of format 4 (.ipynb)") from error
    rules = None if key is None else checked_key(key)
    result = student_version(
        notebook, cells, outputs=outputs, placeholder=placeholder, allow=allow, key=rules
    )
    text = json.dumps(result, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    write_bytes(target, text.encode())
    return target


def student_version(
    notebook: dict[str, Any],
    cells: list[dict[str, Any]],
    *,
    outputs: bool = False,
    placeholder: str = PLACEHOLDER,
    allow: Iterable[str] = (),
    key: Mapping[str, Rule] | None = None,
) -> dict[str, Any]:
    """Return the student's version of a notebook, as JSON; see `handout`."""
    student_cells: list[dict[str, Any]] = []
    secrets: list[str] = []
    for number, cell in enumerate(cells, 1):
        tags = _tags(cell, number)
        text = source_of(cell)
        if tags & set(REMOVED):
            secrets.append(text)
            continue
        open_text, hidden = _without_regions(text, placeholder, number)
        secrets.extend(hidden)
        keeps = outputs and not hidden
        clean: dict[str, Any] = {
            "cell_type": cell["cell_type"],
            "id": f"cell-{len(student_cells) + 1}",
            "metadata": {},
            "source": open_text.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            clean |= {"execution_count": None, "outputs": cell.get("outputs", []) if keeps else []}
        elif cell.get("attachments"):
            clean["attachments"] = cell["attachments"]
        student_cells.append(clean)
    kernel = notebook.get("metadata", {}).get("kernelspec") or {}
    if not {"name", "display_name"} <= set(kernel):
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    result = {
        "cells": student_cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    values, computed = values_in_code(secrets)
    leak = find_leak(result, secrets, [*values, *values_in_key(key or {})], set(allow))
    if leak:
        raise AnswerError(f"nothing was written: {leak}")
    unsearched = [question for question in computed if question not in (key or {})]
    if unsearched:
        warnings.warn(
            f"the answers of {', '.join(unsearched)} are computed: their values were not searched for. "
            "key= takes the key, or the file that aw.course.write_key wrote",
            stacklevel=3,
        )
    return result


def source_of(cell: dict[str, Any]) -> str:
    """Return the text of a cell, which a file may hold as lines."""
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else source


def _tags(cell: dict[str, Any], number: int) -> set[str]:
    tags = set(cell.get("metadata", {}).get("tags", []))
    for tag in sorted(tags - set(REMOVED)):
        if suggest(tag, REMOVED):
            raise AnswerError(
                f"nothing was written: cell {number} has the tag {quoted(tag)}, which hides nothing."
                f"{suggest(tag, REMOVED)}"
            )
    return tags


def _without_regions(text: str, placeholder: str, number: int) -> tuple[str, list[str]]:
    """Return a cell's text with a line to fill in for each solution, and the solutions."""
    lines: list[str] = []
    hidden: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        begins = _BEGIN.match(line)
        if begins and inside is None:
            inside = []
            lines.append(f"{begins['indent']}{placeholder}")
        elif _END.match(line) and inside is not None:
            hidden.append("\n".join(inside))
            inside = None
        elif _MARK.search(line):
            raise AnswerError(f"nothing was written: in cell {number}, {quoted(line.strip())} has no partner")
        elif inside is not None:
            inside.append(line)
        else:
            lines.append(line)
    if inside is not None:
        raise AnswerError(f"nothing was written: in cell {number}, a BEGIN SOLUTION has no END SOLUTION")
    return "\n".join(lines), hidden
