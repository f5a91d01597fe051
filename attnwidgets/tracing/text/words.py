"""Words, sentences and paragraphs over tokens.

Words are defined on the text, not on the vocabulary, so every tokenizer gives the same words:

1. A fast tokenizer's offsets say where each token is in the text.
2. Without offsets (generated text, raw ids, Python tokenizers) tokens are turned back into text: byte-level
   BPE and SentencePiece spell their spaces, WordPiece marks continuations with "##".
3. A named rule (`RULES`) defines words. By "standard", runs of letters, digits and marks are words, as are
   "don't", "state-of-the-art", "3.14"; every other character is a separate element. In scripts without
   spaces, each Han character and each run of kana is a word (pass a segmenter's words as `words=`); Thai,
   Lao, Khmer and Burmese runs stay whole.
4. Words that share a token merge, since a token belongs to one element only.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from attnwidgets._errors import suggest
from attnwidgets.tracing.text.display import SPACE, graphemes, visible
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Span = tuple[int, int]

_INSIDE = "'’-‐·"
_NUMERIC = ".,:"
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3040-\u30fa\u30fc-\u30ff]")
_SHORT = r"Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|cf|Fig|Eq|No|al"
_LONGEST = 8  # characters up to a full stop in which an abbreviation is searched for
_ABBREVIATION = re.compile(rf"(?:\b(?:{_SHORT})|(?<![^\W\d_])[A-Z])\.$")
_ABBREVIATED = re.compile(rf"(?<!\w)(?:(?:[^\W\d_]\.){{2,}}|(?:{_SHORT})\.)(?!\w)")
# Invisible characters (the property Format of UAX 29): soft hyphen, marks of direction.
_FORMAT = "".join(
    chr(code)
    for code in (0xAD, 0x61C, 0x180E, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
)
_PARAGRAPH = re.compile(r"\S(?:.*?\S)??(?=\s*\Z|\s*\n[^\S\n]*\n)", re.DOTALL)
STANDARD = "standard"
GIVEN = "given"
"""The rule's name for words given by the user."""
RULES = {
    STANDARD: "runs of letters, digits and marks; apostrophes, hyphens and middle dots join them, full stops "
    "between digits or capitals do, and commas and colons between digits",
    "abbreviations": "as standard, and an abbreviation keeps its full stops: letters with one after each "
    "(U.S., e.g.), and those that end no sentence (Mr., Dr., etc., ...)",
    "punctuation": "runs of letters, digits and marks; nothing joins them",
    "whitespace": "everything between blanks, including punctuation",
}
"""The definition of a word, by the rule's name."""

_STOP = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*(?=\s|$))|[。！？]+[」』”’）]*|\n+")


def _kind(cluster: str) -> str:
    """Return the kind of a user-perceived character: "letter", "han", "kana", "space" or "other"."""
    char = cluster[:1]
    if char.isspace():
        return "space"
    if _HAN.match(char):
        return "han"
    if _KANA.match(char):
        return "kana"
    if char == "_" or (char and unicodedata.category(char)[0] in "LNM"):
        return "letter"
    return "other"


def require_rule(rule: str, argument: str = "words") -> None:
    """Raise ValueError for an unknown rule."""
    if rule not in RULES:
        raise ValueError(
            f"{argument} must be a list of words, as ['New', 'York'], or a rule to find them by, "
            f"{', '.join(map(repr, RULES))}; not {rule!r}.{suggest(rule, RULES)}"
        )


def word_spans(text: str, rule: str = STANDARD) -> list[Span]:
    """Return the character spans of the words of a text; whitespace belongs to none.

    Args:
        text: The text.
        rule: A name in `RULES`.
    """
    if rule == "whitespace":
        return [match.span() for match in re.finditer(r"\S+", text)]
    spans = _runs(text, joined=rule != "punctuation")
    return _with_stops(text, spans) if rule == "abbreviations" else spans


def _with_stops(text: str, spans: list[Span]) -> list[Span]:
    """Return spans with those inside an abbreviation joined, including its full stops."""
    whole = [match.span() for match in _ABBREVIATED.finditer(text)]
    outside = [(b, e) for b, e in spans if not any(begin <= b and e <= end for begin, end in whole)]
    return sorted([*outside, *whole])


def _runs(text: str, *, joined: bool) -> list[Span]:
    """Return the spans of runs of letters, digits and marks, and of every other character.

    Args:
        text: The text.
        joined: Whether punctuation inside a run may join it.
    """
    clusters = _with_format(text, graphemes(text))
    kinds = [_kind(text[begin:end].lstrip(_FORMAT)) for begin, end in clusters]
    spans: list[Span] = []
    previous = "space"
    for i, ((begin, end), kind) in enumerate(zip(clusters, kinds, strict=True)):
        joiner = text[begin:end]
        if joined and (previous, *kinds[i : i + 2]) == ("letter", "other", "letter"):
            before, after = text[begin - 1], text[clusters[i + 1][0]]
            numeric = before.isdigit() and after.isdigit()
            initials = joiner == "." and before.isupper() and after.isupper()
            if joiner in _INSIDE or (joiner in _NUMERIC and numeric) or initials:
                kind = "letter"  # noqa: PLW2901 - the joiner counts as a letter
        if kind != "space":
            if kind == previous and kind in ("letter", "kana"):
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((begin, end))
        previous = kind
    return spans


