"""An answer written anew from before and after each of its sentences, with its final answers counted."""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.circuits.sentences.resampled_answers import FEWEST, ResampledAnswers, importance_of
from attnwidgets.circuits.sentences.rewriting import require_writer
from attnwidgets.circuits.sentences.sampled_continuations import sampled
from attnwidgets.concepts.states import states
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer
from attnwidgets.tracing.text.words import sentence_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.circuits.sentences.answer_parts import AnswerParts
    from attnwidgets.circuits.sentences.sampled_continuations import Drawn, Sampling
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]
    Whole = NDArray[np.int64]

NOT_ENDED, NO_ANSWER = "(not ended)", "(no answer)"
_LONGER = 32  # tokens beyond twice those of the rest of the answer
_ROUNDING = 1e-6  # of similarities of the same sentence


def resample(
    parts: AnswerParts,
    sampling: Sampling,
    *,
    answer: Callable[[str], str] | None,
    embed: Any,
    max_new_tokens: int | None,
    level: float,
    folder: Any,
) -> ResampledAnswers:
    """Return the final answers from before and after each sentence of an answer; see `Sources.resample`.

    Raises:
        ValueError: If the trace has no tokenizer, the text is as long as the model takes, or an option is out
            of its range.
        UnsupportedModelError: If the model does not continue texts, or reads more than token ids.
        TypeError: If `answer` returns no text.
    """
    trace = parts.trace
    require_writer(trace, parts.stack, "resample lets a decoder write an answer anew", "")
    reader = text_tokenizer(trace.tokenizer)
    if reader is None:
        raise ValueError("resample compares texts: trace with the model's tokenizer.")
    if sampling.draws < FEWEST:
        raise ValueError(f"draws must be {FEWEST} or more, not {sampling.draws}.")
    if not 0 < level < 1:
        raise ValueError(f"level={level} is not above 0 and below 1.")
    cuts = _cuts(parts, reader, max_new_tokens)
    most = sampling.draws * sum(new for _, new in cuts)
    warnings.warn(
        f"resample: up to {most:,} new tokens, in {sampling.draws:,} continuations from before each of "
        f"{len(parts.sentences):,} sentences and from the end.",
        UserWarning,
        stacklevel=3,
    )
    originals = [_text(reader, [parts.ids[at] for at in sentence]).strip() for sentence in parts.sentences]
    vectors = _vectors(embed, trace, originals)  # before the long work, so that it does not fail after it
    drawn = sampled(trace, cuts, sampling, folder)
    before = parts.tokens[0]
    texts = [
        tuple(_text(reader, parts.ids[before:kept] + list(ids)) for ids in item.ids)
        for (kept, _), item in zip(cuts, drawn, strict=True)
    ]
    answers, numbers = _clusters([_finals(*pair, answer) for pair in zip(texts, drawn, strict=True)])
    new = [[_first(_text(reader, ids)) for ids in item.ids] for item in drawn[:-1]]
    differs = _differing(new, vectors, embed, trace)
    counts = np.stack([_counted(row, len(answers)) for row in numbers])
    different = np.stack(
        [_counted(row[mask], len(answers)) for row, mask in zip(numbers[:-1], differs, strict=True)]
    )
    return ResampledAnswers(
        parts.texts,
        answers,
        counts,
        different,
        importance_of(counts[:-1], counts[1:], level, sampling.seed),
        importance_of(different, counts[1:], level, sampling.seed),
        tuple(texts),
        level,
        _warning(counts, different, drawn),
    )


def _cuts(parts: AnswerParts, reader: Any, most: int | None) -> list[tuple[int, int]]:
    """Return from which tokens on the answer is written, and the largest numbers of new tokens."""
    if most is not None and most < 1:
        raise ValueError(f"max_new_tokens must be 1 or more, not {most}.")
    end = parts.tokens[-1] + 1
    limit = limit_of(unwrap(parts.trace.model), reader)
    cuts = []
    for kept in [*(sentence[0] for sentence in parts.sentences), end]:
        new = 2 * (end - kept) + _LONGER if most is None else most
        cuts.append((kept, new if limit is None else min(new, limit - kept)))
    if cuts[-1][1] < 1:
        raise ValueError(f"the model takes {limit} tokens, so that nothing can follow the answer's {end}.")
    return cuts


def _finals(texts: Sequence[str], drawn: Drawn, answer: Callable[[str], str] | None) -> list[str]:
    """Return the final answers of texts; of a text that did not end, its last sentence is none."""
    if answer is None:
        return [
            (last_sentence(text) or NO_ANSWER) if ended else NOT_ENDED
            for text, ended in zip(texts, drawn.ended, strict=True)
        ]
    result = [answer(text) for text in texts]
    wrong = [item for item in result if not isinstance(item, str)]
    if wrong:
        raise TypeError(
            f"answer must return a string, not {wrong[0]!r}; '' where a text has no final answer."
        )
    return [item.strip() or NO_ANSWER for item in result]


