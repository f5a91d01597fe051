"""Passages: titled stretches of what somebody wrote, given or begun by headings."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets.tracing.text.messages import Passage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.tracing.text.messages import Span

_FEWEST = 2  # one heading divides nothing
_BETWEEN = 8  # characters between a title and its passage: ":", ". ", a line end
_LONGEST = 60  # characters of a heading in a label

_HEADING = re.compile(
    r"""^[^\S\n]*(?:
        (?P<number>\[\d+\])[^\S\n]*(?P<after>[^\n]*)
      | (?P<document>(?:Document|Passage|Source|Context)\ \[?\d+\]?)(?P<title>[^\n]*)
      | \#{1,6}[^\S\n]+(?P<markdown>[^\n]+)
      | Title:[^\S\n]*(?P<titled>[^\n]+)
      | <(?:doc|document|passage|source)\b(?P<tag>[^<>\n]*)>
    )""",
    re.MULTILINE | re.VERBOSE,
)
_QUOTED = re.compile(r"""["']([^"']+)["']""")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_END = re.compile(r"</(?:doc|document|passage|source)>")


def given_passages(
    passages: Sequence[Any], strings: Sequence[str], places: Callable[[int, int, int], tuple[Span, ...]]
) -> tuple[Passage, ...]:
    """Return passages that a user gave, where they are in a text.

    Args:
        passages: Pairs of a title and a text.
        strings: What somebody wrote.
        places: Where characters of a string are in the text.

    Raises:
        ValueError: If they are not such pairs, or a passage does not follow the one before it in the strings.
    """
    begin = (0, 0)
    result = []
    for number, pair in enumerate(passages):
        title, text = _pair(pair, number)
        at = next(
            (
                (string, start)
                for string in range(begin[0], len(strings))
                if (start := strings[string].find(text, begin[1] if string == begin[0] else 0)) >= 0
            ),
            None,
        )
        runs = () if at is None else places(at[0], _start(strings[at[0]], title, at[1]), at[1] + len(text))
        if at is None or not runs:
            after = f" after passage {number - 1}" if number else ""
            what = "the text" if at is None else "what the chat template writes"
            raise ValueError(
                f"passages[{number}] ({quoted(text)}) is not in {what}{after}: passages= says which parts of "
                "the text or messages are passages, in their order; write them there, too"
            )
        begin = (at[0], at[1] + len(text))
        result.append(Passage(title.strip() or f"passage {number}", runs))
    return tuple(result)


def _pair(pair: Any, number: int) -> tuple[str, str]:
    is_pair = isinstance(pair, (tuple, list)) and [type(part) for part in pair] == [str, str]
    if is_pair and pair[1].strip():
        return pair[0], pair[1].strip()
    raise ValueError(
        f'passages[{number}] must be a title and a text, as ("Ada Lovelace", "She was born in 1815."), '
        f"not {pair!r:.80}"
    )


def _start(string: str, title: str, start: int) -> int:
    """Return where a passage begins: at its title, if this stands directly before it."""
    at = string.rfind(title, 0, start) if title.strip() else -1
    between = string[at + len(title) : start]
    is_before = at >= 0 and len(between) <= _BETWEEN and not any(map(str.isalnum, between))
    return at if is_before else start


def headed_passages(
    strings: Sequence[str], places: Callable[[int, int, int], tuple[Span, ...]]
) -> tuple[Passage, ...]:
    """Return the passages that headings of one kind begin: "[1]", "Document 1", "# Title", "Title:", "<doc>".

    The last one has no more paragraphs than the longest before it, so that a question below is not in it.

    Args:
        strings: What somebody wrote.
        places: Where characters of a string are in the text.
    """
    result = []
    for number, string in enumerate(strings):
        for title, start, end in _headed(string):
            if runs := places(number, start, end):
                result.append(Passage(title, runs))
    return tuple(result)


def _headed(string: str) -> list[tuple[str, int, int]]:
    """Return the title, start and end of each passage of a string."""
    headings = list(_HEADING.finditer(string))
    if headings:
        kind = headings[0].lastgroup
        headings = [heading for heading in headings if heading.lastgroup == kind]
    if len(headings) < _FEWEST:
        return []
    starts = [heading.start() for heading in headings]
    most = max(len(_paragraphs(string[start:end])) for start, end in pairwise(starts))
    closed = _END.search(string, starts[-1])
    paragraphs = _paragraphs(string[starts[-1] :])
    last = closed.end() if closed else starts[-1] + paragraphs[min(most, len(paragraphs)) - 1]
    return [
        (_title(heading, number), start, end)
        for number, (heading, start, end) in enumerate(
            zip(headings, starts, [*starts[1:], last], strict=True), 1
        )
    ]


def _paragraphs(text: str) -> list[int]:
    """Return where the paragraphs of a text end."""
    ends = [match.start() for match in _BLANK_LINE.finditer(text) if text[: match.start()].strip()]
    return [*(end for end in ends if text[end:].strip()), len(text)]


def _title(heading: re.Match[str], number: int) -> str:
    found = heading.groupdict()
    named = _QUOTED.search(found["tag"] or "")
    title = (
        found["markdown"] or found["titled"] or (named[1] if named else "") or heading.group().strip(" <>")
    )
    if found["number"]:
        title = heading.group()
    title = " ".join(title.split()).strip("#: ") or f"passage {number}"
    return title if len(title) <= _LONGEST else title[: _LONGEST - 1].rstrip() + "…"
