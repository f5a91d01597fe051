"""aw.speech.align: when each word of a sound is spoken, by alignment heads or by the path of a CTC.

Encoder-decoders are aligned in `alignment_heads.py`. This file aligns models with CTC outputs by the most
probable path that writes a text (`by_ctc`; Graves et al. 2006, Connectionist Temporal Classification). A path
gives every frame a token or the blank; it writes a text if it spells it once repetitions are merged and
blanks dropped. `best_path` is Viterbi's algorithm over the text's ids with a blank around each, `posteriors`
the forward-backward algorithm over the same states.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.resolve import tokenizer_of
from attnwidgets.speech.word_times import WordTimes, frame_step, frame_unit, with_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

_FIELDS = 3  # word, start, end


def align(
    trace: Trace,
    *,
    heads: Sequence[tuple[int, int]] | None = None,
    text: str | None = None,
    intervals: Sequence[tuple[str, float, float]] | None = None,
) -> WordTimes:
    """Return when each word of a sound is spoken, and the trace with words on its frames.

    An encoder-decoder is aligned by its cross-attention: standardised attention of its alignment heads, and
    dynamic time warping (Whisper). The text is what the decoder read; where that lacks its end or holds
    timestamps, the model runs once more. A model with CTC outputs is aligned by the most probable path that
    writes the text. Padding after the sound never takes part, and `.padding` tells how much attention lies
    on it.

    Args:
        trace: Result of `aw.trace(model, processor, audio=...)`; of an encoder-decoder, with
            `max_new_tokens=` or `target_text=`.
        heads: Alignment heads (layer, head), numbered from 0; by default those that the model names, or all
            of the later half of its layers.
        text: The transcript, for a CTC model; by default the text that the model hears.
        intervals: Words with their times in seconds, (word, start, end), from another aligner or by hand:
            used without changes.

    Returns:
        The words in order, a sequence of (word, start, end, probability) and a table.

    Raises:
        ValueError: If the trace has no sound whose frames have times, the decoder wrote no words, the
            text does not fit the sound, or intervals overlap or leave the sound.
        TypeError: If `trace` is not a trace, or an option does not belong to its model.
        IndexError: If a head is out of range.

    Source: openai/whisper, `timing.py` (Radford et al. 2023); Graves et al. 2006 for CTC.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        >>> trace = aw.trace(*aw.demo_model("speech"), audio=noise, target_text=" Rain on leaves.")
        >>> times = aw.speech.align(trace)
        >>> times.words
        ('Rain', 'on', 'leaves', '.')
        >>> times.trace.axes("encoder")[0].units["word"].labels[-1]
        '[PAD]'
    """
    require_trace(trace, "speech.align")
    if intervals is not None:
        if heads is not None or text is not None:
            raise TypeError("align() takes intervals alone: heads and text are for finding them.")
        return _from_intervals(trace, intervals)
    if "cross" in trace.stacks:
        if text is not None:
            raise TypeError(
                "align() takes text for CTC models; what this decoder reads is given as "
                "aw.trace(..., target_text=...)."
            )
        from attnwidgets.speech.alignment_heads import by_heads

        return by_heads(trace, heads)
    if heads is not None:
        raise TypeError("align() takes heads for models with cross-attention, and this one has none.")
    return by_ctc(trace, text)


def _from_intervals(trace: Trace, intervals: Sequence[tuple[str, float, float]]) -> WordTimes:
    """Return word times from intervals, after checks.

    Raises:
        ValueError: If intervals are empty, overlap, end before they begin or leave the sound.
    """
    frames = frame_unit(trace)
    if not len(intervals):
        raise ValueError("intervals is empty: give (word, start, end) for each word, in seconds.")
    seconds = float(trace.sound.heard) if trace.sound is not None else np.inf
    before = 0.0
    for number, interval in enumerate(intervals):
        if len(interval) != _FIELDS:
            raise ValueError(f"intervals[{number}] is {interval!r}; it must be (word, start, end).")
        word, start, end = interval
        if not 0 <= start <= end:
            raise ValueError(
                f"intervals[{number}], {word!r}, is {start} to {end} s; it must begin before it ends."
            )
        if start < before:
            raise ValueError(
                f"intervals[{number}], {word!r}, begins at {start} s, before the last one ends ({before} s)."
            )
        if end > seconds + frame_step(trace):
            raise ValueError(
                f"intervals[{number}], {word!r}, ends at {end} s, and the model heard {seconds:.2f} s."
            )
        before = end
    words = tuple(str(word) for word, _, _ in intervals)
    starts, ends = (np.array([interval[side] for interval in intervals], dtype=float) for side in (1, 2))
    count = sum(not special for special in frames.special)
    nothing = np.zeros(0, dtype=np.intp)
    return WordTimes(
        words=words,
        start=starts,
        end=ends,
        probability=np.full(len(words), np.nan),
        trace=with_words(trace, words, starts, ends),
        how="given",
        tokens=tuple((0, 0) for _ in words),
        token_labels=(),
        matrix=np.zeros((0, count)),
        path=(nothing, nothing),
        step=frame_step(trace),
    )


def by_ctc(trace: Trace, text: str | None) -> WordTimes:
    """Return word times from CTC outputs; see `aw.speech.align`."""
    frames = frame_unit(trace)
    if trace.logits is None or trace.logits.ndim != 2 or len(trace.logits) != len(frames):  # noqa: PLR2004
        raise ValueError(
            f"{type(trace.model).__name__} neither attends from a text to its sound nor predicts a token for "
            "every frame: give times of words as intervals=[(word, start, end), ...]."
        )
    reader = tokenizer_of(trace)
    blank = getattr(getattr(trace.model, "config", None), "pad_token_id", None) or 0
    divider = getattr(reader, "word_delimiter_token_id", None)
    log_p = np.asarray(trace.logits.double().log_softmax(-1))
    ids = heard(log_p, blank) if text is None else _ids_of(reader, text)
    if not ids:
        raise ValueError("the model heard no words: give the transcript as text=..., or intervals=...")
    spans = best_path(log_p, ids, blank)
    groups = _words(ids, divider)
    step = frame_step(trace)
    start, end = (np.array([spans[group[side]][side] for group in groups]) * step for side in (0, -1))
    probability = np.array(
        [np.mean([np.exp(log_p[slice(*spans[i]), ids[i]]).mean() for i in group]) for group in groups]
    )
    labels = _labels(reader, ids)
    words = tuple("".join(labels[i] for i in group).strip() for group in groups)
    steps = [(i, frame) for i, span in enumerate(spans) for frame in range(*span)]
    tokens, at = (np.array([pair[side] for pair in steps], dtype=np.intp) for side in (0, 1))
    return WordTimes(
        words=words,
        start=start,
        end=end,
        probability=probability,
        trace=with_words(trace, words, start, end),
        how="ctc",
        tokens=tuple((group[0], group[-1] + 1) for group in groups),
        token_labels=tuple(labels),
        matrix=posteriors(log_p, ids, blank),
        path=(tokens, at),
        step=step,
    )


def heard(log_p: Float, blank: int) -> list[int]:
    """Return the ids of the text that a model hears: the best id of every frame, merged, without blanks.

    Args:
        log_p: Log-probabilities [frame, id].
        blank: Id of the blank.
    """
    best = log_p.argmax(axis=-1)
    first = np.diff(best, prepend=-1) != 0
    return [int(i) for i in best[first] if i != blank]


def best_path(log_p: Float, ids: Sequence[int], blank: int) -> list[tuple[int, int]]:
    """Return the frames of every id on the most probable path that writes them: (first, last + 1).

    Raises:
        ValueError: If there are fewer frames than such a path needs.
    """
    scores, skips = _lattice(log_p, ids, blank)
    n_frames, n_states = scores.shape
    needed = len(ids) + sum(a == b for a, b in pairwise(ids))
    if n_frames < needed:
        raise ValueError(
            f"text needs at least {needed} frames, and the sound has {n_frames}: it is too long."
        )
    total = np.full(n_states, -np.inf)
    total[:2] = scores[0, :2]
    back = np.zeros((n_frames, n_states), dtype=np.int8)
    for frame in range(1, n_frames):
        options = _reached(total, skips)
        back[frame] = options.argmax(axis=0)
        total = options.max(axis=0) + scores[frame]
    state = n_states - 1 if total[-1] >= total[-2] else n_states - 2
    states = [state]
    for frame in range(n_frames - 1, 0, -1):
        state -= int(back[frame, state])
        states.append(state)
    path = np.array(states[::-1])
    result = [np.flatnonzero(path == 2 * number + 1) for number in range(len(ids))]
    return [(int(frames[0]), int(frames[-1]) + 1) for frames in result]


def posteriors(log_p: Float, ids: Sequence[int], blank: int) -> Float:
    """Return the probability of each id at each frame, given the text [id, frame].

    The sum over all paths that write the text, by the forward-backward algorithm.
    """
    scores, skips = _lattice(log_p, ids, blank)
    forward = _sums(scores, skips)
    # The backward sums are the forward sums over the reversed lattice, whose skips lead the other way.
    backward = _sums(scores[::-1, ::-1], _mirrored(skips))[::-1, ::-1]
    joint = forward + backward - scores
    joint -= np.logaddexp.reduce(joint, axis=1, keepdims=True)
    return np.asarray(np.exp(joint[:, 1::2]).T)


def _mirrored(skips: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the skips of the reversed lattice [state]."""
    mirrored = np.zeros_like(skips)
    for state in np.flatnonzero(skips):
        mirrored[len(skips) - 1 - (state - 2)] = True
    return mirrored


