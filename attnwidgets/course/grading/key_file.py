"""Keys as files: each rule as the expression that makes it, which is read without being run."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

from attnwidgets._errors import quoted
from attnwidgets._files import write_bytes
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.grading.rules import RULES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from attnwidgets.course.grading.rules import Rule

_VERSION = 1


def write_key(key: Mapping[str, Rule], path: str | os.PathLike[str]) -> Path:
    """Write a key to a file, which `grade` and `grade_class` accept instead of it.

    Args:
        key: A rule for every question that counts, by id.
        path: The file, by convention `<assignment>.key.json`. It contains all answers: keep it to yourself.

    Returns:
        The path.

    Raises:
        AnswerError: A rule contains a function, which no file can.
        OSError: The file cannot be written.

    Example:
        >>> path = aw.course.write_key({"q1": aw.course.exact((5, 9), points=2)}, "ps1.key.json")
        >>> answers = {"q1": aw.course.make_record("q1", "head", (5, 9))}
        >>> aw.course.grade(answers, path)
        2 of 2 points: q1 2 of 2
    """
    rules = {name: rule.code for name, rule in key.items()}
    text = json.dumps({"v": _VERSION, "key": rules}, ensure_ascii=False, indent=1)
    write_bytes(Path(path), f"{text}\n".encode())
    return Path(path)


def read_key(path: str | os.PathLike[str]) -> dict[str, Rule]:
    """Return the key in a file that `write_key` wrote: a rule for every question, by id. It runs nothing.

    Args:
        path: The file.

    Raises:
        AnswerError: It is not the file of a key; the message names the question.
        OSError: The file cannot be read.

    Example:
        >>> path = aw.course.write_key({"q1": aw.course.exact((5, 9), points=2)}, "ps1.key.json")
        >>> aw.course.read_key(path)
        {'q1': exact((5, 9), points=2)}
    """
    name = Path(path).name
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        rules = dict(content["key"]) if content["v"] == _VERSION else {}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AnswerError(f"{name} is not the file of a key: aw.course.write_key writes it") from error
    if not rules:
        raise AnswerError(f"{name} has no key of version {_VERSION}")
    return {question: _rule_of(str(code), f"{name}, {question}") for question, code in rules.items()}


def _rule_of(code: str, where: str) -> Rule:
    """Return the rule that an expression of constants makes."""
    try:
        call = ast.parse(code, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise AnswerError("it is not a call")
        arguments = [ast.literal_eval(argument) for argument in call.args]
        options = {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
        made = RULES[call.func.id](*arguments, **options)
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise AnswerError(f"{where}: {quoted(code)} is not a rule ({error})") from error
    return made
