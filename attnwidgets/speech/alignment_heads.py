"""Word times of an encoder-decoder from its alignment heads, as openai/whisper's `timing.py` computes them.

The decoder reads `start, no timestamps, text, end`. In each alignment head, the attention of every
token over the frames of the sound (without padding) is divided by its sum, standardised over all
tokens (the start included), and smoothed by a median over seven frames (`standardised`); the path of least
cost through the negated mean over heads says when each token begins (`warp`). A token is predicted by the row
before it; the row of the end is left out.

`warp` (dynamic time warping) and `median_filter` break ties as `timing.py` does, so that word times agree
with Whisper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.speech.word_times import WordTimes, frame_step, frame_unit, with_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Heads = tuple[tuple[int, int], ...]

_WIDTH = 7  # frames of the median
_PURPOSE = "speech.align"

_BOTH, _ROW, _COLUMN = 0, 1, 2  # steps into a cell


@dataclass(frozen=True)
class Spoken:
    """The text of a decoder, and the ids that it reads to be aligned.

    Attributes:
        ids: start, no timestamps, text, end.
        before: Number of ids before the text.
        positions: Positions of the text's tokens among the decoder's tokens [token].
        ordinary: Number of ordinary ids, which begin at 0 and among which probabilities are computed; None:
            all ids.
    """

    ids: list[int]
    before: int
    positions: list[int]
    ordinary: int | None


def by_heads(trace: Trace, heads: Sequence[tuple[int, int]] | None) -> WordTimes:
    """Return word times from cross-attention; see `aw.speech.align`."""
    frames = frame_unit(trace)
    spoken = _spoken(trace)
    chosen, note = _heads(trace, heads)
    weights, logits = _weights(trace, spoken, chosen)
    count = _frames_heard(trace, frames)
    rows = slice(spoken.before - 1, -1)
    matrix = standardised(weights[..., :count])[rows]
    path = warp(-matrix)
    jumps = np.diff(path[0], prepend=-1).astype(bool)
    step = frame_step(trace)
    begins = path[1][jumps] / (
        1 / step
    )  # a whole number of frames in a second avoids rounding errors of times
    axis = trace.axes("decoder")[0]
    row_of = {at: row for row, at in enumerate(spoken.positions)}
    tokens, words = [], []
    for label, span, special in zip(*_columns(axis.units["word"]), strict=True):
        word_tokens = [row_of[at] for at in span if at in row_of]
        if word_tokens and not special:
            words.append(label)
            tokens.append((word_tokens[0], word_tokens[-1] + 1))
    start, end = (np.array([begins[pair[side]] for pair in tokens]) for side in (0, 1))
    outside = weights[:, rows, count:].mean(axis=0).sum(axis=-1)
    by_token = (_probabilities(logits, spoken), outside)
    probability, padding = (
        np.array([values[first:last].mean() for first, last in tokens]) for values in by_token
    )
    return WordTimes(
        words=tuple(words),
        start=start,
        end=end,
        probability=probability,
        trace=with_words(trace, words, start, end),
        how="cross-attention",
        tokens=tuple(tokens),
        token_labels=(*(axis.tokens[at] for at in spoken.positions), "[end]"),
        matrix=matrix,
        path=path,
        step=step,
        heads=chosen,
        padding=padding if weights.shape[-1] > count else None,
        note=note,
    )


def standardised(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return how far attention lies above that of other tokens, the mean over heads [token, frame].

    Args:
        weights: Attention [head, token, frame] of the frames that hold sound; rows are divided by their sums.
    """
    shares = weights.astype(np.float64)
    shares = shares / shares.sum(axis=-1, keepdims=True)
    spread = shares.std(axis=-2, keepdims=True)
    # A frame that every token reads alike does not tell them apart: 0 instead of 0 / 0.
    above = np.divide(
        shares - shares.mean(axis=-2, keepdims=True), spread, out=np.zeros_like(shares), where=spread > 0
    )
    return np.asarray(median_filter(above, _WIDTH).mean(axis=0))


def _columns(unit: Unit) -> tuple[Any, ...]:
    return unit.labels, unit.spans, unit.special


def _spoken(trace: Trace) -> Spoken:
    """Return the ids of the decoder's text, and those around it.

    Raises:
        ValueError: If the text has no words.
    """
    ids = [int(i) for i in trace.inputs["decoder_input_ids"][0]]
    special = trace.axes("decoder")[0].units["token"].special
    # Positions without tokens (of an adapter) come before those with a token.
    extra = len(special) - len(ids)
    # The first id begins the text and is not a part of it, also where no tokenizer marks it as special.
    positions = [at for at in range(extra + 1, len(special)) if not special[at]]
    if not positions:
        raise ValueError(
            "the decoder wrote no words to align: trace with max_new_tokens=..., or with the transcript as "
            "target_text=..."
        )
    generation = getattr(trace.model, "generation_config", None)
    config = getattr(trace.model, "config", None)
    end = getattr(generation, "eos_token_id", None) or getattr(config, "eos_token_id", None)
    end = int(end[0] if isinstance(end, (list, tuple)) else end or 0)
    silent = getattr(generation, "no_timestamps_token_id", None)
    prefix = ids[: positions[0] - extra]
    start = getattr(config, "decoder_start_token_id", None)
    if start in prefix:  # ids before the start are a prompt
        prefix = prefix[len(prefix) - 1 - prefix[::-1].index(start) :]
    if silent is not None:
        prefix = [i for i in prefix if i < silent] + [int(silent)]
    text = [ids[at - extra] for at in positions]
    ordinary = end if silent is not None and silent > end else None
    return Spoken([*prefix, *text, end], len(prefix), positions, ordinary)