def _lattice(log_p: Float, ids: Sequence[int], blank: int) -> tuple[Float, NDArray[np.bool_]]:
    """Return scores [frame, state] of ids with blanks around, and states that may skip a blank [state]."""
    states = [blank]
    for i in ids:
        states += [i, blank]
    skips = np.array([n > 1 and i != blank and i != states[n - 2] for n, i in enumerate(states)], dtype=bool)
    return log_p[:, states], skips


def _reached(total: Float, skips: NDArray[np.bool_]) -> Float:
    """Return the scores of reaching each state from itself, the previous state, over a blank [3, state]."""
    previous, skipped = np.full_like(total, -np.inf), np.full_like(total, -np.inf)
    previous[1:] = total[:-1]
    skipped[2:] = total[:-2]
    return np.stack([total, previous, np.where(skips, skipped, -np.inf)])


def _sums(scores: Float, skips: NDArray[np.bool_]) -> Float:
    """Return the log-probability of all paths to a state at a frame [frame, state]."""
    sums = np.full_like(scores, -np.inf)
    sums[0, :2] = scores[0, :2]
    for frame in range(1, len(scores)):
        sums[frame] = np.logaddexp.reduce(_reached(sums[frame - 1], skips), axis=0) + scores[frame]
    return sums


def _ids_of(reader: Any, text: str) -> list[int]:
    """Return a text's ids.

    Raises:
        TypeError: Without a tokenizer.
        ValueError: If its tokenizer cannot spell it.
    """
    if reader is None:
        raise TypeError("text needs the model's processor: trace with aw.trace(model, processor, audio=...)")
    ids = [int(i) for i in reader(text, add_special_tokens=False).input_ids]
    if getattr(reader, "unk_token_id", None) in ids:
        raise ValueError(
            f"text {text!r:.60} has characters that the model's tokenizer does not know; its letters are "
            f"{''.join(sorted(token for token in reader.get_vocab() if len(token) == 1))}"
        )
    return ids


def _words(ids: Sequence[int], divider: int | None) -> list[list[int]]:
    """Return the indices of the ids of every word; without a divider, each id is a word."""
    if divider is None:
        return [[index] for index in range(len(ids))]
    groups: list[list[int]] = [[]]
    for index, i in enumerate(ids):
        if i == divider:
            groups.append([])
        else:
            groups[-1].append(index)
    return [group for group in groups if group]


def _labels(reader: Any, ids: Sequence[int]) -> list[str]:
    """Return display strings of ids: their characters, or their numbers without a tokenizer."""
    if reader is None:
        return [str(i) for i in ids]
    divider = getattr(reader, "word_delimiter_token", None)
    return [" " if token == divider else str(token) for token in reader.convert_ids_to_tokens(list(ids))]
