"""Run every measure of context mixing on a tiny model of each family: the table of docs/architectures.md.

python benchmarks/architectures.py            # prints the table
python benchmarks/architectures.py --write    # writes it into docs/architectures.md
"""

from __future__ import annotations

import argparse
import re
import string
import sys
import warnings
from typing import TYPE_CHECKING, Any

from pages import write_between
from tested import ROOT

from attnwidgets.explanations.registry.registry import Method, methods
from attnwidgets.explanations.targets.named import token
from tests.tracing.families import FAMILIES, MORE, OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = ROOT / "docs" / "architectures.md"
BEGIN, END = "<!-- made by benchmarks/architectures.py -->\n", "<!-- end -->\n"
EVERY = {**FAMILIES, **MORE, **OUTSIDE}

# Methods that need gradients alone do not measure context mixing.
_BLOCKS = {"blocks", "own blocks"}
_MIXING = {"attention", "map", "recorded model", *_BLOCKS}
_MODELS = re.compile(r"\b[A-Z][A-Za-z0-9_]*(Model|For[A-Z]\w+)\b")
_LAYERS = re.compile(r"\b[A-Z][A-Za-z0-9_]*(Layer|Block|MLP|MoE|Intermediate)\b")


def measures() -> list[Method]:
    """Return the measures in order of the table; those that need no description of blocks come first."""
    chosen = [
        (any(need.name in _BLOCKS for need in method.requirements), "target" in method.options, method)
        for method in methods()
        if method.function.__module__.startswith("attnwidgets.")
        and any(need.name in _MIXING for need in method.requirements)
    ]
    maps = [(described, target, method) for described, target, method in chosen if described or not target]
    return [method for *_, method in sorted(maps, key=lambda item: (*item[:2], item[2].name))]


def verdicts(family: str) -> dict[str, dict[str, str]]:
    """Return by stack and method why a family is not supported; "" if it is."""
    trace = EVERY[family].traced()
    return {
        stack: {method.name: _refusal(method, trace, stack) for method in measures()}
        for stack in trace.stacks
    }


def _refusal(method: Method, trace: Any, stack: str) -> str:
    options: dict[str, Any] = {"stack": stack}
    if "target" in method.options and trace.logits is not None and not trace.predictions(1):
        options["target"] = token(0, position=0)  # no default target if every token is predicted
    try:
        result: Any = method.function(trace, **options)
        _ = result.values
    except ValueError as error:
        refused = method.refusal(trace, stack)
        return _plain(str(error) if "target" in options or not refused else refused)
    return ""


def _plain(reason: str) -> str:
    """Return a reason without the names of classes and stacks, so that similar reasons are merged."""
    reason = re.sub(
        r"stack '\w+'", "this stack", _LAYERS.sub("a layer of it", _MODELS.sub("the model", reason))
    )
    return reason[reason.find(", and ") + 6 :] if reason.startswith("needs ") else reason


def rows(families: Iterable[str], notes: dict[str, str]) -> list[str]:
    """Return lines of the table; new reasons are added to `notes` under a letter."""
    lines = []
    for family in families:
        for stack, reasons in verdicts(family).items():
            cells = [_cell(reason, notes) for reason in reasons.values()]
            lines.append(f"| {family} | {stack} | {' | '.join(cells)} |")
    return lines


def _cell(reason: str, notes: dict[str, str]) -> str:
    if not reason:
        return "yes"
    for letter, known in notes.items():
        if known == reason:
            return letter
    notes[string.ascii_lowercase[len(notes)]] = reason
    return string.ascii_lowercase[len(notes) - 1]


def heading() -> str:
    """Return the first line of the table."""
    return f"| family | stack | {' | '.join(method.name.replace('_', ' ') for method in measures())} |"


def table() -> str:
    """Return the table with its notes."""
    notes: dict[str, str] = {}
    body = rows(EVERY, notes)
    lines = [heading(), "|" + "---|" * (len(measures()) + 2), *body, ""]
    lines += [f"- *{letter}*: {reason}" for letter, reason in notes.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or write it into the page."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/architectures.md")
    text = table()
    if not parser.parse_args().write:
        sys.stdout.write(text)
        return
    write_between(PAGE, BEGIN, END, text)


if __name__ == "__main__":
    main()