def _heads(trace: Trace, heads: Sequence[tuple[int, int]] | None) -> tuple[Heads, str]:
    """Return the alignment heads as (layer, head), and a note if the model names none.

    Raises:
        ValueError: If there are none.
        IndexError: If a head is out of range.
    """
    layers, count = trace.layers("cross"), trace.n_heads("cross")
    note = ""
    if heads is None:
        named = getattr(getattr(trace.model, "generation_config", None), "alignment_heads", None)
        heads = [(int(layer), int(head)) for layer, head in named or ()]
    if not heads:
        heads = [(layer, head) for layer in layers[len(layers) // 2 :] for head in range(count)]
        note = "the model names no alignment heads: all of the later half of its layers are read"
    return tuple(
        (layers[position(layer, layers, "heads: layer")], position(head, range(count), "heads: head"))
        for layer, head in heads
    ), note


def _weights(trace: Trace, spoken: Spoken, heads: Heads) -> tuple[NDArray[np.floating], Any]:
    """Return attention [head, token, frame] and logits [token, id] of the ids that are aligned.

    The recorded pass serves if the decoder read these ids; otherwise (a text without its end, or with
    timestamps) the model runs once more.
    """
    read = [int(i) for i in trace.inputs["decoder_input_ids"][0]]
    if read == spoken.ids and trace.logits is not None and len(trace.logits) == len(read):
        rows = [np.asarray(trace.attention_rows(layer, [head], stack="cross"))[0] for layer, head in heads]
        return np.stack(rows), trace.logits
    import torch

    from attnwidgets.tracing.layers import RecordedLayer
    from attnwidgets.tracing.pass_memory import room_to_record
    from attnwidgets.tracing.predictions import logits_in
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.recording.calls import Call
    from attnwidgets.tracing.recording.recorded_pass import record
    from attnwidgets.tracing.rerun_trace import require_same_model

    require_same_model(trace, _PURPOSE)
    inputs = {name: value for name, value in trace.inputs.items() if name != "decoder_attention_mask"}
    before = inputs["decoder_input_ids"]
    inputs["decoder_input_ids"] = torch.tensor([spoken.ids], dtype=before.dtype, device=before.device)
    model = unwrap(trace.model)
    with borrowed(model) as twin, room_to_record(twin, inputs):
        recorded = record(twin, inputs)
    calls = recorded.stacks["cross"]
    n_frames = len(trace.axes("cross")[1])
    layers = {
        layer: RecordedLayer(call, 0, len(spoken.ids), n_frames)
        for layer, call in zip(trace.layers("cross"), calls, strict=True)
        if isinstance(call, Call)
    }
    weights = np.stack([layers[layer].weights([head])[0] for layer, head in heads])
    logits = logits_in(recorded.outputs)
    return weights, None if logits is None else logits[0]


def _frames_heard(trace: Trace, frames: Unit) -> int:
    """Return the number of frames that lie wholly in the sound, as Whisper counts them."""
    sound = trace.sound
    if sound is None or sound.hop is None:
        return sum(not special for special in frames.special)
    samples = min(len(sound.wave), round(sound.heard * sound.rate))
    merged = round(sound.rate / sound.hop * frame_step(trace))
    return max(1, min(samples // sound.hop // merged, len(frames)))


def _probabilities(logits: Any, spoken: Spoken) -> NDArray[np.float64]:
    """Return the probability of every token of the text [token], among ordinary ids."""
    text = spoken.ids[spoken.before : -1]
    if logits is None:
        return np.full(len(text), np.nan)
    scores = logits[spoken.before - 1 : -2, : spoken.ordinary].double().softmax(-1).cpu().numpy()
    return np.asarray(scores[np.arange(len(text)), text])


def warp(cost: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the cheapest monotonic path through a matrix, from its first to its last cell.

    Every step moves one row, one column, or both. Among equally cheap steps, a step along the row wins, as
    `dtw_cpu` of openai/whisper does; sums are float32, as there.

    Args:
        cost: [row, column], at least one of each.

    Returns:
        Rows [step] and columns [step] of the path.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, dtype=np.float32)
    total[0, 0] = 0.0
    step_to = np.full((rows + 1, columns + 1), _COLUMN, dtype=np.int8)
    # The cells of an anti-diagonal depend only on earlier anti-diagonals, and are computed together.
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where(
            (both < row) & (both < column), _BOTH, np.where((row < both) & (row < column), _ROW, _COLUMN)
        )
        step_to[i, j] = step
        total[i, j] = cost[i - 1, j - 1].astype(np.float64) + np.choose(step, (both, row, column))
    step_to[0], step_to[:, 0] = _COLUMN, _ROW
    path = []
    row_at, column_at = rows, columns
    while row_at > 0 or column_at > 0:
        path.append((row_at - 1, column_at - 1))
        move = int(step_to[row_at, column_at])
        row_at -= move != _COLUMN
        column_at -= move != _ROW
    result = np.array(path[::-1], dtype=np.intp)
    return result[:, 0], result[:, 1]


def median_filter(values: NDArray[np.floating], width: int) -> NDArray[np.floating]:
    """Return the medians of `width` neighbours along the last axis; the ends are mirrored.

    Args:
        values: [..., frame]; returned unchanged up to half of `width` frames.
        width: An odd number of frames.
    """
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    return np.asarray(np.sort(windows, axis=-1)[..., half])
