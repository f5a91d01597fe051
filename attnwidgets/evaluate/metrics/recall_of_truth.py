"""Recall of evidence: whether methods name the tokens that decide, in models with a known circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import deprecated, quoted, require_choice
from attnwidgets._progress import progress
from attnwidgets.evaluate.examples.explained_input import function_of, labelled, rows_of
from attnwidgets.evaluate.removals.ordering import BY
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored
from attnwidgets.explanations.registry.registry import methods as registered
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.targets.named import token
from attnwidgets.tracing.recording.run import trace as run
from attnwidgets.tracing.recording.wrappers import is_model
from attnwidgets.tracing.text.given_texts import listed_texts
from attnwidgets.tracing.unsupported import UnsupportedModelError
from attnwidgets.zoo.truth import truth_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.examples.explained_input import Spec, Specs
    from attnwidgets.evaluate.removals.ordering import By
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.trace import Trace

# Values that differ by less than this share of the largest are ties: rounding should rank nothing.
_TIE_DIGITS = 6


def recall_of_truth(
    model: Any,
    tokenizer: Any,
    texts: str | Sequence[str],
    methods: Specs | Literal["all"] | None = "all",
    *,
    by: By = "value",
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Scorecard:
    """Measure the share of the evidence that each method names, in a model with a known circuit.

    With k tokens that decide a prediction (`model.truth.evidence(text)`), the recall is the share of them
    among the k tokens with the largest values, all tokens counted, `<s>` included. A token without a value
    above 0 is never named. Tokens with equal values (to a millionth of the largest) count in part where
    only some of them are among the k: a constant map therefore has the recall of chance, k of n tokens.
    Attributions explain the right answer; of a map the last layer's row of the token that holds the answer is
    read, averaged over heads.

    Missed evidence is a property of the method, as the model is known: attention cannot show the effect of
    other layers, and gradients vanish in a saturated softmax.

    Args:
        model: A model of `aw.zoo`, or any model with a `.truth` that has `evidence(text)`, `answer(text)` and
            the position `at`.
        tokenizer: Its tokenizer.
        texts: A text or several.
        methods: A method or several: names in `aw.methods()`, pairs (name, options), functions of a trace, or
            a mapping from labels to these. "all" or None: every registered method that returns a number for
            each token; those that refuse the model, or lack a library, are left out and named in `.warning`.
        by: Rank by "value", which names only tokens that speak for the answer, or by "magnitude".
        level: Coverage of the confidence intervals (bootstrap over texts).
        resamples: How often texts are resampled for them.
        seed: Seed of the resampling.

    Returns:
        A Scorecard [metric, method, 1] of the recall, 0 to 1, with two baselines: "random" is the closed form
        of an order by chance, "oracle" is 1. Undefined (NaN) where a method refuses a single text.

    Raises:
        ValueError: If the truth of the model is unknown, texts are empty, a text has no evidence, or a
            method that was named refuses the model.
        TypeError: If a method that was named returns neither a map nor a number for each token.

    Source: DeYoung et al. 2020, section 4 (recall of evidence), with ties as McSherry and Najork 2008.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> names = ["attention", "alti_logit", "occlusion"]
        >>> card = aw.evaluate.recall_of_truth(model, tokenizer, "fadebcfadeb", names)
        >>> card.mean[0, :, 0].round(2).tolist()
        [0.33, 0.67, 1.0, 0.25, 1.0]
    """
    if is_model(texts):
        deprecated("recall_of_truth(model, tokenizer, texts, methods) takes the model first now")
        reordered: Any = (model, tokenizer, texts, methods)
        methods, texts, model, tokenizer = reordered
    require_choice("by", by, BY)
    truth = truth_of(model)
    listed = listed_texts(texts)
    if not listed:
        raise ValueError("texts is empty: give one or several.")
    every = methods is None or methods == "all"
    specs = labelled(registered().names if every else methods)  # type: ignore[arg-type]
    samples, model_id = [], ""
    refused: dict[str, str] = {}
    for text in progress(listed, "scoring") if len(listed) > 1 else listed:
        evidence = sorted(truth.evidence(text))
        if not evidence:
            raise ValueError(
                f"texts holds {quoted(text)}, in which nothing decides: {truth.name} has no answer."
            )
        trace = run(model, tokenizer, text)
        model_id = trace.model_id
        position = truth.at % len(trace.tokens)
        target = _target(trace, tokenizer, truth.answer(text), position)
        row = []
        for name, spec in specs.items():
            values = _values(trace, name, spec, target, position, refused if every else None)
            sizes = np.abs(values) if by == "magnitude" else values
            row.append(np.nan if len(values) == 0 else recall(sizes, evidence))
        samples.append([*row, len(evidence) / len(trace.tokens), 1.0])
    numbers = np.array(samples)
    defined = ~np.isnan(numbers).all(0)
    names = [*specs, RANDOM, ORACLE]
    return scored(
        numbers[:, None, defined, None],
        "recall_of_truth",
        model=model_id,
        metrics=("recall_of_truth",),
        methods=[name for name, has_score in zip(names, defined, strict=True) if has_score],
        baselines=(RANDOM, ORACLE),
        unit="token",
        options={"by": by, "truth": truth.name},
        notes=[f"{name} is left out: {_brief(why)}" for name, why in refused.items()],
        level=level,
        resamples=resamples,
        seed=seed,
    )


def recall(values: Float, evidence: Sequence[int]) -> float:
    """Return the expected share of evidence among the n largest values, for n pieces of evidence.

    Args:
        values: A number for every token [token].
        evidence: Indices of the tokens that are evidence.
    """
    count = len(evidence)
    scaled = np.round(values / max(float(np.abs(values).max()), 1e-30), _TIE_DIGITS).clip(0)
    is_evidence = np.isin(np.arange(len(values)), evidence)
    last = np.sort(scaled)[-count]
    above, tied = scaled > last, (scaled == last) & (scaled > 0)
    part = (count - above.sum()) / max(tied.sum(), 1)  # of each tied token
    return float(((above & is_evidence).sum() + part * (tied & is_evidence).sum()) / count)


def _target(trace: Trace, tokenizer: Any, answer: str | None, position: int) -> Any:
    """Return the right answer as a target; None, the prediction, where two answers are equally right."""
    logits, labels = trace.logits, getattr(trace.model.config, "label2id", None) or {}
    if answer is None or logits is None:
        return None
    if logits.dim() == 1:
        return labels[answer]
    is_label = answer in labels and len(labels) == logits.shape[-1]
    return token(labels[answer] if is_label else tokenizer.convert_tokens_to_ids(answer), position=position)


def _values(
    trace: Trace, name: str, spec: Spec, target: Any, position: int, refused: dict[str, str] | None
) -> Float:
    """Return a method's value of every token [token]; empty if it refuses, with the reason in `refused`."""
    try:
        return _values_of_method(trace, name, spec, target, position)
    except (UnsupportedModelError, ValueError, TypeError, RuntimeError) as error:
        if refused is None:
            raise
        refused.setdefault(name, str(error))
        return np.zeros(0)


def _values_of_method(trace: Trace, name: str, spec: Spec, target: Any, position: int) -> Float:
    """Return a method's value of every token [token]."""
    if not callable(spec) and target is not None:
        method, options = (spec, {}) if isinstance(spec, str) else spec
        if "target" in registered()[method].options:
            spec = (method, {"target": target, **options})
    result = function_of(spec)(trace)
    count = len(trace.tokens)
    if not isinstance(result, Attributions):
        rows = rows_of(result, [position], count, name)
        values = np.asarray(rows[max(rows)][0], dtype=np.float64)
    elif result.shape == (count,):
        values = np.asarray(result.values, dtype=np.float64)
    else:
        raise TypeError(
            f"method {name!r} returned attributions of shape {result.shape}, not a number for each of "
            f"{count} tokens."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"method {name!r} returned values that are NaN or infinite.")
    return values


def _brief(why: str) -> str:
    return why.splitlines()[0].removesuffix(".")