def _clusters(finals: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[NDArray[np.intp]]]:
    """Return the distinct answers in their most frequent spelling, and the number of each draw's answer."""
    spellings: dict[str, Counter[str]] = {}
    for final in (final for row in finals for final in row):
        spellings.setdefault(normalised(final), Counter())[final] += 1
    order = sorted(spellings, key=lambda key: -spellings[key].total())
    number = {key: at for at, key in enumerate(order)}
    labels = tuple(spellings[key].most_common(1)[0][0] for key in order)
    return labels, [np.array([number[normalised(final)] for final in row]) for row in finals]


def _counted(numbers: NDArray[np.intp], answers: int) -> Whole:
    return np.bincount(numbers, minlength=answers).astype(np.int64)


def _first(text: str) -> str:
    spans = sentence_spans(text)
    return text[slice(*spans[0])] if spans else ""


def _differing(
    new: Sequence[Sequence[str]], vectors: Float, embed: Any, trace: Trace
) -> list[NDArray[np.bool_]]:
    """Return whether each new sentence differs in meaning from the sentence it replaces [sentence][draw].

    Its similarity is at most the median over all draws of all sentences, and below 1. A draw that ended at
    once has no new sentence, and differs.

    Args:
        new: The new sentences; "" for none.
        vectors: Of the sentences [sentence, dim].
        embed: As `_vectors` takes it.
        trace: The trace.
    """
    distinct = list(dict.fromkeys(text for row in new for text in row if text))
    if not distinct:
        return [np.ones(len(row), bool) for row in new]
    every = dict(zip(distinct, _vectors(embed, trace, distinct), strict=True))
    similarity = [
        np.array([float(every[text] @ vector) if text else -np.inf for text in row])
        for row, vector in zip(new, vectors, strict=True)
    ]
    values = np.concatenate(similarity)
    median = np.median(values[np.isfinite(values)])
    return [row < min(median + _ROUNDING, 1 - _ROUNDING) for row in similarity]


def _vectors(embed: Any, trace: Trace, texts: Sequence[str]) -> Float:
    """Return vectors of length 1 of texts [text, dim].

    Args:
        embed: Returns vectors of texts; or a model and its tokenizer, whose mean last states are taken; None:
            those of the trace.
        trace: The trace.
        texts: The texts.

    Raises:
        ValueError: If there is not a vector of finite numbers for every text.
    """
    if callable(embed):
        vectors = np.asarray(embed(list(texts)), dtype=np.float64)
    else:
        model, tokenizer = (trace.model, trace.tokenizer) if embed is None else embed
        vectors = np.asarray(states(model, tokenizer, texts, layers=-1).values[:, 0], dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():  # noqa: PLR2004
        raise ValueError(
            f"embed returns {vectors.shape}, not a finite vector for each of {len(texts)} texts."
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def _warning(counts: Whole, different: Whole, drawn: Sequence[Drawn]) -> str:
    """Return what the numbers do not cover."""
    notes = []
    open_ended = sum(not ended for item in drawn for ended in item.ended)
    total = sum(len(item.ended) for item in drawn)
    if open_ended:
        notes.append(
            f"{open_ended:,} of {total:,} answers reached the largest number of tokens before they ended"
        )
    pairs = counts[:-1] + counts[1:]
    single = (pairs == 1).sum(axis=1) > pairs.sum(axis=1) / 2
    if single.any():
        notes.append(
            f"around {single.sum()} of {len(different)} sentences most answers were given once, and KL says "
            "nothing: answer= names what is compared"
        )
    few = different.sum(axis=1) < FEWEST
    if few.any():
        notes.append(
            f"no counterfactual importance of {few.sum()} of {len(different)} sentences: in fewer than "
            f"{FEWEST} draws the new sentence has another meaning"
        )
    return "; ".join(notes)


def _text(reader: Any, ids: Sequence[int]) -> str:
    return str(reader.decode(list(ids), skip_special_tokens=True))


def last_sentence(text: str) -> str:
    """Return the last sentence of a text; "" if it has none."""
    spans = sentence_spans(text)
    return text[slice(*spans[-1])] if spans else ""


def normalised(answer: str) -> str:
    """Return an answer in lower case, without punctuation around its words, with single blanks.

    Minus and percent signs stay: they change a number.
    """
    words = [_bare(word) for word in unicodedata.normalize("NFKC", answer).casefold().split()]
    return " ".join(word for word in words if word) or " ".join(answer.split())


def _bare(word: str) -> str:
    inside = [at for at, sign in enumerate(word) if unicodedata.category(sign)[0] != "P" or sign in "-%"]
    bare = word[inside[0] : inside[-1] + 1] if inside else ""
    return bare if bare.strip("-") else ""
