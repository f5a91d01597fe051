"""aw.circuits.sources: on which message, passage or sentence each sentence of an answer rests."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._tables import Table
from attnwidgets.circuits.sentences.answer_parts import AnswerParts, answer_parts
from attnwidgets.circuits.sentences.part_scores import (
    METHOD_PAPERS,
    METHODS,
    TITLES,
    Method,
    Work,
    pair_losses,
    passes_of,
    score_parts,
)
from attnwidgets.circuits.sentences.resampling import resample
from attnwidgets.circuits.sentences.rewriting import TEMPERATURE, TOP_P
from attnwidgets.circuits.sentences.sampled_continuations import Sampling
from attnwidgets.circuits.sentences.sentence_attribution import LONG_WORK
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace
from attnwidgets.explanations.viewable import Viewable, bundle_of
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.sentences.resampled_answers import ResampledAnswers
    from attnwidgets.tracing.trace import Trace

WEAK = 0.6
"""Nats; of planted chats, the largest part was the true one in 50 of 53 above, and in 3 of 7 below."""
_ITSELF = "the answer so far"
_COVER = "parts that say the same cover for each other: each is then small alone; .pairs() hides two together"


@dataclass(frozen=True, repr=False)
class SourcePairs(Table):
    """The loss of each sentence of an answer with two parts hidden together.

    Attributes:
        sentences: The sentences.
        labels: The parts.
        both: Nats with two parts hidden [sentence, part, part], symmetric; NaN for pairs that were not tried.
        alone: Nats with one part hidden [sentence, part]; NaN for parts that are in no pair.
    """

    sentences: tuple[str, ...]
    labels: tuple[str, ...]
    both: np.ndarray
    alone: np.ndarray

    @property
    def interaction(self) -> np.ndarray:
        """Nats of both less those of each alone [sentence, part, part].

        Positive: the two cover for each other. Negative: the answer needs them together.
        """
        return self.both - self.alone[:, :, None] - self.alone[:, None, :]

    def covering(self) -> tuple[tuple[str, str] | None, ...]:
        """Return for each sentence the two parts that cover for each other, of those that lose most together.

        None where no pair loses 0.6 nats, or the pair that loses most does so for one of its parts: together
        no more than 0.3 nats above the sum of both.
        """
        result: list[tuple[str, str] | None] = []
        for both, interaction in zip(self.both, self.interaction, strict=True):
            filled = np.where(np.isnan(both), -np.inf, both)
            first, second = sorted(int(at) for at in np.unravel_index(filled.argmax(), filled.shape))
            covers = filled.max() >= WEAK and interaction[first, second] > WEAK / 2
            result.append((self.labels[first], self.labels[second]) if covers else None)
        return tuple(result)

    def _columns(self) -> Iterator[Columns]:
        """Yield sentence, both parts, and nats of both, of each alone, and of their interaction."""
        index = [tuple(at) for at in np.argwhere(~np.isnan(self.both)).tolist() if at[1] < at[2]]
        yield {
            "sentence": [self.sentences[row] for row, _, _ in index],
            "first": [self.labels[first] for _, first, _ in index],
            "second": [self.labels[second] for _, _, second in index],
            "both": [float(self.both[at]) for at in index],
            "first alone": [float(self.alone[row, first]) for row, first, _ in index],
            "second alone": [float(self.alone[row, second]) for row, _, second in index],
            "interaction": [float(self.interaction[at]) for at in index],
        }

    def __repr__(self) -> str:
        nothing = "no two cover for each other"
        said = "; ".join(
            f"{sentence!r}: {nothing if pair is None else ' and '.join(map(repr, pair))}"
            for sentence, pair in zip(self.sentences, self.covering(), strict=True)
        )
        return f"<SourcePairs: {said}>"


@dataclass(frozen=True, repr=False)
class Sources(Table, Viewable):
    """How much each sentence of an answer rests on each part of the text before it.

    Attributes:
        scores: Attributions [sentence of the answer, part]; `.view()` shows them. In nats that the sentence
            loses without the part; by "lrp", in logits. The last column is the answer's words before the
            sentence. Negative: the sentence is likelier without the part.
        roles: Parts that stand apart: "system", "question" (a user's last message), "answer"; "" for others.
        spans: The tokens of every part; those of the answer for the last.
        method: "hidden", "removed", "lrp" or "subsets".
        by_token: Nats [token of the answer, part], which `scores` sums; None by "lrp" and "subsets".
    """

    kind: ClassVar[str] = "Sources"
    viewed_by: ClassVar[str] = "circuits.sources_view:SourcesView"

    scores: Attributions
    roles: tuple[str, ...]
    spans: tuple[tuple[int, ...], ...]
    method: Method = "hidden"
    by_token: NDArray[np.float64] | None = None
    _parts: AnswerParts | None = None
    _work: Work | None = None

    @property
    def trace(self) -> Trace | None:
        """The text and its model, which the view reads; None of scores without them."""
        return None if self._parts is None else self._parts.trace

    @property
    def sentences(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of every sentence of the answer."""
        return () if self._parts is None else self._parts.sentences

    def strongest(self) -> tuple[str | None, ...]:
        """Return the part on which each sentence rests most, of those that do not stand apart.

        None where no part matters much: the largest is below 0.6 nats (by "lrp", whose logits have no such
        limit: it is not positive), or there is none.
        """
        inside = [at for at, role in enumerate(self.roles) if not role]
        result: list[str | None] = []
        for row in self._values():
            best = max(inside, key=lambda at: row[at], default=None)
            weak = best is None or (row[best] <= 0 if self.method == "lrp" else row[best] < WEAK)
            result.append(None if best is None or weak else self.scores.labels[best])
        return tuple(result)

    def pairs(self, top: int = 6) -> SourcePairs:
        """Hide two parts together, for the parts that matter most by LRP, and return the losses of sentences.

        Of parts that say the same, hiding one changes little while the model reads the other. LRP hides
        nothing, so that it chooses the parts: each sentence's `top`, of those that do not stand apart.

        Args:
            top: Number of parts that are paired, for each sentence; top * (top - 1) / 2 passes.

        Returns:
            SourcePairs: `.covering()` names the pairs, `.to_rows()` holds the numbers.

        Raises:
            ValueError: If fewer than two parts do not stand apart, or `top` is below 2.
            UnsupportedModelError: If LRP does not hold for the model.
        """
        if self._parts is None or self._work is None:
            raise ValueError("pairs runs the model: call it on what aw.circuits.sources returned.")
        free = [at for at, role in enumerate(self.roles) if not role]
        if top < 2 or len(free) < 2:  # noqa: PLR2004 - a pair
            raise ValueError(
                f"pairs are made of 2 parts or more: top is {top}, and {len(free)} parts do not stand apart."
            )
        work = replace(self._work, method="lrp")
        ranks = self._values() if self.method == "lrp" else score_parts(self._parts, work).values
        chosen = [sorted(free, key=lambda at: -row[at])[:top] for row in ranks]
        pairs = sorted({pair for numbers in chosen for pair in combinations(sorted(numbers), 2)})
        single = sorted({at for pair in pairs for at in pair})
        _say_if_long(self._parts, len(pairs) + len(single), "hiding pairs")
        nats = pair_losses(self._parts, [*((at,) for at in single), *pairs], work)
        count, rows = len(self.roles) - 1, len(ranks)
        alone, both = np.full((rows, count), np.nan), np.full((rows, count, count), np.nan)
        alone[:, single] = nats[: len(single)].T
        for (first, second), values in zip(pairs, nats[len(single) :], strict=True):
            both[:, first, second] = both[:, second, first] = values
        return SourcePairs(self._sentences(), tuple(self.scores.labels[:count]), both, alone)

    def resample(
        self,
        draws: int = 100,
        *,
        answer: Callable[[str], str] | None = None,
        embed: Any = None,
        temperature: float = TEMPERATURE,
        top_p: float = TOP_P,
        max_new_tokens: int | None = None,
        level: float = 0.95,
        seed: int = 0,
    ) -> ResampledAnswers:
        """Let the model write the answer anew around each of its sentences, and compare the final answers.

        From before sentence i, the model writes another sentence and what follows; from after it, what
        follows alone. Equal final answers are counted together:

            resampling importance[i] = KL(answers without sentence i || answers with it), in nats

        with half a draw added to each answer that was given on either side. The counterfactual importance
        takes only those answers without it whose new sentence differs in meaning: its cosine similarity with
        sentence i is at most the median over all draws, and below 1. Continuations from after a sentence are
        those from before the next, so that S sentences cost `draws` x (S + 1) of them; a UserWarning states
        the cost before they start. Finished ones are stored in `cache`, the folder of `aw.circuits.sources`.

        Args:
            draws: Number of answers from before and after each sentence, 10 or more.
            answer: Takes the text of a whole answer and returns its final answer, "" for none. By default its
                last sentence; those that do not end within `max_new_tokens` then count as "(not ended)".
            embed: Compares sentences: a function from texts to vectors [text, dim], or a model and its
                tokenizer, whose mean last states are compared: `aw.demo_model("encoder")` is the authors'. By
                default the explained model.
            temperature: Logits are divided by it. The authors' is 0.6.
            top_p: Tokens are drawn among the fewest whose probabilities reach this sum. The authors' is 0.95.
            max_new_tokens: Most new tokens; by default 32 more than twice those of the answer from there on.
            level: Coverage of the intervals; share of random splits below `.chance`.
            seed: The same seed draws the same.

        Returns:
            ResampledAnswers: `.strongest()` are the sentences that change the answers more than chance,
            `.resampling` and `.counterfactual` hold nats with intervals, `.shares()` the answers.

        Raises:
            ValueError: If an option is out of its range, the trace has no tokenizer, or the text is as long
                as the model takes.
            UnsupportedModelError: If the model does not continue texts, or reads more than token ids.
            TypeError: If `answer` returns something else than a text.

        Source: Bogdan et al. 2025, Thought Anchors, section 3; intervals, chance, smoothing and the median
        over a single text are this package's.
        """
        if self._parts is None or self._work is None:
            raise ValueError("resample runs the model: call it on what aw.circuits.sources returned.")
        return resample(
            self._parts,
            Sampling(draws, temperature, top_p, seed),
            answer=answer,
            embed=embed,
            max_new_tokens=max_new_tokens,
            level=level,
            folder=self._work.cache,
        )

    def _values(self) -> np.ndarray:
        return np.atleast_2d(np.asarray(self.scores.values, dtype=np.float64))

    def _columns(self) -> Iterator[Columns]:
        """Yield sentence, part, role and nats (by "lrp": logits)."""
        for sentence, row in zip(self._sentences(), self._values(), strict=True):
            yield {
                "sentence": [sentence] * len(row),
                "part": self.scores.labels,
                "role": self.roles,
                "logits" if self.method == "lrp" else "nats": row.tolist(),
            }

    def _sentences(self) -> tuple[str, ...]:
        target = self.scores.target
        return target if isinstance(target, tuple) else (str(target),)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the view, where a kernel can show it, and text."""
        return bundle_of(self, **options)

    def __repr__(self) -> str:
        nothing = f"no {self.scores.unit} matters much"
        said = "; ".join(
            f"{sentence!r}: {nothing if part is None else repr(part)}"
            for sentence, part in zip(self._sentences(), self.strongest(), strict=True)
        )
        remark = "" if self.method == "lrp" else f" ({_COVER})"
        return f"<Sources by {self.method}: {said}{remark}>"


def sources(
    trace: Any,
    answer: int | tuple[int, int] | None = None,
    *,
    unit: Any = "message",
    method: Method = "hidden",
    samples: int = 64,
    seed: int = 0,
    jobs: int | Executor = 1,
    cache: Any = None,
) -> Sources:
    """Return on which parts of a text each sentence of an answer rests.

        score[s, j] = sum over tokens t of sentence s of log p(t) - log p(t without part j), in nats

    By "hidden", a part keeps its place: no token after it reads it, in any layer and head. By "removed" its
    tokens are taken out of the text and positions close up; a message's template stays. By "subsets", random
    halves of the parts are hidden, and each part's score is its weight in a sparse linear fit of the
    sentence's loss; parts that stand apart are hidden alone. By "lrp", a part's score is the relevance of its
    tokens for the sum of the sentence's logits, from one backward pass for each sentence.

    The words of the answer before a sentence are one more part. In models whose cache can be cut, a pass
    reads the tokens after the part alone. Others (sliding windows, recurrent states) read the whole text
    again, and `.scores.warning` says so. From about a minute on, the cost is reported before it starts.

    Parts that say the same cover for each other, and then each score is small: `.pairs()` hides two together.
    The question and a system message are needed by every answer, so they stand apart (`.roles`).

    Args:
        trace: Trace returned by `aw.trace`, with a model that continues texts.
        answer: Number of the message, or its tokens as a pair (start, end); by default the last message of
            the assistant, or the generated text.
        unit: "message", "passage", "sentence", another unit of the trace, a Unit, or spans of tokens.
        method: "hidden", "removed", "lrp" or "subsets". Prefer "subsets" for more parts than `samples`.
        samples: Number of random subsets.
        seed: Seed of their draw.
        jobs: Number of processes that share the passes, or an executor, as for `aw.evaluate.compare`; "lrp"
            stays in this process.
        cache: A folder to store passes in, so that an interrupted call goes on; None stores nothing.

    Returns:
        Sources: `.scores` [sentence of the answer, part], `.strongest()`, `.pairs()`.

    Raises:
        ValueError: If the text lacks the unit (messages are those of `messages=`), the answer or the parts
            before it have no tokens, the method is unknown, `samples` is below 1, or removing a part leaves
            nothing before the answer.
        UnsupportedModelError: If the trace has no model, or it predicts no tokens from those before; if a
            part is to be removed from a trace with pictures or sound; if LRP does not hold for the model.
        TypeError: If `trace` is not a trace.

    Source: the leave-one-out scores and the sparse fit of Cohen-Wang et al. 2024, ContextCite (there of the
    log odds, here of the log-probability), with parts hidden as in Bogdan et al. 2025, Thought Anchors,
    section 5; Achtibat et al. 2024 for "lrp".

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> trace = aw.trace(model, tokenizer, "fadebcfade")
        >>> parts = [(0, 5), (5, 7), (7, 10), (10, 11)]    # <s>fade, bc, fad, e
        >>> result = aw.circuits.sources(trace, (10, 11), unit=parts)
        >>> result.strongest()
        ('<s> f a d e',)
    """
    require_trace(trace, "sources")
    require_choice("method", method, METHODS)
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}.")
    traced: Trace = trace
    parts = answer_parts(traced, answer, unit)
    work = Work(method, samples, seed, jobs, cache)
    _say_if_long(parts, passes_of(parts, work), TITLES[method])
    result = score_parts(parts, work)
    options = {"answer": answer, "unit": parts.unit, "method": method}
    options |= {"samples": samples, "seed": seed} if method == "subsets" else {}
    whole = f"every pass read the whole text: {result.note}" if result.note else ""
    common = provenance_of(
        traced,
        parts.stack,
        "circuits.sources",
        paper=METHOD_PAPERS[method],
        title=TITLES[method],
        options=options,
        notes=["" if method == "lrp" else _COVER, whole],
    )
    scores = Attributions(
        result.values,
        axis=TokenAxis.plain([*parts.labels, _ITSELF], name=parts.unit),
        unit=parts.unit,
        target=parts.texts,
        **common,
    )
    return Sources(
        scores,
        (*parts.roles, "answer"),
        (*parts.spans, parts.tokens),
        method,
        result.by_token,
        parts,
        work,
    )


def _say_if_long(parts: AnswerParts, passes: int, work: str) -> None:
    """Report the cost, where it takes long."""
    n = len(parts.trace.tokens)
    weights = sum(parameter.numel() for parameter in parts.trace.model.parameters())
    if passes / 2 * n * weights >= LONG_WORK:
        warnings.warn(
            f"sources ({work}) takes {passes:,} passes of up to {n:,} tokens: {passes * n // 2:,} tokens in "
            "all where a model's cache can be cut, twice as many elsewhere. A coarser unit takes fewer; "
            'method="lrp" takes one backward pass for each sentence.',
            UserWarning,
            stacklevel=3,
        )
