"""Cues in speech: how much of a word's context lies on its cue, and its probability without the cue.

`cue_contribution` reads the target's row in maps by words (`word_rows`), in which each word is the sum of its
frames or tokens, and everything that is not a word is left out. `blank_out` runs the model once for four
conditions in a batch, with the cue's frames silenced, its tokens replaced, or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.evaluate.removals.media_operators import refusal_of_sound, silenced_inputs
from attnwidgets.explanations.mixing.value_zeroing import zeroed_within
from attnwidgets.explanations.registry.registry import explain
from attnwidgets.explanations.results.units import aggregate_map
from attnwidgets.explanations.targets.resolve import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.speech.word_times import WordTimes

    Float = NDArray[np.float64]

CONDITIONS = ("as it is", "cue silenced", "cue blanked in the text", "both")
_PURPOSE = "speech.blank_out"

PAPER = (
    "Mohebbi et al. 2023, Homophone Disambiguation Reveals Patterns of Context Mixing in Speech Transformers"
)
RANDOM = "random"
Stack = Literal["encoder", "decoder", "cross"]
STACKS: tuple[Stack, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True, eq=False, repr=False)
class BlankedOut(Table):
    """The probability of a word with and without its cue; `aw.speech.blank_out` makes it.

    Args:
        target: The word.
        cue: The words that were removed.
        probability: Mean probability of the word's tokens [condition], in the order of `conditions`.
        note: A caveat; "" without.
    """

    target: str
    cue: tuple[str, ...]
    probability: NDArray[np.float64]
    note: str = ""
    conditions: tuple[str, ...] = CONDITIONS

    @property
    def drop(self) -> NDArray[np.float64]:
        """Probability as it is, less that of each condition [condition]."""
        return self.probability[0] - self.probability

    def _columns(self) -> Iterator[Columns]:
        """Yield condition, probability and drop."""
        names = np.asarray(self.conditions, dtype=object)
        yield {"condition": names, "probability": self.probability, "drop": self.drop}

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name} {p:.3f}" for name, p in zip(self.conditions, self.probability, strict=True)
        )
        note = f"; {self.note}" if self.note else ""
        return f"<BlankedOut p({self.target!r}) without {' and '.join(map(repr, self.cue))}: {parts}{note}>"


def blank_out(times: WordTimes, target: int, cue: int | Sequence[int]) -> BlankedOut:
    """Return the probability of a word with its cue silenced in the sound, blanked in the text, and both.

    "He ate a pear": *pear* and *pair* sound alike, and *ate* tells them apart. The sound of the cue is
    replaced by zeros from its start to its end; its tokens in the decoder are replaced by the tokenizer's
    unknown token. A probability that falls says that the model used the cue, and from where: the sound, or
    the text before the word.

    Args:
        times: Result of `aw.speech.align` for an encoder-decoder.
        target: Number of the word, from 0.
        cue: Number of the word that is removed, or several.

    Raises:
        ValueError: If the trace has no decoder, no model or no processor, or the target is its cue.
        IndexError: If the word is out of range.

    Source: Mohebbi et al. 2023, section 5 (blanking out cues).

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        >>> trace = aw.trace(*aw.demo_model("speech"), audio=noise, target_text=" Rain on leaves.")
        >>> aw.speech.blank_out(aw.speech.align(trace), target=2, cue=0).conditions
        ('as it is', 'cue silenced', 'cue blanked in the text', 'both')
    """
    import torch

    from attnwidgets.tracing.pass_memory import room_for_pass
    from attnwidgets.tracing.predictions import logits_in
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.rerun_trace import require_same_model

    trace = times.trace
    if times.how != "cross-attention" or trace.model is None:
        raise ValueError(
            "blank_out() needs an encoder-decoder, whose text aw.speech.align aligned by its heads."
        )
    if refusal := refusal_of_sound(trace, "encoder"):
        raise ValueError(f"the cue cannot be silenced: {refusal}.")
    word = position(target, range(len(times)), "target")
    cues = [position(item, range(len(times)), "cue") for item in ([cue] if isinstance(cue, int) else cue)]
    if word in cues or not cues:
        raise ValueError(f"cue must name words other than the target, {times.words[word]!r}.")
    unit = trace.axes("encoder")[0].units["frame"]
    gone = np.zeros((4, len(unit)), dtype=bool)
    begins = np.array([np.inf if span is None else span[0] for span in unit.times or ()]) + 1e-6
    for item in cues:
        inside = (times.start[item] <= begins) & (begins < times.end[item])
        gone[1] |= inside
        gone[3] |= inside
    inputs = silenced_inputs(trace, "encoder", gone)
    ids: Any = inputs["decoder_input_ids"].clone()
    positions = _positions(times)
    blank = _unknown(trace)
    for item in cues:
        for token in range(*times.tokens[item]):
            ids[[2, 3], positions[token]] = blank
    inputs["decoder_input_ids"] = ids
    require_same_model(trace, _PURPOSE)
    model = unwrap(trace.model)
    with borrowed(model) as twin, room_for_pass(model, trace, _PURPOSE), no_grad():
        outputs = trace.call(twin, inputs, {"return_dict": True, "use_cache": False}, {})
    targets = [positions[token] for token in range(*times.tokens[word])]
    log_p = cast("torch.Tensor", logits_in(outputs)).double().log_softmax(-1)
    # A token is predicted by the row before it. The target is not a cue, so that its ids were not replaced.
    by_token = [log_p[:, at - 1, int(ids[0, at])].exp() for at in targets]
    later = [times.words[entry] for entry in cues if entry > word]
    note = f"{', '.join(map(repr, later))} follows the target, whose text cannot see it" if later else ""
    return BlankedOut(
        times.words[word],
        tuple(times.words[entry] for entry in cues),
        np.asarray(torch.stack(by_token).mean(0).cpu()),
        note,
    )


def _positions(times: WordTimes) -> list[int]:
    """Return the positions of the text's tokens among the decoder's ids [token]."""
    special = times.trace.axes("decoder")[0].units["token"].special
    extra = len(special) - int(times.trace.inputs["decoder_input_ids"].shape[1])
    return [index - extra for index in range(len(special)) if not special[index]]


def _unknown(trace: Any) -> int:
    """Return the id of the tokenizer's unknown token, or else of its end."""
    reader = tokenizer_of(trace)
    for holder in (reader, getattr(trace.model, "config", None)):
        for name in ("unk_token_id", "eos_token_id"):
            number = getattr(holder, name, None)
            if isinstance(number, int):
                return number
    return 0


