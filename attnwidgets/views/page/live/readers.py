"""Tokenizers of a live page: single characters, word pieces of BERT, and byte pairs of GPT-2 and SmolLM2.

The twin of js/src/live/reader.ts. `_KINDS` names for each kind of tokenizer the function that describes it.
What a page would do otherwise than the tokenizer is refused by name.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PLAIN_PATTERN = re.compile(r"\[[^][\\^-]+\]|(?:[^][\\.*+?(){}|^$]\??)+")
"""Patterns that mean the same in browsers: a set of characters, or characters, some of which may lack."""

_ONE_CHARACTER = {".", r"[\s\S]"}
_READ = "word pieces (BERT), byte-level byte pairs (GPT-2, SmolLM2) and single characters (aw.zoo)"
_BYTES = 256


def packed_reader(tokenizer: Any, longest: int) -> dict[str, Any]:
    """Return the `PackedReader` of js/src/live/reader.ts.

    Args:
        tokenizer: A fast tokenizer of transformers.
        longest: The most tokens of a text.

    Raises:
        ValueError: A page cannot read texts as it does; the message names the unsupported part.
    """
    from attnwidgets.tracing.recording.inputs import special_ids

    name = type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"the tokenizer {name} is not a fast one; a page reads {_READ}")
    described = json.loads(backend.to_str())
    kind = described["model"]["type"]
    if kind not in _KINDS:
        raise ValueError(f"the tokenizer {name} ({kind}) is not read in a page; it reads {_READ}")
    described_by_kind = _KINDS[kind](name, tokenizer, described)
    ids = {*described["model"]["vocab"].values(), *(token["id"] for token in described["added_tokens"])}
    count = max(ids) + 1
    tokens = ["" if token is None else token for token in tokenizer.convert_ids_to_tokens(range(count))]
    before, after = _around(name, described["post_processor"])
    return {
        **described_by_kind,
        "tokens": tokens,
        "special": sorted(number for number in special_ids(tokenizer) if number < count),
        "added": _added(name, described),
        "before": before,
        "after": after,
        "longest": longest,
    }


def _added(name: str, described: Mapping[str, Any]) -> list[int]:
    """Return the ids of tokens that are cut out of a text before it is read."""
    for token in described["added_tokens"]:
        ways = [way for way in ("lstrip", "rstrip", "single_word") if token[way]]
        ways += ["normalized"] if token["normalized"] and described["normalizer"] is not None else []
        if ways:
            raise ValueError(
                f"the tokenizer {name} finds {token['content']!r} in a way ({ways[0]}) that a page does not"
            )
    return [token["id"] for token in described["added_tokens"]]


def _characters(name: str, tokenizer: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    from attnwidgets.tracing.predictions import spelled

    count = max(described["model"]["vocab"].values()) + 1
    return {
        "kind": "characters",
        "labels": [spelled(tokenizer, number) for number in range(count)],
        **_normalised(name, described["normalizer"]),
        "dropsBlanks": _drops_blanks(name, described["pre_tokenizer"]),
    }


def _word_pieces(name: str, tokenizer: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    del tokenizer
    model, normalizer = described["model"], described["normalizer"] or {"type": "None"}
    splits = (described["pre_tokenizer"] or {"type": "None"})["type"]
    if (normalizer["type"], splits) != ("BertNormalizer", "BertPreTokenizer"):
        raise ValueError(
            f"the tokenizer {name} reads texts by {normalizer['type']} and {splits}, and a page by "
            "BertNormalizer and BertPreTokenizer"
        )
    accents, lower = normalizer["strip_accents"], normalizer["lowercase"]
    return {
        "kind": "wordpiece",
        "bare": lower if accents is None else accents,
        "lower": lower,
        "splitsHan": normalizer["handle_chinese_chars"],
        "clean": normalizer["clean_text"],
        "prefix": model["continuing_subword_prefix"],
        "unknown": model["vocab"][model["unk_token"]],
        "most": model["max_input_chars_per_word"],
    }


def _byte_pairs(name: str, tokenizer: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    del tokenizer
    model, steps = described["model"], list(_steps(described["pre_tokenizer"], "pretokenizers"))
    unread = [
        option for option in ("dropout", "byte_fallback", "ignore_merges", *_AFFIXES) if model.get(option)
    ]
    if unread or described["normalizer"] is not None:
        what = unread[0] if unread else described["normalizer"]["type"]
        raise ValueError(f"the tokenizer {name} merges bytes in a way ({what}) that a page does not")
    digits = bool(steps) and steps[0]["type"] == "Digits" and steps[0]["individual_digits"]
    words = steps[1:] if digits else steps
    is_plain = [step["type"] for step in words] == ["ByteLevel"]
    if not is_plain or words[0]["add_prefix_space"] or not words[0]["use_regex"]:
        kinds = ", ".join(step["type"] for step in steps) or "nothing"
        raise ValueError(
            f"the tokenizer {name} splits texts into words in a way ({kinds}) that a page does not have: it "
            "has those of GPT-2 and SmolLM2"
        )
    if model["unk_token"] and sum(len(token) == 1 for token in model["vocab"]) < _BYTES:
        raise ValueError(
            f"the tokenizer {name} reads some bytes as {model['unk_token']!r}, which a page does not"
        )
    pairs = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
    return {"kind": "bpe", "merges": list(pairs), "digits": digits}


_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")

_KINDS: Mapping[str, Callable[[str, Any, Mapping[str, Any]], dict[str, Any]]] = {
    "WordLevel": _characters,
    "WordPiece": _word_pieces,
    "BPE": _byte_pairs,
}
"""How the tokenizers of each kind of the tokenizers library are described."""


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
    result = pattern.get("Regex", "")
    if "String" in pattern:
        return re.sub(r"[][\\.*+?(){}|^$/]", r"\\\g<0>", pattern["String"])
    if not _PLAIN_PATTERN.fullmatch(result):
        raise ValueError(f"the tokenizer {name} replaces {result!r}, which a page does not read the same way")
    return result


def _drops_blanks(name: str, described: Mapping[str, Any] | None) -> bool:
    steps = _steps(described, "pretokenizers")
    kinds = [step["type"] for step in steps]
    splits = [step for step in steps if step["type"] == "Split"]
    whole = len(splits) == 1 and splits[0]["pattern"].get("Regex") in _ONE_CHARACTER
    is_plain = kinds in (["Split"], ["WhitespaceSplit", "Split"])
    if not whole or not is_plain or splits[0]["behavior"] != "Isolated" or splits[0]["invert"]:
        raise ValueError(f"the tokenizer {name} does not split a text into characters; a page reads {_READ}")
    return "WhitespaceSplit" in kinds


def _around(name: str, described: Mapping[str, Any] | None) -> tuple[list[int], list[int]]:
    """Return the ids before and after every text."""
    sides: tuple[list[int], list[int]] = ([], [])
    for step in _steps(described, "processors"):
        if step["type"] == "BertProcessing":
            sides[0].append(step["cls"][1])
            sides[1].append(step["sep"][1])
        elif step["type"] == "TemplateProcessing":
            side = 0
            for part in step["single"]:
                if "Sequence" in part:
                    side = 1
                else:
                    sides[side].extend(step["special_tokens"][part["SpecialToken"]["id"]]["ids"])
        elif step["type"] != "ByteLevel" or step["trim_offsets"]:
            raise ValueError(f"the tokenizer {name} adds tokens in a way ({step['type']}) a page does not")
    return sides
