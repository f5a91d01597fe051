"""Retrieval heads: while the model answers, they attend to the token it copies from the text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.statistics.statistic import Statistic, register
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.statistics.row_shares import Float
    from attnwidgets.tracing.text.axes import Text

PAPER = "Wu et al. 2025, Retrieval Head Mechanistically Explains Long-Context Factuality, section 2"
RECALL = 0.5
"""Share of the needle's words that an answer must contain to count (the authors: ROUGE-1 recall above 50)."""
_HAYSTACK = (
    "The morning was quiet and the streets were still wet. A baker opened his door and swept the steps. "
    "Two boats lay in the harbour, and nobody was in a hurry. Later the clouds went away, and people sat "
    "outside. The river is wide at this place, and the bridge is old. In the afternoon the shops were open. "
    "Some children played near the trees until it was dark. "
)
_TEMPLATE = "{context}\n\nQuestion: {question}\nAnswer:"

RETRIEVAL = register(
    Statistic(
        "retrieval",
        "retrieval",
        "Share of the needle's tokens that a head attended to most while the model copied them.",
        "0 to 1; the authors call a head a retrieval head from 0.1",
        "copies from far back in the text into the answer",
        PAPER,
        made_by="aw.statistics.retrieval_score(model, tokenizer, needle, question)",
    )
)


