"""Each call that an error, a warning or a hint names exists, with the arguments that it names."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import attnwidgets as aw
from attnwidgets._errors import TYPED

from .public import public

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(aw.__file__).parent
CLASSES = [item for item in public().values() if inspect.isclass(item)]
PATHS = sorted(PACKAGE.rglob("*.py"))
CALL = re.compile(r"(?<![\w./])aw\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
VERB = re.compile(r"(?:^|(?<=[\s(`)])|(?<=\btrace)|(?<=\bview)|(?<=\bexplorer))\.([a-z_]\w*)(?=\()")
VALUE = "VALUE"  # stands for the values of an f-string
OTHERS = {"endswith", "item", "savefig"}  # methods of other libraries, which messages name
TEMPLATES = {  # messages in which a name is filled in: that of a registered method, kind, rule or model
    *("ask/asking.py", "ask/question.py", "course/handouts/keys.py"),
    "explanations/results/trace_protocol.py",
    *("explanations/user_methods/invariants.py", "tracing/interventions.py", "views/base/accepts.py"),
    "zoo/compiled/circuit.py",
}
RARE = r"\btaken\b|\bis (?:said|told)\b|\bas many\b"
IDIOMS = {
    "package": {r"\bis no [a-z]+": 6, r"\bbeside\b": 19, r"\basked\b": 11},
    "JavaScript": {r"\b(?:is|has|are) no\b": 6, r"\bbeside\b": 6, r"\basked\b": 0, RARE: 0},
    "notebooks": {r"\b(?:is|has|are) no\b": 11, r"\bbeside\b": 0, r"\basked\b": 1, RARE: 1},
}
"""Largest counts of translated idioms in the code and prose; the rest are names of the API and plain uses."""


def prose(part: str) -> Iterator[tuple[str, str]]:
    """Yield the paths and texts of a part of the repository; of notebooks, the text without the code."""
    root = PACKAGE.parent
    files = {
        "package": PATHS,
        "JavaScript": [path for path in (root / "js" / "src").rglob("*") if path.suffix in (".ts", ".css")],
        "notebooks": (root / "notebooks").glob("**/*.ipynb"),
    }
    for path in sorted(files[part]):
        text = path.read_text("utf-8")
        if part == "notebooks":
            cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
            text = "\n".join("".join(cell["source"]) for cell in cells)
        yield path.relative_to(root).as_posix(), text


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield lines and strings of a module, without docstrings; `VALUE` for the values of f-strings."""
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if part is not node}
            parts = (part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def arguments(text: str) -> str:
    """Return the text in the brackets that a text begins with; "" without brackets."""
    depth = 0
    for end, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            return text[1:end] if end else ""
    return ""


def fault(name: str, given: str, item: Any) -> str:
    """Return the fault of a call with the arguments that a message names, or ""."""
    try:
        call = ast.parse(f"f({given})", mode="eval").body
        parameters = list(inspect.signature(item).parameters.values())
    except (SyntaxError, TypeError, ValueError):  # words in brackets; an object without a signature
        return ""
    assert isinstance(call, ast.Call)
    kinds = {parameter.kind for parameter in parameters}
    names = {parameter.name for parameter in parameters} | {VALUE, None}
    unknown = [key.arg for key in call.keywords if key.arg not in names]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        return f"{name}() takes no {unknown[0]}="
    most = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    taken = [each for each in call.args if ast.unparse(each) not in ("...", VALUE)]
    if len(taken) > most and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"{name}() takes {most} arguments without a name, not {len(taken)}"
    return ""


def faults(text: str) -> Iterator[str]:
    """Yield the calls that a message names and the package lacks."""
    for match in CALL.finditer(text):
        item: Any = aw
        for part in match[0].split(".")[1:]:
            if VALUE in part:
                break
            if not (part in dir(item) if inspect.ismodule(item) else hasattr(item, part)):
                yield f"there is no {match[0]}"
                break
            item = getattr(item, part)
        else:
            if text[match.end() :].startswith("("):
                yield from filter(None, [fault(match[0], arguments(text[match.end() :]), item)])
    for match in VERB.finditer(text):
        if match[1] in OTHERS or VALUE in match[1]:
            continue
        verbs = [getattr(kind, match[1]) for kind in CLASSES if hasattr(kind, match[1])]
        if not verbs:
            yield f"no class has .{match[1]}()"
            continue
        given = arguments(text[match.end() :])
        wrong = [fault(f".{match[1]}", f"self, {given}", verb) for verb in verbs if callable(verb)]
        if wrong and all(wrong):
            yield wrong[0]


@pytest.mark.parametrize("folder", sorted({path.relative_to(PACKAGE).parts[0] for path in PATHS}))
def test_calls_in_messages_exist(folder: str) -> None:
    wrong, filled = [], set()
    for path in PATHS:
        name = path.relative_to(PACKAGE).as_posix()
        if path.relative_to(PACKAGE).parts[0] == folder:
            messages = [each for each in texts(ast.parse(path.read_text("utf-8"))) if each[1] not in TYPED]
            wrong += [f"{name}:{line} {fault}" for line, text in messages for fault in faults(text)]
            filled |= {name for _, text in messages if re.search(rf"\baw\.(\w+\.)?{VALUE}", text)}
    assert wrong == []
    assert filled <= TEMPLATES


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("aw.removal_score(model, tokenizer, ...)", "there is no aw.removal_score"),
        ("call aw.circuits.patching(a, b)", "there is no aw.circuits.patching"),
        ("pass aw.trace(model, tokenizer, text, tokens=3)", "aw.trace() takes no tokens="),
        ("aw.lrp(trace, target, foil, 3)", "aw.lrp() takes 3 arguments without a name, not 4"),
        ("aw.lrp(trace).to_pandas()", "no class has .to_pandas()"),
        ("use .to_rows(path=3)", ".to_rows() takes no path="),
        ("trace.redo(text)", "no class has .redo()"),
        ("aw.lrp(trace, ...).save(VALUE), aw.evaluate.VALUE(3), .top(3)", None),
    ],
)
def test_a_call_that_does_not_exist_is_noticed(message: str, wrong: str | None) -> None:
    assert list(faults(message)) == ([] if wrong is None else [wrong])


@pytest.mark.parametrize(
    ("part", "idiom", "most"), [(part, *budget) for part, all_ in IDIOMS.items() for budget in all_.items()]
)
def test_translated_idioms_are_rare(part: str, idiom: str, most: int) -> None:
    lines = [
        f"{name}:{number}"
        for name, text in prose(part)
        for number, line in enumerate(text.splitlines(), 1)
        for _ in re.findall(idiom, line)
    ]
    assert len(lines) <= most, (
        f"{idiom} is a translated idiom: write the noun, as in 'x' is not a head. {lines}"
    )
