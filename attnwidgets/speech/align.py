"""aw.speech.align: when each word of a sound is spoken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.speech.word_times import WordTimes, frame_step, frame_unit, with_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.tracing.trace import Trace

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
        trace: What `aw.trace(model, processor, audio=...)` returned, of an encoder-decoder with
            `max_new_tokens=` or `target_text=`.
        heads: Alignment heads (layer, head), numbered from 0; by default those that the model names, or all
            of the later half of its layers.
        text: The transcript, for a CTC model; by default the model's own.
        intervals: Words with their times in seconds, (word, start, end), from another aligner or by hand:
            used without changes.

    Returns:
        The words in order, a sequence of (word, start, end, probability) and a table.

    Raises:
        ValueError: If the trace has no sound whose frames have known times, the decoder wrote no words, the
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
        return _given(trace, intervals)
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
    from attnwidgets.speech.ctc import by_ctc

    return by_ctc(trace, text)


def _given(trace: Trace, intervals: Sequence[tuple[str, float, float]]) -> WordTimes:
    """Return the word times that a user gave, checked."""
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
