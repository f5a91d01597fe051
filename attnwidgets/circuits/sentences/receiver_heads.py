"""aw.circuits.receiver_heads: heads through which later sentences look back to a few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.circuits.sentences.sentence_units import between_sentences, sentences_of
from attnwidgets.explanations.results.trace_protocol import is_trace, provenance_of, resolve_stack
from attnwidgets.statistics.rows import RECEIVER
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

_FEWEST = 6  # scored sentences: with fewer, the ceiling of kurtosis is near zero or below
_ENOUGH = 20
_FLAT = 1e-12


def receiver_heads(
    traces: Any,
    *,
    proximity: int = 4,
    skip_first_token: bool = True,
    unit: Any = "sentence",
    stack: str | None = None,
) -> HeadStatistics:
    """Return how much every head's later sentences look back to a few: kurtosis of received attention.

        v_j = mean over sentences i >= j + proximity of A[i, j]      (A: mean attention between sentences)
        value = excess kurtosis of v / its ceiling,   ceiling = m - 5 + 1 / (m - 1)

    for m sentences with a score. The ceiling, reached where a single sentence receives everything, grows with
    the length, so that plain kurtosis of different texts cannot be compared or averaged. On short texts most
    heads are near it whatever they do: that warning comes below 20 sentences. Attention that rests on the
    first token makes the first sentence stand out in nearly every head; it is left out.

    Args:
        traces: A trace, or several of the same model; the mean over them is returned.
        proximity: Sentences at which a later sentence begins to count (the authors' 4).
        skip_first_token: Leave the first token out.
        unit: "sentence", another unit of the traces, or a Unit; of one trace also spans of tokens.
        stack: Which stack, in models with several.

    Returns:
        HeadStatistics with one statistic, "receiver" [layer, head], at most 1; NaN for a head that gives
        every sentence the same. `.top("receiver", 20)` are the authors' receiver heads.

    Raises:
        ValueError: If a text has fewer than 6 scored sentences, texts are empty, or models differ in size.
        TypeError: If an item is not a trace.

    Source: Bogdan et al. 2025, Thought Anchors, section 4; the ceiling is this package's.

    Example:
        >>> sentences = " ".join(aw.demo_book()[40:44])
        >>> heads = aw.circuits.receiver_heads(aw.trace(*aw.demo_model("encoder"), sentences))
        >>> heads["receiver"].shape, bool((heads["receiver"] <= 1).all())
        ((6, 12), True)
    """
    several = [traces] if is_trace(traces) else list(traces)
    if not several or not all(is_trace(trace) for trace in several):
        raise TypeError("receiver_heads takes a trace or several: aw.trace(model, tokenizer, text).")
    if proximity < 1:
        raise ValueError(f"proximity must be 1 or more, not {proximity}.")
    values, counts = [], []
    for trace in several:
        result, count = _of_trace(trace, proximity, unit, stack, skip_first_token=skip_first_token)
        values.append(result)
        counts.append(count)
    if len({value.shape for value in values}) > 1:
        raise ValueError("traces are of models with other numbers of layers or heads; pass those of one.")
    together = np.array(values)
    defined = ~np.isnan(together)
    mean = np.where(
        defined.any(0), np.where(defined, together, 0).sum(0) / np.maximum(defined.sum(0), 1), np.nan
    )
    few = min(counts)
    note = f"only {few} sentences: too few to tell receiver heads from others" if few < _ENOUGH else ""
    first = several[0]
    common = provenance_of(
        first,
        resolve_stack(first, stack),
        "circuits.receiver_heads",
        paper=RECEIVER.paper,
        title=f"receiver heads of {len(several)} text{'s' * (len(several) > 1)}",
        options={"proximity": proximity, "skip_first_token": skip_first_token},
        notes=[note],
    )
    common.pop("dtype")
    return HeadStatistics(
        mean[None],
        names=(RECEIVER.name,),
        layers=range(mean.shape[0]),
        heads=range(mean.shape[1]),
        unit=unit if isinstance(unit, str) else "sentence",
        **common,
    )


def _of_trace(
    trace: Any, proximity: int, unit: Any, stack: str | None, *, skip_first_token: bool
) -> tuple[Float, int]:
    """Return the statistic of every head [layer, head], and the number of sentences."""
    stack = resolve_stack(trace, stack)
    sentences = sentences_of(trace, stack, unit, "receiver_heads", skip_first_token=skip_first_token)
    scored = len(sentences) - proximity
    if scored < _FEWEST:
        raise ValueError(
            f"text has {len(sentences)} sentences, of which {max(0, scored)} are followed by others at a "
            f"distance of {proximity}; receiver heads need {_FEWEST} of these, and tell something from "
            f"{_ENOUGH} sentences on."
        )
    sizes = np.maximum(sentences.sizes(), 1)
    rows = []
    for layer in progress(trace.layers(stack), "sentence sums"):
        means = between_sentences(trace, layer, sentences, stack).astype(np.float64) / sizes
        rows.append(normalised_kurtosis(vertical_scores(means, proximity)))
    width = max(map(len, rows))
    table = np.full((len(rows), width), np.nan)
    for layer, row in enumerate(rows):
        table[layer, : len(row)] = row
    return table, len(sentences)


def vertical_scores(means: Float, proximity: int) -> Float:
    """Return the attention received from sentences at least a distance away [head, scored sentence].

    Args:
        means: Mean attention between sentences [head, sentence, sentence].
        proximity: The distance.
    """
    scored = means.shape[1] - proximity
    return np.stack([means[:, at + proximity :, at].mean(axis=1) for at in range(scored)], axis=1)


def normalised_kurtosis(scores: Float) -> Float:
    """Return the excess kurtosis of scores [head, sentence] over its ceiling [head]; NaN if all are equal."""
    m = scores.shape[1]
    centred = scores - scores.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1)
    flat = variance <= _FLAT * np.maximum((scores**2).mean(axis=1), np.finfo(float).tiny)
    kurtosis = (centred**4).mean(axis=1) / np.where(flat, 1, variance) ** 2 - 3
    return np.where(flat, np.nan, kurtosis / (m - 5 + 1 / (m - 1)))