@dataclass(frozen=True, eq=False, repr=False)
class SpokenCues(Table):
    """How much of targets' context lies on their cues; `aw.speech.cue_contribution` makes it.

    Args:
        values: [example, stack, method, layer], 0 to 1; NaN where a stack has fewer layers, or a cue of the
            decoder follows the target.
        stacks: Names of the stacks.
        methods: Names of the methods, the last of which is "random": equal shares of all words.
    """

    values: Float
    stacks: tuple[str, ...]
    methods: tuple[str, ...]

    @property
    def mean(self) -> Float:
        """Mean over examples [stack, method, layer]."""
        defined = np.isfinite(self.values)
        total = np.where(defined, self.values, 0).sum(axis=0)
        count = defined.sum(axis=0)
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)

    def _columns(self) -> Iterator[Columns]:
        """Yield stack, method, layer, contribution (the mean) and n (examples with a value)."""
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

    Homophones (*pear*, *pair*) sound alike, and a cue (*ate*) tells them apart. The row of the target
    over all words is divided by its sum; its values on the cues are added. In the encoder it is the row of
    the target's frames over the frames of all words; in cross-attention, of the positions that predict its
    tokens, over the frames of all words; in the decoder, over the earlier words. Silence, padding and special
    tokens are left out.

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
            target is its cue.
        IndexError: If the word is out of range.

    Source: Mohebbi et al. 2023, section 4. There a frame on the border belongs to both words; here it belongs
    to the word that begins in it.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        >>> trace = aw.trace(*aw.demo_model("speech"), audio=noise, target_text=" Rain on leaves.")
        >>> times = aw.speech.align(trace)
        >>> shares = aw.speech.cue_contribution([(times, 2, 0)], methods=["attention"], stacks=["cross"])
        >>> shares.values.shape, float(shares.mean[0, -1, 0])  # one of four words
        ((1, 1, 2, 4), 0.25)
    """
    examples = list(examples)
    if not examples:
        raise ValueError("examples is empty: give (times, target, cues) for at least one sound.")
    for stack in stacks:
        require_choice("stacks", stack, STACKS)
    scores = []
    for times, target, cue in examples:
        word = position(target, range(len(times)), "target")
        cues = [position(item, range(len(times)), "cue") for item in ([cue] if isinstance(cue, int) else cue)]
        if word in cues:
            raise ValueError(f"cue must name words other than the target, {times.words[word]!r}.")
        scores.append([_of_stack(times, word, cues, methods, stack) for stack in stacks])
    layers = max(values.shape[1] for score in scores for values in score)
    table = np.full((len(scores), len(stacks), len(methods) + 1, layers), np.nan)
    for number, score in enumerate(scores):
        for index, values in enumerate(score):
            table[number, index, :, : values.shape[1]] = values
    return SpokenCues(table, tuple(stacks), (*methods, RANDOM))


def word_rows(times: WordTimes, method: str, stack: Stack, words: Sequence[int] | None = None) -> Float:
    """Return how much of every word is in some words [layer, row, word]; rows sum to one, or are zero.

    `cue_contribution` says which frames and tokens are the rows and columns of a word.

    Args:
        times: The words of a sound.
        method: A name in `aw.methods()` that returns a map.
        stack: "encoder", "decoder" or "cross".
        words: The numbers of the words whose rows are computed; all by default.
    """
    trace = times.trace
    words = range(len(times)) if words is None else words
    query, key = trace.axes(stack)
    rows, columns = (_spans(times, axis.units) for axis in (query, key))
    queries, keys = tuple(tuple(rows[1][word]) for word in words), tuple(map(tuple, columns[0]))
    if method == "value_zeroing":
        shares = zeroed_within(trace, queries, keys, stack=stack, final_norm=stack == "encoder")
    else:
        result: Any = explain(trace, method, stack=stack)
        result = result if result.heads is None else result.mean("head")
        chosen = [query for span in queries for query in span]
        borders = np.cumsum([0, *map(len, queries)]).tolist()
        spans = tuple(tuple(range(*pair)) for pair in pairwise(borders))
        by_layer = (np.asarray(result.rows(number, None, chosen)) for number in result.layers)
        shares = np.stack([aggregate_map(values, spans, [1.0] * len(values), keys) for values in by_layer])
    shares = np.abs(shares)
    if stack == "decoder":
        shares = shares * np.tri(len(times), k=-1)[words]  # a word is not read by the rows that predict it
    totals = shares.sum(axis=-1, keepdims=True)
    return np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0)


def _of_stack(times: WordTimes, word: int, cues: list[int], methods: Sequence[str], stack: Stack) -> Float:
    """Return the contribution of cues to a word [method, layer], the last method being "random"."""
    visible = range(word) if stack == "decoder" else range(len(times))
    visible_cues = [cue for cue in cues if cue in visible]
    rows = [word_rows(times, method, stack, [word])[:, 0] for method in methods]
    values = np.stack([row[:, visible_cues].sum(axis=-1) for row in rows])
    chance = np.full((1, values.shape[1]), len(visible_cues) / max(1, len(visible)))
    result = np.concatenate([values, chance])
    return result if visible_cues else np.full_like(result, np.nan)


def _spans(times: WordTimes, units: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Return the positions of every word on an axis that are read as keys, and those of its queries.

    A word's frames are both; a token is read at its position and predicted by the position before it.
    """
    if "frame" in units:
        unit = units["frame"]
        begins = np.array([np.inf if span is None else span[0] for span in unit.times]) + 1e-6
        by_word = [
            np.flatnonzero((start <= begins) & (begins < end) & ~np.asarray(unit.special)).tolist()
            for start, end in zip(times.start, times.end, strict=True)
        ]
        return by_word, by_word
    special = units["token"].special
    positions = [index for index in range(len(special)) if not special[index]]
    keys = [[positions[token] for token in range(*pair)] for pair in times.tokens]
    return keys, [[at - 1 for at in span] for span in keys]
