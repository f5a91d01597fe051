"""Word times of a model with CTC outputs: the most probable path that writes a text.

Graves et al. 2006, Connectionist Temporal Classification. A path gives every frame a token or the blank; it
writes a text if it spells it once repetitions are merged and blanks dropped.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.targets.resolve import tokenizer_of
from attnwidgets.speech.word_times import WordTimes, frame_step, frame_unit, with_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]


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
    own = posteriors(log_p, ids, blank)
    given = np.array(
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
        probability=given,
        trace=with_words(trace, words, start, end),
        how="ctc",
        tokens=tuple((group[0], group[-1] + 1) for group in groups),
        token_labels=tuple(labels),
        matrix=own,
        path=(tokens, at),
        step=step,
    )


def heard(log_p: Float, blank: int) -> list[int]:
    """Return what a model hears: the most probable id of every frame, merged, without blanks.

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
    found = [np.flatnonzero(path == 2 * number + 1) for number in range(len(ids))]
    return [(int(places[0]), int(places[-1]) + 1) for places in found]


def posteriors(log_p: Float, ids: Sequence[int], blank: int) -> Float:
    """Return the probability that a frame says each id, given that the text is written [id, frame].

    Over all paths that write it, by the forward and the backward sums.
    """
    scores, skips = _lattice(log_p, ids, blank)
    forward = _sums(scores, skips)
    # Backwards, a state may skip to where one may skip to it from.
    backward = _sums(scores[::-1, ::-1], _mirrored(skips))[::-1, ::-1]
    joint = forward + backward - scores
    joint -= np.logaddexp.reduce(joint, axis=1, keepdims=True)
    return np.asarray(np.exp(joint[:, 1::2]).T)


def _mirrored(skips: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which states may be skipped to, with the states in reverse order."""
    mirrored = np.zeros_like(skips)
    for state in np.flatnonzero(skips):
        mirrored[len(skips) - 1 - (state - 2)] = True
    return mirrored


def _lattice(log_p: Float, ids: Sequence[int], blank: int) -> tuple[Float, NDArray[np.bool_]]:
    """Return scores [frame, state] of the ids with a blank around each, and which states may skip a blank."""
    states = [blank]
    for i in ids:
        states += [i, blank]
    skips = np.array([n > 1 and i != blank and i != states[n - 2] for n, i in enumerate(states)], dtype=bool)
    return log_p[:, states], skips


def _reached(total: Float, skips: NDArray[np.bool_]) -> Float:
    """Return the scores with which every state is reached: from itself, from the one before, over a blank."""
    one, two = np.full_like(total, -np.inf), np.full_like(total, -np.inf)
    one[1:] = total[:-1]
    two[2:] = total[:-2]
    return np.stack([total, one, np.where(skips, two, -np.inf)])


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
    """Return the places of the ids of every word; without a divider, each id is one."""
    if divider is None:
        return [[place] for place in range(len(ids))]
    groups: list[list[int]] = [[]]
    for place, i in enumerate(ids):
        if i == divider:
            groups.append([])
        else:
            groups[-1].append(place)
    return [group for group in groups if group]


def _labels(reader: Any, ids: Sequence[int]) -> list[str]:
    """Return display strings of ids: their characters, or their numbers without a tokenizer."""
    if reader is None:
        return [str(i) for i in ids]
    divider = getattr(reader, "word_delimiter_token", None)
    return [" " if token == divider else str(token) for token in reader.convert_ids_to_tokens(list(ids))]
