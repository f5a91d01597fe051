"""Units: the spans of tokens in which a map is read (token, word, sentence, patch, frame)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from attnwidgets.tracing.text.messages import Message


Box = tuple[float, float, float, float]
"""Top, left, bottom and right, in pixels."""

_SOFT_PROMPT = re.compile(r"\[P\d+\]")


def soft_prompt_label(index: int) -> str:
    """Return the label of a position of a soft prompt or a prefix, which has no token."""
    return f"[P{index}]"


@dataclass(frozen=True, repr=False)
class Unit:
    """An ordered list of spans over tokens.

    Args:
        name: "token", "word", "sentence", "paragraph", "passage", "message", "role", "turn", "span", "patch",
            "query" (a learned token that reads a picture) or "frame".
        labels: Display strings, one per element.
        spans: Token indices of every element. Non-contiguous spans are allowed;
            every token belongs to exactly one element.
        special: Whether an element is a special token, which is always a separate element.
        grid: Rows and columns of a picture's patches.
        cells: With a grid, the number of each element's patch, counted row by row; None for other elements
            (class and register tokens, words).
        boxes: Where each element lies in the given picture, in pixels: (top, left, bottom, right). Several
            may lie on the same pixels, if the model reads the picture in several views. None for others.
        times: Start and end of audio frames in seconds; None for elements that are not in the sound.
        rule: For words, the name of the rule that splits the text (`words.RULES`), or "given".
        titled: For passages, whether an element is one, with its title as label: the others are what is left
            of a message or a text. None for other units.
    """

    name: str
    labels: tuple[str, ...]
    spans: tuple[tuple[int, ...], ...]
    special: tuple[bool, ...]
    grid: tuple[int, int] | None = None
    times: tuple[tuple[float, float] | None, ...] | None = None
    rule: str = field(default="", compare=False)
    cells: tuple[int | None, ...] | None = None
    boxes: tuple[Box | None, ...] | None = None
    titled: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(map(well_formed, self.labels)))

    def __len__(self) -> int:
        return len(self.spans)

    def membership(self, n_tokens: int) -> np.ndarray:
        """Return the 0/1 matrix [element, token] that is 1 where a token belongs to an element."""
        matrix = np.zeros((len(self), n_tokens))
        for element, span in enumerate(self.spans):
            matrix[element, list(span)] = 1.0
        return matrix

    def __repr__(self) -> str:
        return f"<Unit {self.name}: {len(self.labels)} elements>"


class Units(Mapping[str, Unit]):
    """Units by name. Those given as functions are made when they are first read.

    Splitting a short text into words takes as long as a tenth of a small model's pass, and most texts of a
    list are read by tokens alone.
    """

    def __init__(self, units: Mapping[str, Unit | Callable[[], Unit]]) -> None:
        self._units = dict(units)

    def __getitem__(self, name: str) -> Unit:
        unit = self._units[name]
        if not isinstance(unit, Unit):
            unit = self._units[name] = unit()
        return unit

    def __contains__(self, name: object) -> bool:
        return name in self._units

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, repr=False)
class TokenAxis:
    """An axis of a map: its tokens and every unit they can be read in.

    Args:
        tokens: Display strings.
        units: Units by name; "token" is always among them.
        segment: Index of the text that a token belongs to (0, or 0 and 1 for a pair).
        boundary: Index of the first generated token, if any.
        text: The text that was read.
        messages: The messages of a chat.
    """

    tokens: tuple[str, ...]
    units: Mapping[str, Unit]
    segment: tuple[int, ...] = ()
    boundary: int | None = None
    text: str = ""
    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(map(well_formed, self.tokens)))
        object.__setattr__(self, "text", well_formed(self.text))
        if not isinstance(self.units, Units):
            object.__setattr__(self, "units", Units(self.units))
        if not self.segment:
            object.__setattr__(self, "segment", (0,) * len(self.tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each position: "token", "special", "soft prompt", "patch", "frame", "padding", "query"."""
        if "query" in self.units:
            return ("query",) * len(self)
        if "frame" in self.units:
            return tuple("padding" if padding else "frame" for padding in self.units["frame"].special)
        special = self.units["token"].special if "token" in self.units else (False,) * len(self)
        kinds = [
            ("soft prompt" if _SOFT_PROMPT.fullmatch(label) else "special") if is_special else "token"
            for label, is_special in zip(self.tokens, special, strict=True)
        ]
        for unit in self.units.values():
            for place, span in zip(unit.boxes or unit.cells or (), unit.spans, strict=False):
                if place is not None:
                    kinds[span[0]] = "patch"
        return tuple(kinds)

    def __repr__(self) -> str:
        return f"<TokenAxis of {len(self)} tokens; read by {', '.join(self.units)}>"

    def __reduce__(self) -> tuple[object, ...]:
        values = (self.tokens, dict(self.units), self.segment, self.boundary, self.text, self.messages)
        return (TokenAxis, values)

    @staticmethod
    def plain(labels: Sequence[str], *, name: str = "token") -> TokenAxis:
        """Return an axis whose only unit is the labels themselves."""
        tokens = tuple(labels)
        unit = Unit(name, tokens, tuple((i,) for i in range(len(tokens))), (False,) * len(tokens))
        return TokenAxis(tokens, {name: unit})


def surplus_keys(query: TokenAxis, key: TokenAxis) -> str:
    """Return in words which keys a sequence reads in addition to its tokens; "" if there are none."""
    n_tokens, extra = len(query), len(key) - len(query)
    if extra <= 0 or query.tokens not in (key.tokens[extra:], key.tokens[:n_tokens]):
        return ""
    return f"{extra} of the {len(key)} keys are none of its tokens (a prefix, a cache or another text)"
