"""Claims written for a reader: from cells of a head's attention, or its most distinctive statistic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attnwidgets.circuits.claims.grammar import Claim
from attnwidgets.circuits.claims.roles import PREDEFINED, Roles, sample_of
from attnwidgets.statistics.statistic import statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.tracing.trace import Trace

_WORDS = re.compile(r"[^\W\d_]\w*")
_TAKEN = frozenset({*PREDEFINED, "to", "more", "than", "from"})  # words of the grammar, and predefined roles
_SHARE = "share of the query"  # scale of the statistics that name a pattern


def claim_of_cells(
    trace: Trace, layer: int, head: int, cells: Sequence[tuple[int, int]]
) -> tuple[Claim, dict[str, Any]]:
    """Return the claim that a head attends from the queries of cells to their keys, and its roles.

    Args:
        trace: The trace; its text was read as plain text.
        layer: Number of the layer.
        head: Number of the head.
        cells: (query, key), counted in tokens.

    Raises:
        LookupError: Every cell is of a single token, or the text was not read as plain text.
    """
    apart = [(query, key) for query, key in cells if query != key]
    if not apart:
        raise LookupError("a claim is about two tokens: pin a cell of two, or two tokens.")
    sides = [sorted({cell[side] for cell in apart}) for side in (0, 1)]
    texts = [_word(trace, tokens) for tokens in sides]
    names = ["later", "earlier"] if sides[0][0] > sides[1][0] else ["earlier", "later"]
    if all(map(_is_name, texts)) and texts[0] != texts[1]:
        names = texts
    roles = {
        name: role_entry(trace.tokenizer, trace.text, tokens)
        for name, tokens in zip(names, sides, strict=True)
    }
    return Claim(layer, head, "attends", source=names[0], target=names[1]), roles


def claim_of_head(trace: Trace, layer: int, head: int) -> Claim:
    """Return the claim about a head that exceeds the other heads of its layer most in a text.

    Args:
        trace: The trace.
        layer: Number of the layer.
        head: Number of the head.

    Raises:
        LookupError: No statistic can be measured on this text.
    """
    from attnwidgets.circuits.claims.evidence import LeftOut, Others, observed  # loads torch

    shares = (
        name for name, item in statistics().items() if item.measure is not None and _SHARE in item.scale
    )
    beyond: dict[str, float] = {}
    sizes = [trace.n_heads(None, number) if number == layer else 0 for number in trace.layers()]
    for name in (*shares, "induction"):
        entry = Claim(layer, head, "is", name)
        try:
            result = observed(
                entry, Others.of(entry, sizes, 0), Roles(None, (), 1), trace, trace.tokenizer, 0
            )
        except LeftOut:
            continue
        beyond[name] = result.value - (float(result.heads.mean()) if len(result.heads) else 0.0)
    if not beyond:
        raise LookupError("no statistic of heads can be measured on this text: pin a cell of two tokens.")
    return Claim(layer, head, "is", max(beyond, key=lambda name: beyond[name]))


def role_entry(tokenizer: Any, text: str, tokens: Sequence[int]) -> Any:
    """Return the entry of tokens for `roles=`: a word of the text, or spans in characters."""
    shown = sample_of(tokenizer, text).text
    if shown is None:  # never: a text was encoded
        raise AssertionError
    spans = [shown.spans[at] for at in tokens]
    start, end = spans[0]
    word = text[start:end].strip()
    is_first = bool(word) and start <= text.find(word) < end
    return word if len(spans) == 1 and is_first else [(int(start), int(end)) for start, end in spans]


def _word(trace: Trace, tokens: Sequence[int]) -> str:
    """Return the characters of adjacent tokens, without white space around them.

    Raises:
        LookupError: The text was not read as plain text, so that its tokens have no spans.
    """
    sample = sample_of(trace.tokenizer, trace.text)
    if sample.text is None or len(sample.text.tokens) != len(trace.axes()[0]):
        raise LookupError("claims are checked on plain texts, and this one was read otherwise.")
    spans = [sample.text.spans[at] for at in tokens]
    if any(special for special in (sample.text.special[at] for at in tokens)):
        raise LookupError("special tokens have no position in a text: pin other tokens.")
    is_run = list(tokens) == list(range(tokens[0], tokens[-1] + 1))
    return trace.text[spans[0][0] : spans[-1][1]].strip() if is_run else ""


def _is_name(word: str) -> bool:
    return bool(_WORDS.fullmatch(word)) and word not in _TAKEN
