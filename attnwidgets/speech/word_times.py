"""WordTimes: the words of a sound with their times, and the unit `word` on the frames of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload
from weakref import WeakValueDictionary

import numpy as np

from attnwidgets._tables import Table
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.trace import Trace

SILENCE = "[SIL]"
"""Label of the frames between words, and before and after them."""
PADDING = "[PAD]"
_SAME = 1e-6  # seconds; times of frames are multiples of a step, in floating point

How = Literal["cross-attention", "ctc", "given"]
# Results of `align` by the id of their trace, as long as the user has them: views read them from here.
_ALIGNED: WeakValueDictionary[str, WordTimes] = WeakValueDictionary()


class WordTime(NamedTuple):
    """A word of a sound.

    Attributes:
        word: The word.
        start: Second at which it begins.
        end: Second at which it ends.
        probability: Mean probability of its tokens; NaN if times were given.
    """

    word: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, eq=False, repr=False)
class WordTimes(Sequence[WordTime], Table):
    """The words of a sound, in order, with their times; `aw.speech.align` makes it.

    `.trace` is the trace with the unit "word" on the frames of its sound: words by their times, silence
    between them ("[SIL]"), and all padding as one special element ("[PAD]"). Explanations of this trace have
    its sound by words: `aw.attention(times.trace, stack="encoder").to("word")`,
    `aw.value_zeroing(times.trace, stack="encoder", unit="word")`, every view.

    Args:
        words: The words [word].
        start: Seconds [word].
        end: Seconds [word].
        probability: Mean probability of the tokens of each word [word]; NaN if times were given.
        trace: The trace that was aligned, with words of its sound.
        how: "cross-attention", "ctc" or "given".
        tokens: Tokens of which each word is made, as rows of `matrix`: (first, last + 1) [word].
        token_labels: Display strings of the rows of `matrix`.
        matrix: Scores from which words were aligned [token, frame], from 0 to the end of the sound. Of
            cross-attention: attention standardised over tokens, in standard deviations, the mean over
            alignment heads. Of CTC: the probability of a token at a frame. Without rows if times were given.
        path: Tokens [step] and frames [step] through the matrix.
        step: Seconds from one frame to the next.
        heads: Heads that were read, as (layer, head).
        padding: Share of these heads' attention that lies on padding after the sound [word], which is
            not aligned; None without padding.
        note: A caveat of the alignment; "" without.
    """

    words: tuple[str, ...]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    probability: NDArray[np.float64]
    trace: Trace
    how: How
    tokens: tuple[tuple[int, int], ...]
    token_labels: tuple[str, ...]
    matrix: NDArray[np.float64]
    path: tuple[NDArray[np.intp], NDArray[np.intp]]
    step: float
    heads: tuple[tuple[int, int], ...] = ()
    padding: NDArray[np.float64] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _ALIGNED[self.trace.id] = self

    @property
    def seconds(self) -> float:
        """Seconds of the sound that the model heard."""
        sound = self.trace.sound
        return float(self.end[-1]) if sound is None else float(sound.heard)

    def __len__(self) -> int:
        return len(self.words)

    @overload
    def __getitem__(self, index: int) -> WordTime: ...

    @overload
    def __getitem__(self, index: slice) -> list[WordTime]: ...

    def __getitem__(self, index: int | slice) -> WordTime | list[WordTime]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        numbers = (float(column[index]) for column in (self.start, self.end, self.probability))
        return WordTime(self.words[index], *numbers)

    def __iter__(self) -> Iterator[WordTime]:
        return (self[index] for index in range(len(self)))

    def _columns(self) -> Iterator[Columns]:
        """Yield word, start, end, probability and, of alignment heads, the share of padding."""
        columns: dict[str, Any] = {
            "word": np.asarray(self.words, dtype=object),
            "start": self.start,
            "end": self.end,
            "probability": self.probability,
        }
        yield columns if self.padding is None else columns | {"padding": self.padding}

    def __repr__(self) -> str:
        shown = ", ".join(f"{word} {start:.2f}–{end:.2f}" for word, start, end, _ in self[:4])
        more = f", … {len(self) - 4} more" if len(self) > 4 else ""  # noqa: PLR2004 - four fit a line
        note = f"; {self.note}" if self.note else ""
        return f"<WordTimes by {self.how}: {shown}{more}{note}>"


def known_times(trace: Trace) -> WordTimes | None:
    """Return the `WordTimes` whose trace this is; None if there is none, or the user dropped it."""
    return _ALIGNED.get(trace.id)


def frame_unit(trace: Trace) -> Unit:
    """Return the frames of the sound that a trace's model read.

    Raises:
        ValueError: If no stack reads a sound whose frames have times.
    """
    for stack in ("encoder", *trace.stacks):
        for axis in trace.axes(stack) if stack in trace.stacks else ():
            unit = axis.units.get("frame")
            if unit is not None and unit.times is not None:
                return unit
    raise ValueError(
        "this trace has no frames of a sound with known times: make it with "
        "aw.trace(model, processor, audio=...)"
    )


def frame_step(trace: Trace) -> float:
    """Return the seconds from one frame of a trace's sound to the next."""
    times = [time for time in frame_unit(trace).times or () if time is not None]
    if len(times) == 1:
        return times[0][1] - times[0][0]
    in_a_second = (len(times) - 1) / (times[-1][0] - times[0][0])
    return 1 / (round(in_a_second) if abs(in_a_second - round(in_a_second)) < _SAME else in_a_second)


