"""The tokenizer of a live page: one whose tokens are single characters, described for the browser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLAIN_PATTERN = re.compile(r"\[[^][\\^-]+\]|(?:[^][\\.*+?(){}|^$]\??)+")
"""Patterns that mean the same in browsers: a set of characters, or characters, some of which may lack."""
_ONE_CHARACTER = {".", r"[\s\S]"}
_KINDS = "single characters (a WordLevel model behind a Split, as those of aw.zoo)"


def packed_reader(tokenizer: Any, longest: int) -> dict[str, Any]:
    """Return the `PackedReader` of js/src/live/reader.ts.

    Args:
        tokenizer: A fast tokenizer of transformers.
        longest: The most tokens of a text.

    Raises:
        ValueError: It does not read single characters; the message names what it does instead.
    """
    from attnwidgets.tracing.predictions import spelled
    from attnwidgets.tracing.recording.inputs import special_ids

    name = type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"the tokenizer {name} is not a fast one; a page reads {_KINDS}")
    described = json.loads(backend.to_str())
    kind = described["model"]["type"]
    if kind != "WordLevel":
        raise ValueError(f"the tokenizer {name} ({kind}) does not travel; a page reads {_KINDS}")
    count = max(described["model"]["vocab"].values()) + 1
    tokens = ["" if token is None else token for token in tokenizer.convert_ids_to_tokens(range(count))]
    special = sorted(number for number in special_ids(tokenizer) if number < count)
    before, after = _around(name, described["post_processor"])
    normalised = _normalised(name, described["normalizer"])
    return {
        "tokens": tokens,
        "labels": [spelled(tokenizer, number) for number in range(count)],
        "special": special,
        **normalised,
        "dropsBlanks": _drops_blanks(name, described["pre_tokenizer"]),
        "before": before,
        "after": after,
        "longest": longest,
    }


def _steps(described: Mapping[str, Any] | None, inside: str) -> Sequence[Mapping[str, Any]]:
    """Return the steps of a normalizer or a pre-tokenizer."""
    if described is None:
        return ()
    return described[inside] if described["type"] == "Sequence" else (described,)


def _normalised(name: str, described: Mapping[str, Any] | None) -> dict[str, Any]:
    replaced: list[list[str]] = []
    seen: set[str] = set()
    for step in _steps(described, "normalizers"):
        kind = step["type"]
        if kind == "Replace" and not seen:
            replaced.append([_pattern(name, step["pattern"]), step["content"]])
        elif kind in {"NFD", "StripAccents", "Lowercase"}:
            seen.add(kind)
        else:
            raise ValueError(f"the tokenizer {name} changes texts in a way ({kind}) that a page does not")
    if ("NFD" in seen) != ("StripAccents" in seen):
        raise ValueError(f"the tokenizer {name} takes accents apart and keeps them, which a page does not")
    return {"replaced": replaced, "bare": "NFD" in seen, "lower": "Lowercase" in seen}


def _pattern(name: str, pattern: Mapping[str, str]) -> str:
    found = pattern.get("Regex", "")
    if "String" in pattern:
        return re.sub(r"[][\\.*+?(){}|^$/]", r"\\\g<0>", pattern["String"])
    if not _PLAIN_PATTERN.fullmatch(found):
        raise ValueError(f"the tokenizer {name} replaces {found!r}, which a page does not read the same way")
    return found


def _drops_blanks(name: str, described: Mapping[str, Any] | None) -> bool:
    steps = _steps(described, "pretokenizers")
    kinds = [step["type"] for step in steps]
    splits = [step for step in steps if step["type"] == "Split"]
    whole = len(splits) == 1 and splits[0]["pattern"].get("Regex") in _ONE_CHARACTER
    known = kinds in (["Split"], ["WhitespaceSplit", "Split"])
    if not whole or not known or splits[0]["behavior"] != "Isolated" or splits[0]["invert"]:
        raise ValueError(f"the tokenizer {name} does not split a text into characters; a page reads {_KINDS}")
    return "WhitespaceSplit" in kinds


def _around(name: str, described: Mapping[str, Any] | None) -> tuple[list[int], list[int]]:
    """Return the ids before and after every text."""
    if described is None:
        return [], []
    if described["type"] != "TemplateProcessing":
        raise ValueError(f"the tokenizer {name} adds tokens in a way ({described['type']}) a page does not")
    sides: tuple[list[int], list[int]] = ([], [])
    side = 0
    for part in described["single"]:
        if "Sequence" in part:
            side = 1
        else:
            sides[side].extend(described["special_tokens"][part["SpecialToken"]["id"]]["ids"])
    return sides