@dataclass(frozen=True)
class _Needle:
    """Positions of a needle's tokens, and the ids of prompt and answer."""

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

    A needle (a sentence the model cannot know) is inserted into a long text at several depths, and the model
    is queried about it. When it generates token w, a head copies it if the key it attends to most is the same
    token in the needle. The head's score is the share of the needle's tokens that it copied at some step,
    |g and k| / |k| in the paper's notation, averaged over the prompts that were answered: the others show no
    copying. The authors average over 600 such prompts and call a head with a score of 0.1 or more a retrieval
    head; a few prompts find the strongest ones.

    Args:
        model: A decoder that generates.
        tokenizer: Its tokenizer.
        needle: The sentence to find.
        question: The question about it.
        answer: The part of the needle that answers the question, whose tokens are counted; by default all of
            it.
        haystack: The text around it, repeated or cut to `words` words; by default a few plain sentences.
        words: Number of words of the haystack.
        depths: Positions of the needle in the haystack, from 0 (start) to 1 (end); it is put between two
            sentences.
        template: The prompt, with {context} and {question}. By default both form one message in the
            tokenizer's chat template if it has one, else a question with "Answer:".
        max_new_tokens: Largest number of tokens of an answer.
        recall: Share of the answer's words that the model must say for a prompt to count.

    Returns:
        HeadStatistics with the statistic "retrieval" [layer, head], a share from 0 to 1. High: copies from
        the text into the answer. Low: does not. `.provenance["prompts"]` has the model's answers.

    Raises:
        ValueError: If no prompt was answered (the message quotes the model), the answer is not part of the
            needle, or an option is out of range.

    Source: Wu et al. 2025, section 2. Tokens are counted by their positions in the needle, so that one that
    the model says twice counts once.

    Example:
        >>> scores = aw.statistics.retrieval_score(
        ...     *aw.demo_model("decoder"),
        ...     needle="The secret word is banana.",
        ...     question="What is the secret word?",
        ...     answer="banana",
        ...     words=20,
        ...     depths=(0.5,),
        ... )
        >>> scores["retrieval"].shape
        (30, 9)
    """
    from attnwidgets._progress import progress
    from attnwidgets.explanations.mixing.attention import attention

    expected = needle if answer is None else answer
    if expected not in needle:
        raise ValueError(f"answer {expected!r} is not part of the needle {needle!r}, from which heads copy.")
    if not depths or not all(0 <= depth <= 1 for depth in depths):
        raise ValueError(f"depths must be numbers from 0 to 1, not {depths!r}.")
    scores: list[Float] = []
    prompts: list[dict[str, Any]] = []
    of = None
    for depth in progress(list(depths), desc="retrieval: prompts"):
        context = _context(needle, _HAYSTACK if haystack is None else haystack, words, depth)
        traced = _ask(model, tokenizer, context, question, template, max_new_tokens)
        located = _find(traced, expected)
        share = _recall(located.answer, expected)
        prompts.append({"depth": float(depth), "answer": located.answer, "recall": share})
        if share > recall:
            scores.append(_share_copied(traced, located))
            of = of or attention(traced)
    if of is None:
        answers = "; ".join(f"at {p['depth']:g}: {p['answer'].strip()!r:.80}" for p in prompts)
        raise ValueError(
            f"no prompt was answered, so nothing was copied: the model said {answers}. Rephrase the "
            "question, allow more tokens, shorten the haystack, or lower recall."
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
            "options": {"needle": needle, "question": question, "answer": expected, "words": words},
            "model": of.provenance.get("model", ""),
            "paper": PAPER,
            "prompts": prompts,
            "title": f"retrieval score on {len(scores)} prompts",
        },
    )


def copied_share(trace: Any, needle: str | tuple[int, int]) -> Float:
    """Return the share of a needle's tokens that each head copied while the model generated [layer, head].

    Args:
        trace: A trace of a prompt that contains the needle, with the model's continuation:
            `aw.trace(model, tokenizer, prompt, max_new_tokens=...)`.
        needle: A part of the prompt's text, or its range of tokens (start, end), end excluded.

    Returns:
        Shares from 0 to 1 [layer, head] in float64; NaN for heads that a layer does not have. High: copies
        the needle. Low: does not.

    Raises:
        ValueError: If nothing was generated, or the needle is not in the prompt.

    Example:
        >>> prompt = "The secret word is banana. Again, the secret word is"
        >>> trace = aw.trace(*aw.demo_model("decoder"), prompt, max_new_tokens=2)
        >>> aw.statistics.copied_share(trace, "banana").shape
        (30, 9)
    """
    return _share_copied(trace, _find(trace, needle))


def _context(needle: str, haystack: str, words: int, depth: float) -> str:
    """Return `words` words of the haystack, with the needle between two of its sentences."""
    from attnwidgets.tracing.text.words import sentence_spans

    available = haystack.split()
    if not available or words < 1:
        raise ValueError(f"haystack has {len(available)} words and words={words}: both must be at least 1.")
    text = " ".join((available * (words // len(available) + 1))[:words])
    ends = [0, *(end for _, end in sentence_spans(text))]
    cut = min(ends, key=lambda end: abs(end - depth * len(text)))
    return " ".join(part for part in (text[:cut].strip(), needle.strip(), text[cut:].strip()) if part)


def _ask(model: Any, tokenizer: Any, context: str, question: str, template: str | None, new: int) -> Any:
    from attnwidgets.tracing.recording.run import trace

    if template is None and getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": f"{context}\n\n{question}"}]
        return trace(model, tokenizer, messages=messages, max_new_tokens=new)
    try:
        prompt = (template or _TEMPLATE).format(context=context, question=question)
    except (KeyError, IndexError) as error:
        raise ValueError(
            f"template has the field {error}; its fields must be {{context}} and {{question}}."
        ) from error
    return trace(model, tokenizer, prompt, max_new_tokens=new)


def _find(trace: Any, needle: str | tuple[int, int]) -> _Needle:
    """Return the needle in a trace with a continuation."""
    from attnwidgets.tracing.recording.inputs import text_of_ids, text_tokenizer

    if trace.boundary is None or trace.input_ids is None or len(trace.stacks) > 1:
        raise ValueError(
            "trace has no continuation of its text: make it with a decoder and max_new_tokens=..., so that "
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
    """Return the prompt's tokens that spell the needle; in any case and with any spaces."""
    pattern = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", needle))
    match = re.search(pattern, text.texts[0], re.IGNORECASE) if pattern else None
    if match is None:
        raise ValueError(
            f"needle {needle!r} is not in the prompt as its tokens spell it: {text.texts[0]!r:.200}"
        )
    begin, end = match.span()
    # Leading spaces of a token are not part of a word.
    return tuple(
        position
        for position, (first, last) in enumerate(text.spans[:boundary])
        if text.texts[0][max(first, begin) : min(last, end)].strip()
    )


def _recall(answer: str, expected: str) -> float:
    """Return the share of the expected words in an answer (ROUGE-1 recall)."""
    counts = [Counter(re.findall(r"\w+", text.casefold())) for text in (answer, expected)]
    total = sum(counts[1].values())
    return sum((counts[0] & counts[1]).values()) / total if total else 0.0


def _share_copied(trace: Any, needle: _Needle) -> Float:
    """Return the share of the needle's tokens that each head copied [layer, head]; NaN: no such head."""
    steps = np.arange(needle.boundary, len(needle.ids))
    ids = np.array(needle.ids)
    in_needle = np.zeros(len(ids), dtype=bool)
    in_needle[list(needle.positions)] = True
    scores = np.full((trace.n_layers(), trace.n_heads()), np.nan)
    for row, layer in enumerate(trace.layers()):
        # A token is predicted from the row before it.
        strongest = np.asarray(trace.attention_rows(layer, None, (steps - 1).tolist())).argmax(axis=2)
        copied = in_needle[strongest] & (ids[strongest] == ids[steps])
        scores[row, : len(strongest)] = [
            len(set(keys[hits].tolist())) / len(needle.positions)
            for keys, hits in zip(strongest, copied, strict=True)
        ]
    return scores
