"""Cue contribution in speech: how much of a word's context lies on its cue, stack by stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.explanations.registry.registry import explain
from attnwidgets.explanations.results.aggregation import sum_groups
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.speech.word_times import WordTimes

    Float = NDArray[np.float64]

PAPER = (
    "Mohebbi et al. 2023, Homophone Disambiguation Reveals Patterns of Context Mixing in Speech Transformers"
)
RANDOM = "random"
Stack = Literal["encoder", "decoder", "cross"]
STACKS: tuple[Stack, ...] = ("encoder", "decoder", "cross")
_NAME = "spoken word"  # of the unit in which a method computes


@dataclass(frozen=True, eq=False, repr=False)
class SpokenCues(Table):
    """How much of targets' context lies on their cues; `aw.speech.cue_contribution` makes it.

    Args:
        values: [example, stack, method, layer], 0 to 1; NaN where a stack has fewer layers, or a cue of the
            decoder follows the target.
        stacks: Names of the stacks.
        methods: Names of the methods, the last of which is "random": a map that knows nothing.
    """

    values: Float
    stacks: tuple[str, ...]
    methods: tuple[str, ...]

    @property
    def mean(self) -> Float:
        """Mean over examples [stack, method, layer]."""
        known = np.isfinite(self.values)
        total = np.where(known, self.values, 0).sum(axis=0)
        count = known.sum(axis=0)
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)

    def _columns(self) -> Iterator[Columns]:
        """Yield stack, method, layer, contribution (the mean) and n (examples that count)."""
        stack, method, layer = (axis.reshape(-1) for axis in np.indices(self.values.shape[1:]))
        yield {
            "stack": np.asarray(self.stacks, dtype=object)[stack],
            "method": np.asarray(self.methods, dtype=object)[method],
            "layer": layer,
            "contribution": self.mean.reshape(-1),
            "n": np.isfinite(self.values).sum(axis=0).reshape(-1),
        }

    def __repr__(self) -> str:
        count = len(self.values)
        of = f"{count} example{'s' * (count != 1)}"
        return f"<SpokenCues of {of}: {', '.join(self.methods)}; {', '.join(self.stacks)}>"


def cue_contribution(
    examples: Sequence[tuple[WordTimes, int, int | Sequence[int]]],
    *,
    methods: Sequence[str] = ("attention", "value_zeroing"),
    stacks: Sequence[Stack] = STACKS,
) -> SpokenCues:
    """Return how much of a word's context lies on its cues, layer by layer, in each stack of a speech model.

    Of homophones (*pear*, *pair*), the sound says nothing, and a cue (*ate*) decides. The row of the target
    over all words is divided by its sum; its values on the cues are added. In the encoder the row is that of
    the target's frames, over the frames of words; in cross-attention that of the tokens which write it, over
    the frames of words; in the decoder, over the words written before. Silence, padding and special tokens
    take no part.

    Value zeroing is computed by words: the values of all frames of a word are zeroed together (with the final
    norm in the last layer, as the authors do). Other methods' maps are summed over a word's frames.

    Args:
        examples: (times, target, cues): the result of `aw.speech.align` for a trace of an encoder-decoder,
            the number of the target word, and that of its cue, or several.
        methods: Names in `aw.methods()` that return maps.
        stacks: "encoder", "decoder" and "cross", or some of them.

    Returns:
        The contributions, with "random" as the last method: the number of cues by the number of words that
        the row can see.

    Raises:
        ValueError: If examples are empty, a stack is unknown, a method does not support the model, or the
            target is its own cue.
        IndexError: If the word is out of range.

    Source: Mohebbi et al. 2023, section 4. There a frame on the border belongs to both words; here it belongs
    to the word that begins in it.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        >>> trace = aw.trace(*aw.demo_model("speech"), audio=noise, target_text=" Rain on leaves.")
        >>> times = aw.speech.align(trace)
        >>> found = aw.speech.cue_contribution([(times, 2, 0)], methods=["attention"], stacks=["cross"])
        >>> found.values.shape, float(found.mean[0, -1, 0])  # one of four words
        ((1, 1, 2, 4), 0.25)
    """
    given = list(examples)
    if not given:
        raise ValueError("examples is empty: give (times, target, cues) for at least one sound.")
    for stack in stacks:
        require_choice("stacks", stack, STACKS)
    scores = []
    for times, target, cue in given:
        word = position(target, range(len(times)), "target")
        cues = [position(one, range(len(times)), "cue") for one in ([cue] if isinstance(cue, int) else cue)]
        if word in cues:
            raise ValueError(f"cue must name words other than the target, {times.words[word]!r}.")
        scores.append([_of_stack(times, word, cues, methods, stack) for stack in stacks])
    layers = max(values.shape[1] for one in scores for values in one)
    table = np.full((len(scores), len(stacks), len(methods) + 1, layers), np.nan)
    for number, one in enumerate(scores):
        for place, values in enumerate(one):
            table[number, place, :, : values.shape[1]] = values
    return SpokenCues(table, tuple(stacks), (*methods, RANDOM))


def word_rows(times: WordTimes, method: str, stack: Stack) -> Float:
    """Return how much of every word is in every word [layer, word, word]; rows sum to one, or are zero.

    See `cue_contribution` for which rows and columns these are.

    Args:
        times: The words of a sound.
        method: A name in `aw.methods()` that returns a map.
        stack: "encoder", "decoder" or "cross".
    """
    trace = times.trace
    query, key = trace.axes(stack)
    rows, columns = (_spans(times, axis.units, len(axis)) for axis in (query, key))
    units = (_unit(rows[1], len(query)), _unit(columns[0], len(key)))
    if stack == "encoder":
        units = (units[1], units[1])
    options: dict[str, Any] = {"stack": stack}
    found: Any
    zeroed: Any
    if method == "value_zeroing":
        zeroed = explain(trace, method, unit=units, final_norm=stack == "encoder", normalize=False, **options)
        whole = np.stack([zeroed.layer(number) for number in zeroed.layers])[:, : len(times), : len(times)]
    else:
        found = explain(trace, method, **options)
        found = found if found.heads is None else found.mean("head")
        by_layer = []
        for number in found.layers:
            places = [place for span in units[0].spans[: len(times)] for place in span]
            values = np.asarray(found.rows(number, None, places), dtype=np.float64)
            owners = np.repeat(np.arange(len(times)), [len(span) for span in units[0].spans[: len(times)]])
            read = np.stack(
                [
                    values[owners == word].mean(axis=0)
                    if (owners == word).any()
                    else np.zeros(values.shape[1])
                    for word in range(len(times))
                ]
            )
            by_layer.append(sum_groups(read, units[1].spans[: len(times)]))
        whole = np.stack(by_layer)
    whole = np.abs(whole)
    if stack == "decoder":
        whole = whole * np.tri(len(times), k=-1)  # what is written is not read while it is written
    totals = whole.sum(axis=-1, keepdims=True)
    return np.divide(whole, totals, out=np.zeros_like(whole), where=totals > 0)


def _of_stack(times: WordTimes, word: int, cues: list[int], methods: Sequence[str], stack: Stack) -> Float:
    """Return the contribution of cues to a word [method, layer], chance last."""
    seen = range(word) if stack == "decoder" else range(len(times))
    inside = [cue for cue in cues if cue in seen]
    rows = [word_rows(times, method, stack)[:, word] for method in methods]
    values = np.stack([row[:, inside].sum(axis=-1) for row in rows])
    chance = np.full((1, values.shape[1]), len(inside) / max(1, len(seen)))
    whole = np.concatenate([values, chance])
    return whole if inside else np.full_like(whole, np.nan)


def _spans(times: WordTimes, units: Any, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the places of every word on an axis, as what is read and as what writes it."""
    if "frame" in units:
        unit = units["frame"]
        begins = np.array([np.inf if span is None else span[0] for span in unit.times]) + 1e-6
        known = [
            np.flatnonzero((start <= begins) & (begins < end) & ~np.asarray(unit.special)).tolist()
            for start, end in zip(times.start, times.end, strict=True)
        ]
        return known, known
    del count
    special = units["token"].special
    places = [place for place in range(len(special)) if not special[place]]
    read = [[places[token] for token in range(*pair)] for pair in times.tokens]
    return read, [[place - 1 for place in span] for span in read]


def _unit(spans: list[list[int]], count: int) -> Unit:
    """Return words as the first elements, and everything else, each alone or together, as the last ones."""
    used = {place for span in spans for place in span}
    rest = tuple(place for place in range(count) if place not in used)
    every = (*(tuple(span) for span in spans), *((rest,) if rest else ()))
    names = tuple(str(number) for number in range(len(every)))
    return Unit(_NAME, names, every, (False,) * len(every))