def _with_format(text: str, clusters: list[Span]) -> list[Span]:
    """Return the spans of characters; format characters belong to the character before (UAX 29, rule WB4).

    Without a character before them, as a mark of direction at the start of a word, they belong to the next.
    """
    joined: list[Span] = []
    waiting: int | None = None
    for begin, end in clusters:
        if text[begin] in _FORMAT:
            if waiting is None and joined and not text[joined[-1][0]].isspace():
                joined[-1] = (joined[-1][0], end)
            else:
                waiting = begin if waiting is None else waiting
            continue
        is_space = text[begin].isspace()
        if waiting is not None and is_space:
            joined.append((waiting, begin))
        joined.append((begin if waiting is None or is_space else waiting, end))
        waiting = None
    return joined if waiting is None else [*joined, (waiting, len(text))]


def sentence_spans(text: str) -> list[Span]:
    """Return the character spans of the sentences of a text, without the blanks between them."""
    ends = []
    for stop in _STOP.finditer(text):
        # From near the stop: a search from the beginning would be slow in a long text.
        near = max(0, stop.end() - _LONGEST)
        if stop.group()[0] == "." and _ABBREVIATION.search(text, near, stop.end()):
            continue
        ends.append(stop.end())
    spans: list[Span] = []
    begin = 0
    for end in [*ends, len(text)]:
        part = text[begin:end]
        lead = len(part) - len(part.lstrip())
        if part.strip():
            spans.append((begin + lead, begin + len(part.rstrip())))
        begin = max(begin, end)
    return spans


def paragraph_spans(text: str) -> list[Span]:
    """Return the character spans of the paragraphs of a text, which blank lines separate."""
    return [part.span() for part in _PARAGRAPH.finditer(text)]


def given_spans(text: str, words: Sequence[str], argument: str = "words") -> list[Span]:
    """Return the spans of the user's words in a text, in order.

    Raises:
        ValueError: If a word is empty or does not follow the previous word in the text.
    """
    spans: list[Span] = []
    end = 0
    for number, word in enumerate(words):
        begin = text.find(word, end)
        if begin < 0 or not word.strip():
            why = f"does not follow {words[number - 1]!r} in the text" if number else "is not in the text"
            raise ValueError(f"{argument}[{number}] = {word!r} {why if word.strip() else 'is empty'}")
        end = begin + len(word)
        spans.append((begin, end))
    return spans


def join_words(words: Sequence[str]) -> str:
    """Return pre-split words as text, with spaces between them except between Han or kana."""
    text = ""
    for word in words:
        tight = text and word and _kind(text[-1]) in ("han", "kana") and _kind(word) in ("han", "kana")
        text += ("" if tight or not text else " ") + word
    return text


def unit_from_spans(
    name: str,
    text: str,
    elements: Sequence[Span],
    spans: Sequence[Span],
    special: Sequence[bool],
    tokens: Sequence[str],
    rule: str = "",
) -> Unit:
    """Return the unit whose elements are spans of a text, for tokens at `spans` of that text.

    A token belongs to the element it overlaps; elements that share a token merge; a token outside all
    elements is a separate element, as is every special token.
    """
    # Elements are in the order of the text and do not overlap, so a token touches a run of them.
    starts, ends = [b for b, _ in elements], [e for _, e in elements]
    touched = [
        range(0) if apart or end <= begin else range(bisect_right(ends, begin), bisect_left(starts, end))
        for (begin, end), apart in zip(spans, special, strict=True)
    ]
    # Each element is identified by the first element that it is merged with.
    first = list(range(len(elements)))
    joined = {i for run in touched for i in run[1:]}
    for i in sorted(joined):
        first[i] = first[i - 1]
    groups: dict[tuple[bool, int], list[int]] = {}
    for token, run in enumerate(touched):
        groups.setdefault((True, first[run[0]]) if run else (False, token), []).append(token)
    last = {head: i for i, head in enumerate(first)}
    labels = tuple(
        visible(text[starts[key] : ends[last[key]]]).replace(SPACE, " ") if inside else tokens[key]
        for inside, key in groups
    )
    return _unit(name, labels, groups.values(), special, rule)


def _unit(
    name: str, labels: tuple[str, ...], groups: Iterable[list[int]], special: Sequence[bool], rule: str = ""
) -> Unit:
    members = tuple(tuple(group) for group in groups)
    apart = tuple(all(special[i] for i in group) for group in members)
    return Unit(name, labels, members, apart, rule=rule)


def unit_from_ids(
    name: str, ids: Sequence[int | None], tokens: Sequence[str], special: Sequence[bool]
) -> Unit:
    """Return the unit in which tokens with the same id form an element, also if apart; None stands alone."""
    groups: dict[object, list[int]] = {}
    for token, key in enumerate(ids):
        groups.setdefault(("alone", token) if key is None else key, []).append(token)
    labels = tuple(
        "".join(tokens[i].removeprefix("##") for i in group).strip("␣▁Ġ") or tokens[group[0]]
        for group in groups.values()
    )
    return _unit(name, labels, groups.values(), special, GIVEN)
