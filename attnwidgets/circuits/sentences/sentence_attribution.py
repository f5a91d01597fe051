"""aw.circuits.sentence_attribution: which sentences of a text the later ones depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.circuits.sentences.sentence_units import Sentences, sentences_of
from attnwidgets.circuits.sentences.sums import between_sentences
from attnwidgets.circuits.sentences.suppression import effects
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.tracing.interventions import require_same_interventions
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

Method = Literal["suppress", "attention"]
METHODS: tuple[Method, ...] = ("suppress", "attention")
PAPER = "Bogdan et al. 2025, Thought Anchors: Which LLM Reasoning Steps Matter?"
_TEMPERATURE, _FLOOR = 0.6, 1e-9  # the authors'


def sentence_attribution(
    trace: Any,
    method: Method = "suppress",
    *,
    as_published: bool = False,
    skip_first_token: bool = True,
    unit: Any = "sentence",
    stack: str | None = None,
) -> MixingMap:
    """Return how much every sentence depends on every earlier one.

    "suppress" hides a sentence from all tokens after it, in all layers and heads, and measures at every later
    token how far the prediction moves:

        value[i, j] = mean over tokens t of sentence i of KL(p_t || p_t with sentence j hidden), in nats

    p_t is the prediction after token t. "attention" is the share of attention from the tokens of sentence i
    that goes to sentence j, for every head, summed in blocks of queries without building a layer.

    Neighbours matter most to each other: compare a value with others as far from the diagonal. On a short
    text without generated reasoning, suppression shows little beyond that (`docs/circuits.md`).

    Args:
        trace: What `aw.trace` returned.
        method: "suppress" or "attention".
        as_published: Take the authors' constants: predictions at temperature 0.6 and the mean of log(KL +
            1e-9) for "suppress", the mean over a sentence's keys, not the sum, for "attention". The authors
            compare the tokens that make 0.9999 of the probability, at most 100; here it is all tokens.
        skip_first_token: Leave the first token out: nearly all heads rest there when there is nothing to do.
        unit: "sentence", another unit of the trace, a Unit, or spans of tokens as pairs (start, end).
        stack: Which stack, in models with several.

    Returns:
        MixingMap: [1, sentence, sentence] of "suppress", under the number of the last layer, [layer, head,
        sentence, sentence] of "attention". Rows are the sentences that depend. 0 before a sentence (as
        published, log(1e-9)).

    Raises:
        ValueError: If the text has one sentence, or the method or unit is unknown.
        UnsupportedModelError: If the trace has no model or no logits of tokens, for "suppress".
        TypeError: If `trace` is not a trace.

    Source: Bogdan et al. 2025, Thought Anchors, sections 4 and 5.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> trace = aw.trace(model, tokenizer, "fadebcfadeb")
        >>> words = [(0, 1), (1, 5), (5, 7), (7, 12)]    # <s>, fade, bc, fadeb
        >>> row = aw.circuits.sentence_attribution(trace, unit=words).values[0, 3]
        >>> [round(value, 1) for value in row.tolist()]
        [0.0, 1.8, 0.9, 0.0]
    """
    require_choice("method", method, METHODS)
    require_trace(trace, "sentence_attribution")
    stack = resolve_stack(trace, stack)
    sentences = sentences_of(trace, stack, unit, "sentence_attribution", skip_first_token=skip_first_token)
    options = {"method": method, "as_published": as_published, "skip_first_token": skip_first_token}
    common = provenance_of(
        trace,
        stack,
        "circuits.sentence_attribution",
        paper=PAPER,
        title=_title(method, as_published=as_published),
        options=options,
    )
    causal = trace.is_causal(stack)
    if method == "attention":
        return _by_attention(trace, sentences, stack, causal, common, as_published=as_published)
    return _by_suppression(trace, sentences, stack, causal, common, as_published=as_published)


def _title(method: Method, *, as_published: bool) -> str:
    if method == "attention":
        return "attention between sentences" + (" (mean over keys)" if as_published else "")
    return (
        "effect of suppressing a sentence (log KL, T 0.6)"
        if as_published
        else "effect of suppressing a sentence"
    )


def _by_attention(
    trace: Any, sentences: Sentences, stack: str, causal: bool, common: dict[str, Any], *, as_published: bool
) -> MixingMap:
    sizes = np.maximum(sentences.sums().sum(axis=1), 1)

    def layer(number: int) -> np.ndarray:
        values = between_sentences(trace, number, sentences, stack)
        return values / sizes if as_published else values

    counts = trace.n_heads(stack)
    n_heads = max(counts) if isinstance(counts, (tuple, list)) else int(counts)
    return MixingMap.lazy(
        layer,
        query=sentences.axis,
        layers=range(trace.n_layers(stack)),
        heads=range(n_heads),
        unit=sentences.unit.name,
        causal=causal,
        stochastic=False,
        on_demand=True,
        **common,
    )


def _by_suppression(
    trace: Any, sentences: Sentences, stack: str, causal: bool, common: dict[str, Any], *, as_published: bool
) -> MixingMap:
    traced = cast("Trace", trace)
    if getattr(traced, "model", None) is None or traced.logits is None or traced.logits.dim() != TOKENS:
        raise UnsupportedModelError(
            'sentence_attribution: "suppress" runs a model that predicts tokens, and this trace has none; '
            'method="attention" needs no model.'
        )
    require_same_interventions(traced, "sentence_attribution")
    changed = effects(traced, sentences, stack, _TEMPERATURE if as_published else 1.0)
    if as_published:
        changed = np.log(changed + _FLOOR)
    members = sentences.unit.membership(len(sentences.axis))
    means = members / members.sum(axis=1, keepdims=True)
    values = means @ changed.T  # [sentence that depends, suppressed sentence]
    return MixingMap(
        values,
        query=sentences.axis,
        layers=[traced.n_layers(stack) - 1],
        unit=sentences.unit.name,
        causal=causal,
        stochastic=False,
        **common,
    )
