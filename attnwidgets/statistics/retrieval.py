"""Retrieval heads: what looks, while the model answers, at the very token that it copies from a text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.statistics.statistic import Statistic, known
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.statistics.row_shares import Float
    from attnwidgets.tracing.text.axes import Text

PAPER = "Wu et al. 2025, Retrieval Head Mechanistically Explains Long-Context Factuality, section 2"
RECALL = 0.5
"""Share of the needle's words that an answer must have for its heads to be scored (the authors': ROUGE-1
recall above 50)."""
_HAYSTACK = (
    "The morning was quiet and the streets were still wet. A baker opened his door and swept the steps. "
    "Two boats lay in the harbour, and nobody was in a hurry. Later the clouds went away, and people sat "
    "outside. The river is wide at this place, and the bridge is old. In the afternoon the shops were open. "
    "Some children played near the trees until it was dark. "
)
_TEMPLATE = "{context}\n\nQuestion: {question}\nAnswer:"

RETRIEVAL = known(
    Statistic(
        "retrieval",
        "retrieval",
        "The share of the needle's tokens at which a head looked most while the model copied them.",
        "0 to 1; the authors call a head a retrieval head from 0.1",
        "copies from far back in the text into the answer",
        PAPER,
    )
)


@dataclass(frozen=True)
class _Needle:
    """Where a needle lies: positions of its tokens, and the ids of prompt and answer."""

    positions: tuple[int, ...]
    ids: tuple[int, ...]
    boundary: int
    answer: str


def retrieval_score(
    model: Any,
    tokenizer: Any,
    needle: str,
    question: str,
    *,
    answer: str | None = None,
    haystack: str | None = None,
    words: int = 200,
    depths: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    template: str | None = None,
    max_new_tokens: int = 32,
    recall: float = RECALL,
) -> HeadStatistics:
    """Return the retrieval score of every head: how much of a needle it copies into the model's answer.

    A needle (a sentence the model cannot know) is put into a long text at several depths, and the model is
    asked for it. While it generates token w, a head copies it if the key it looks at most is that very token
    in the needle. Its score is the share of the needle's tokens that it copied at some step,
    |g and k| / |k| in the paper's letters, as a mean over the prompts that were answered: others say
    nothing of copying. The authors average over 600 such prompts and call a head with 0.1 or more a
    retrieval head; a few prompts find the strongest ones.

    Args:
        model: A decoder that generates.
        tokenizer: Its tokenizer.
        needle: The sentence to be found.
        question: What is asked.
        answer: The part of the needle that answers, and of which tokens are counted; by default all of it.
        haystack: The text around it, repeated or cut to `words` words; by default a few plain sentences.
        words: Words of the haystack.
        depths: Where in the haystack the needle stands, 0 (at its start) to 1 (at its end); put between two
            of its sentences.
        template: The prompt, with {context} and {question}. By default both as one message in the
            tokenizer's chat template where it has one, else as question and answer.
        max_new_tokens: The most tokens of an answer.
        recall: The share of the answer's words that the model must say for a prompt to count.

    Returns:
        HeadStatistics with one statistic, "retrieval" [layer, head], 0 to 1. What the model answered at every
        depth is in `.provenance["prompts"]`.

    Raises:
        ValueError: Where no prompt was answered (says what the model said), the answer is no part of the
            needle, or an option is out of its range.

    Source: Wu et al. 2025, section 2. Tokens are counted by their places in the needle, so that one that the
    model says twice counts once.
    """
    from attnwidgets._progress import progress
    from attnwidgets.explanations.mixing.attention import attention

    wanted = needle if answer is None else answer
    if wanted not in needle:
        raise ValueError(
            f"answer {wanted!r} is no part of the needle {needle!r}: retrieval copies from there."
        )
    if not depths or not all(0 <= depth <= 1 for depth in depths):
        raise ValueError(f"depths must be numbers from 0 to 1, not {depths!r}.")
    scores: list[Float] = []
    prompts: list[dict[str, Any]] = []
    of = None
    for depth in progress(list(depths), desc="retrieval: prompts"):
        context = _context(needle, _HAYSTACK if haystack is None else haystack, words, depth)
        traced = _ask(model, tokenizer, context, question, template, max_new_tokens)
        found = _find(traced, wanted)
        share = _recall(found.answer, wanted)
        prompts.append({"depth": float(depth), "answer": found.answer, "recall": share})
        if share > recall:
            scores.append(_copied(traced, found))
            of = of or attention(traced)
    if of is None:
        said = "; ".join(f"at {p['depth']:g}: {p['answer'].strip()!r:.80}" for p in prompts)
        raise ValueError(
            f"no prompt was answered, so that nothing was copied: the model said {said}. Ask otherwise, "
            "allow more tokens, shorten the haystack, or lower recall."
        )
    return HeadStatistics(
        np.mean(scores, axis=0)[None],
        names=(RETRIEVAL.name,),
        layers=of.layers,
        heads=of.heads,
        stack=of.stack,
        method="retrieval_score",
        warning="" if len(scores) == len(prompts) else f"{len(scores)} of {len(prompts)} prompts answered",
        provenance={
            "options": {"needle": needle, "question": question, "answer": wanted, "words": words},
            "model": of.provenance.get("model", ""),
            "paper": PAPER,
            "prompts": prompts,
            "title": f"retrieval score on {len(scores)} prompts",
        },
    )


def copied_share(trace: Any, needle: str | tuple[int, int]) -> Float:
    """Return the share of a needle's tokens that each head copied while the model generated [layer, head].

    Args:
        trace: Of a prompt that holds the needle, with the model's own continuation:
            `aw.trace(model, tokenizer, prompt, max_new_tokens=...)`.
        needle: A part of the prompt's text, or its first token and the one after its last.

    Raises:
        ValueError: Where nothing was generated, or the needle is not in the prompt.
    """
    return _copied(trace, _find(trace, needle))


def _context(needle: str, haystack: str, words: int, depth: float) -> str:
    """Return the haystack in so many words with the needle between two of its sentences."""
    from attnwidgets.tracing.text.words import sentence_spans

    spoken = haystack.split()
    if not spoken or words < 1:
        raise ValueError(f"the haystack needs words: it has {len(spoken)}, and {words} were asked for.")
    text = " ".join((spoken * (words // len(spoken) + 1))[:words])
    ends = [0, *(end for _, end in sentence_spans(text))]
    at = min(ends, key=lambda end: abs(end - depth * len(text)))
    return " ".join(part for part in (text[:at].strip(), needle.strip(), text[at:].strip()) if part)


def _ask(model: Any, tokenizer: Any, context: str, question: str, template: str | None, new: int) -> Any:
    from attnwidgets.tracing.recording.run import trace

    if template is None and getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": f"{context}\n\n{question}"}]
        return trace(model, tokenizer, messages=messages, max_new_tokens=new)
    try:
        prompt = (template or _TEMPLATE).format(context=context, question=question)
    except (KeyError, IndexError) as error:
        raise ValueError(
            f"template has a field {error} that is neither {{context}} nor {{question}}."
        ) from error
    return trace(model, tokenizer, prompt, max_new_tokens=new)


def _find(trace: Any, needle: str | tuple[int, int]) -> _Needle:
    """Return where a needle lies in a trace with a continuation."""
    from attnwidgets.tracing.recording.inputs import text_of_ids, text_tokenizer

    if trace.boundary is None or trace.input_ids is None or len(trace.stacks) > 1:
        raise ValueError(
            "trace holds no continuation of its text: make it with max_new_tokens=... and a decoder, so that "
            "there is an answer to copy into."
        )
    ids = tuple(int(i) for i in trace.input_ids)
    text = text_of_ids(text_tokenizer(trace.tokenizer), ids)
    answer = text.texts[0][text.spans[trace.boundary][0] :] if trace.boundary < len(ids) else ""
    if isinstance(needle, str):
        positions = _positions(text, needle, trace.boundary)
    else:
        positions = tuple(range(*needle))
        if not positions or positions[0] < 0 or positions[-1] >= trace.boundary:
            raise ValueError(
                f"needle {needle} is not in the prompt, which has tokens 0 to {trace.boundary - 1}."
            )
    return _Needle(positions, ids, trace.boundary, answer)


def _positions(text: Text, needle: str, boundary: int) -> tuple[int, ...]:
    """Return the prompt's tokens that spell the needle; case and spaces may be the tokenizer's own."""
    pattern = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", needle))
    found = re.search(pattern, text.texts[0], re.IGNORECASE) if pattern else None
    if found is None:
        raise ValueError(
            f"needle {needle!r} is not in the prompt as its tokens spell it: {text.texts[0]!r:.200}"
        )
    begin, end = found.span()
    # Leading spaces of a token are no part of a word.
    inside = [
        place
        for place, (first, last) in enumerate(text.spans[:boundary])
        if max(first, begin) < min(last, end) and text.texts[0][max(first, begin) : min(last, end)].strip()
    ]
    return tuple(inside)


def _recall(said: str, wanted: str) -> float:
    """Return the share of the wanted words that were said (ROUGE-1 recall)."""
    counts = [Counter(re.findall(r"\w+", text.casefold())) for text in (said, wanted)]
    total = sum(counts[1].values())
    return sum((counts[0] & counts[1]).values()) / total if total else 0.0


def _copied(trace: Any, found: _Needle) -> Float:
    """Return the share of the needle's tokens that each head copied [layer, head]; NaN: no such head."""
    steps = np.arange(found.boundary, len(found.ids))
    ids = np.array(found.ids)
    needle = np.zeros(len(ids), dtype=bool)
    needle[list(found.positions)] = True
    scores = np.full((trace.n_layers(), trace.n_heads()), np.nan)
    for layer in range(trace.n_layers()):
        # The row before a token is what it was predicted from.
        looked = np.asarray(trace.attention_layer(layer)[:, steps - 1]).argmax(axis=2)
        copied = needle[looked] & (ids[looked] == ids[steps])
        scores[layer, : len(looked)] = [
            len(set(places[hits].tolist())) / len(found.positions)
            for places, hits in zip(looked, copied, strict=True)
        ]
    return scores
