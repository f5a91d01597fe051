"""The pictures of the documentation: which code each shows, and whether it is older than its view.

A picture follows a comment of its page. The first shows the last value of the Python block above it, the
second that of its code, which readers do not see:

    <!-- picture head_grid -->

    <!-- picture special_tokens
    aw.Heatmap(trace, hide_special=False)
    -->

Words after the name are the alternative text of a value that does not describe itself (`<!-- picture page: A
page that computes. -->`); `<!-- python ... -->` is code without a picture, which sets names.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from functools import cache
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.views.base.view import View

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
MADE_OF = FOLDER / "made_of.json"
THEMES = ("light", "dark")
GIVEN = ("aw", "np")
"""Names that all code may read."""

STEP = re.compile(
    r"^```python\n(?P<block>.*?)^```|^<!-- python\n(?P<hidden>.*?)^-->"
    r"|^<!-- picture (?P<name>\w+)(?:: (?P<words>[^\n]*?))?(?: -->|\n(?P<code>.*?)^-->)",
    re.MULTILINE | re.DOTALL,
)
IMPORTED = re.compile(r'(?:from|import) "(\.[^"]+\.(?:ts|css))"')
COMMENT = {".py": re.compile(r"\s*#"), ".ts": re.compile(r"\s*(//|/?\*)"), ".css": re.compile(r"\s*/\*")}


class Step(NamedTuple):
    """Code of a page, with the name of the picture that shows its last value, or ""."""

    code: str
    name: str = ""
    words: str = ""


def pages() -> list[Path]:
    """Return the pages that may have pictures."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def steps_of(page: Path) -> list[Step]:
    """Return the code of a page, from top to bottom.

    Raises:
        ValueError: No code stands above a picture that has none.
    """
    steps: list[Step] = []
    for match in STEP.finditer(page.read_text(encoding="utf-8")):
        name, words = match["name"] or "", match["words"] or ""
        if code := match["block"] or match["hidden"] or match["code"]:
            steps.append(Step(code, name, words))
        elif steps and not steps[-1].name:
            steps[-1] = Step(steps[-1].code, name, words)
        else:
            raise ValueError(f"{page.name}: no code stands above the picture {name}")
    return steps


def needed(steps: Sequence[Step], at: int) -> list[int]:
    """Return the steps that a step needs, itself last: those that set the names that it reads."""
    wanted, chosen = _names(steps[at].code)[0], [at]
    for before in reversed(range(at)):
        read, made = _names(steps[before].code)
        if wanted & made:
            chosen.append(before)
            wanted = wanted - made | read
    return chosen[::-1]


def _names(code: str) -> tuple[set[str], set[str]]:
    """Return the names that code reads before it sets them, and those that it sets."""
    read: set[str] = set(GIVEN)
    made: set[str] = set(GIVEN)
    for statement in ast.parse(code).body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        inside = {
            name.id
            for node in ast.walk(statement)
            if isinstance(node, ast.comprehension)
            for name in ast.walk(node.target)
            if isinstance(name, ast.Name)
        }
        names = [node for node in names if node.id not in inside]
        read |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - made
        made |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            made.add(statement.name)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            made |= {alias.asname or alias.name for alias in statement.names}
    return read - set(GIVEN), made - set(GIVEN)


def files_of(views: Iterable[View]) -> list[str]:
    """Return where the code of views begins, in Python and in TypeScript, relative to the repository."""
    files: set[Path] = set()
    for view in views:
        files |= {Path(getfile(type(view))), *ROOT.glob(f"js/src/views/**/{view.name}.ts")}
        files |= {ROOT / "js" / "src" / "parts" / f"{part}.ts" for part in view.needs.scripts}
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


def key(steps: Sequence[Step], at: int, files: Iterable[str]) -> str:
    """Return a hash of the code of a picture and of its views, without the modules that all views share.

    Comments and docstrings do not count.

    Args:
        steps: The code of its page.
        at: The step that the picture shows.
        files: Where the code of its views begins.

    Raises:
        FileNotFoundError: A file is not there.
    """
    begin = {ROOT / name for name in files}
    digest = hashlib.sha256("".join(steps[each].code for each in needed(steps, at)).encode())
    for path in sorted(begin | _imported(begin) - _shared()):
        digest.update(_plain(path))
    return digest.hexdigest()[:16]


@cache
def _shared() -> set[Path]:
    return _imported({ROOT / "js" / "src" / "runtime.ts"})


def _imported(files: Iterable[Path]) -> set[Path]:
    """Return files with all that they import."""
    seen, waiting = set(), [*files]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            if path.suffix == ".ts":
                names = IMPORTED.findall(path.read_text(encoding="utf-8"))
                waiting += [(path.parent / name).resolve() for name in names]
    return seen


@cache
def _plain(path: Path) -> bytes:
    """Return a file without comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    comment = COMMENT[path.suffix]
    return "\n".join(line for line in lines if line.strip() and not comment.match(line)).encode()


def made_of() -> dict[str, dict[str, Any]]:
    """Return the files and the key that every picture was made of, by its name."""
    return json.loads(MADE_OF.read_text(encoding="utf-8")) if MADE_OF.exists() else {}


def is_stale(steps: Sequence[Step], at: int) -> bool:
    """Return whether a picture is missing, or older than its code or the code of its views."""
    name = steps[at].name
    made = made_of().get(name)
    if made is None or not all((FOLDER / f"{name}-{theme}.webp").exists() for theme in THEMES):
        return True
    try:
        return bool(key(steps, at, made["files"]) != made["key"])
    except FileNotFoundError:
        return True
