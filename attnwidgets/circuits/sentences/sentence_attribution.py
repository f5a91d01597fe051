"""aw.circuits.sentence_attribution: how much later sentences of a text depend on earlier ones."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.circuits.sentences.rewriting import require_writer, resampled, said_cost
from attnwidgets.circuits.sentences.sentence_units import Sentences, between_sentences, sentences_of
from attnwidgets.circuits.sentences.suppression import effects
from attnwidgets.explanations.results.description import READING, AxisWords
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

Method = Literal["suppress", "attention", "resample"]
METHODS: tuple[Method, ...] = ("suppress", "attention", "resample")
PAPER = "Bogdan et al. 2025, Thought Anchors: Which LLM Reasoning Steps Matter?"
_DEPENDS = AxisWords(
    "sentence", "suppressed", "depends on", "is needed by", "What does {} depend on?", "What depends on {}?"
)
_AXES = {
    "attention": READING,
    "suppress": _DEPENDS,
    "resample": _DEPENDS._replace(column="replaced"),
}
_TEMPERATURE, _FLOOR = 0.6, 1e-9  # the authors'
LONG_WORK = 5e12
"""Multiplications from which suppression states its cost before it starts: about a minute of a laptop."""


def sentence_attribution(
    trace: Any,
    method: Method = "suppress",
    *,
    as_published: bool = False,
    skip_first_token: bool = True,
    unit: Any = "sentence",
    stack: str | None = None,
    samples: int = 4,
    seed: int = 0,
) -> MixingMap:
    """Return how much every sentence depends on every earlier one.

    "suppress" hides a sentence from all tokens after it, in all layers and heads, and measures at every later
    token how far the prediction moves:

        value[i, j] = mean over tokens t of sentence i of KL(p_t || p_t with sentence j hidden), in nats

    p_t is the prediction after token t. "attention" is the share of attention from the tokens of sentence i
    that goes to sentence j, for every head, summed in blocks of queries without building a layer.
    "resample" is as "suppress", but sentence j is not hidden: the model writes `samples` others instead,
    going on from the text before it, and the rest of the text follows unchanged. The cost is reported, as a
    UserWarning, before it starts; so is the cost of suppression from a minute on.

    Neighbours matter most to each other: compare a value with others as far from the diagonal. On a short
    text without generated reasoning, suppression shows little beyond that (`docs/circuits.md`).

    Args:
        trace: Trace returned by `aw.trace`.
        method: "suppress", "attention" or "resample".
        as_published: Take the authors' constants: predictions at temperature 0.6 and the mean of log(KL +
            1e-9) for "suppress", the mean over a sentence's keys, not the sum, for "attention". The authors
            compare the tokens that make 0.9999 of the probability, at most 100; here it is all tokens.
        skip_first_token: Leave the first token out: nearly all heads rest there when there is nothing to do.
        unit: "sentence", another unit of the trace, a Unit, or spans of tokens as pairs (start, end).
        stack: Which stack, in models with several.
        samples: Of "resample": sentences that are written instead of each, at temperature 0.6 among
            the tokens that make 0.95 of the probability, as the authors draw; the mean over them is returned.
        seed: Of "resample": the same seed draws the same.

    Returns:
        MixingMap: [1, sentence, sentence] of "suppress" and "resample", under the number of the last layer,
        [layer, head, sentence, sentence] of "attention". Of "resample" the first sentence's column is 0:
        there is nothing before it to go on from. Rows are the sentences that depend. 0 before a sentence (as
        published, log(1e-9)).

    Raises:
        ValueError: If the text has a single sentence, the method or unit is unknown, or `samples` is below 1.
        UnsupportedModelError: If the trace has no model or no logits of tokens, for "suppress"; if the model
            does not continue texts, for "resample".
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
    if samples < 1:
        raise ValueError(f"samples must be 1 or more, not {samples}.")
    if method == "resample" and as_published:
        raise ValueError('as_published is of "suppress" and "attention"; leave it out.')
    require_trace(trace, "circuits.sentence_attribution")
    stack = resolve_stack(trace, stack)
    sentences = sentences_of(trace, stack, unit, "sentence_attribution", skip_first_token=skip_first_token)
    options: dict[str, Any] = {
        "method": method,
        "as_published": as_published,
        "skip_first_token": skip_first_token,
    }
    if method == "resample":
        options |= {"samples": samples, "seed": seed}
    common = provenance_of(
        trace,
        stack,
        "circuits.sentence_attribution",
        paper=PAPER,
        title=_title(method, as_published=as_published),
        options=options,
        facts={"axes": _AXES[method]},
    )
    causal = trace.is_causal(stack)
    if method == "attention":
        return _by_attention(trace, sentences, stack, causal, common, as_published=as_published)
    traced = _with_model(trace, method)
    if method == "resample":
        purpose = 'sentence_attribution: "resample" lets a decoder write sentences anew'
        require_writer(traced, stack, purpose, '; method="suppress" hides them instead')
        warnings.warn(f"sentence_attribution: {said_cost(sentences, samples)}.", UserWarning, stacklevel=2)
        changed = resampled(traced, sentences, samples, seed)
    else:
        _say_if_long(traced, sentences)
        changed = effects(traced, sentences, stack, _TEMPERATURE if as_published else 1.0)
    if as_published:
        changed = np.log(changed + _FLOOR)
    members = sentences.unit.membership(len(sentences.axis))
    means = members / members.sum(axis=1, keepdims=True)
    return MixingMap(
        means @ changed.T,  # [sentence that depends, changed sentence]
        query=sentences.axis,
        layers=[traced.mixing_layers(stack)[-1]],
        unit=sentences.unit.name,
        causal=causal,
        stochastic=False,
        **common,
    )


def _title(method: Method, *, as_published: bool) -> str:
    if method == "resample":
        return "effect of another sentence in the place of one"
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
    sizes = np.maximum(sentences.sizes(), 1)

    def layer(number: int) -> np.ndarray:
        values = between_sentences(trace, number, sentences, stack)
        return values / sizes if as_published else values

    counts = trace.n_heads(stack)
    n_heads = max(counts) if isinstance(counts, (tuple, list)) else int(counts)
    return MixingMap.lazy(
        layer,
        query=sentences.axis,
        layers=trace.layers(stack),
        heads=range(n_heads),
        unit=sentences.unit.name,
        causal=causal,
        stochastic=False,
        on_demand=True,
        **common,
    )


def _with_model(trace: Any, method: Method) -> Trace:
    """Return a trace that can be run again, and predicts tokens.

    Raises:
        UnsupportedModelError: If it cannot, or does not.
    """
    traced = cast("Trace", trace)
    if getattr(traced, "model", None) is None or traced.logits is None or traced.logits.dim() != TOKENS:
        raise UnsupportedModelError(
            f'sentence_attribution: "{method}" needs a trace with a model that predicts tokens; '
            'method="attention" needs no model.'
        )
    require_same_model(traced, "sentence_attribution")
    return traced


def _say_if_long(trace: Trace, sentences: Sentences) -> None:
    """Report the cost of suppression, where it takes long."""
    n, model = len(sentences.axis), trace.model
    passes = len(sentences) / 2 + 1.5
    weights = sum(parameter.numel() for parameter in model.parameters()) if model is not None else 0
    if passes * n * weights < LONG_WORK:
        return
    warnings.warn(
        f"sentence_attribution: suppressing {len(sentences):,} sentences takes about "
        f'{passes:,.0f} forward passes of {n:,} tokens. unit="paragraph", or spans of tokens, take fewer; '
        'method="attention" takes none.',
        UserWarning,
        stacklevel=3,
    )