def with_words(
    trace: Trace, words: Sequence[str], start: NDArray[np.float64], end: NDArray[np.float64]
) -> Trace:
    """Return a trace with the unit "word" on every axis of frames; `trace` is not changed.

    A frame belongs to the word in which it begins, and so to at most one word. Words shorter than a frame may
    have no frames, and are then not elements.
    """
    import uuid

    frames = frame_unit(trace)
    unit = _word_unit(frames, words, start, end)
    changed: dict[int, TokenAxis] = {}

    def worded(axis: TokenAxis) -> TokenAxis:
        if axis.units.get("frame") != frames:
            return axis
        # An axis that is query and key stays one object: views and maps see by it that both are the same.
        return changed.setdefault(id(axis), replace(axis, units={**axis.units, "word": unit}))

    stacks = {
        name: replace(stack, query=worded(stack.query), key=worded(stack.key))
        for name, stack in trace.stack_table.items()
    }
    return replace(trace, stack_table=stacks, id=uuid.uuid4().hex)


def _word_unit(
    frames: Unit, words: Sequence[str], start: NDArray[np.float64], end: NDArray[np.float64]
) -> Unit:
    """Return words, silences and padding as elements over frames, in the order of time."""
    elements: list[tuple[Any, str, list[int]]] = []
    for number, (span, special) in enumerate(zip(frames.times or (), frames.special, strict=True)):
        begin = None if span is None else span[0] + _SAME
        owner: int | str
        if special or begin is None:
            owner, label = "padding", PADDING
        elif (inside := np.flatnonzero((start <= begin) & (begin < end))).size:
            owner, label = int(inside[0]), words[int(inside[0])]
        else:
            owner, label = "silence", SILENCE
        same = next((element for element in elements if element[0] == owner and owner != "silence"), None)
        if same is None and elements and elements[-1][0] == owner:
            same = elements[-1]  # silence goes on; a later silence is another element
        if same is None:
            elements.append((owner, label, [number]))
        else:
            same[2].append(number)
    times = frames.times or ()

    def bounds(owner: Any, numbers: list[int]) -> tuple[float, float] | None:
        if isinstance(owner, int):
            return float(start[owner]), float(end[owner])
        first, last = times[numbers[0]], times[numbers[-1]]
        return None if first is None or last is None else (first[0], last[1])

    return Unit(
        "word",
        tuple(label for _, label, _ in elements),
        tuple(tuple(numbers) for _, _, numbers in elements),
        tuple(owner == "padding" for owner, _, _ in elements),
        times=tuple(bounds(owner, numbers) for owner, _, numbers in elements),
        rule="given",
    )
