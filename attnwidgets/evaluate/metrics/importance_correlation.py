"""Whether attention ranks features as gradients and removals do, by Kendall's tau.

Jain and Wallace 2019, Attention is not Explanation, section 4.1 and algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import enable_grad
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import explained
from attnwidgets.evaluate.metrics.attention_swaps import total_variation
from attnwidgets.evaluate.metrics.rank_measures import defined, kendall
from attnwidgets.evaluate.removals.ordering import singles
from attnwidgets.evaluate.removals.protocol import RemovalProtocol
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.explanations.results.trace_protocol import elements_of, reruns_of
from attnwidgets.explanations.targets.resolve import CLASSES, Target, head_of
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.removals.protocol import RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.given_rerun import GivenModel
    from attnwidgets.tracing.interventions import Seen

PAPER = "Jain and Wallace 2019, Attention is not Explanation"
METRICS = ("gradient_tau", "leave_one_out_variation_tau")
_PURPOSE = "importance_correlation"


@forceable
@documented
def importance_correlation(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator,
    special: bool = False,
    draws: int = 100,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """Measure whether attention, or any explanation a, ranks features as gradients and single removals do.

        gradient_tau                  Kendall's tau-b of a_i with |gradient . embedding| of i, attention's
                                      weights held fixed
        leave_one_out_variation_tau   Kendall's tau-b of a_i with the total variation of the prediction
                                      without i, 1/2 sum over all classes of |p(x) - p(x - i)|;
                                      of a number without a probability, how far it moves

    `single_removals` correlates with what the target alone loses, which is signed. For a row of attention,
    pass a function of a trace:
    `lambda t: aw.attention(t).select(layer=-1).mean("head").to_attributions("row", query="cls")`.

    Args:
        traces: {traces}
        explanations: {explanations}
        target: What to differentiate, as every method takes it; by default what the model predicts.
        operator: {operator}
        special: {special}
        draws: Number of random vectors that the baseline "random" averages over.
        seed: {seed}
        unit: {unit} Gradients of tokens add up.
        batch_size: {batch_size}
        force: {force}

    Returns:
        A Scorecard [metric, method, 1], -1 to 1. "oracle" ranks as the measure itself does. NaN, with the
        reason in `.warning`, for fewer than two features or if one side is constant.

    Raises:
        ValueError: If an operator is unknown or impossible, the model returns no logits or no gradients, or
            an explanation belongs to another input or unit.
        TypeError: If an explanation is a map, or no explanation at all.

    Source: Jain and Wallace 2019, algorithms 1 and 2.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.importance_correlation(trace, "saliency", operator="mask", unit="word")
        >>> card.metrics
        ('gradient_tau', 'leave_one_out_variation_tau')
    """
    protocol = RemovalProtocol(operator, special=special, draws=draws, seed=seed, batch_size=batch_size)
    inputs = explained(traces, explanations, target, _PURPOSE, unit)
    samples = []
    for case in protocol.cases(inputs, [target], _PURPOSE):
        features = case.features
        random = np.random.default_rng(case.seed).uniform(size=(draws, len(features)))
        samples.append(
            [
                [
                    *(defined(kendall, values[features], measure) for values in case.values.values()),
                    float(np.mean([defined(kendall, values, measure) for values in random])),
                    defined(kendall, measure, measure),
                ]
                for measure in (_slopes(case)[features], _variations(case))
            ]
        )
    return scored_explanations(
        inputs,
        samples,
        _PURPOSE,
        metrics=METRICS,
        undefined="undefined where one side is constant, or of fewer than two features",
        title=f"correlation with importance, {operator}",
        paper=PAPER,
        options=protocol.options("operator", "special", "draws", "seed"),
    )


def _slopes(case: RemovalCase) -> Float:
    """Return |gradient . embedding| of every element with attention held fixed [element]."""
    from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack, leaf_of
    from attnwidgets.tracing.anatomy.attention_modules import sites
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.interventions import Intervention

    class Held(Intervention):
        """Attention's own weights, without a gradient through them."""

        def weigh(self, seen: Seen, weights: Tensor) -> Tensor:  # noqa: ARG002 - everywhere alike
            return weights.detach()

    trace, target = case.removal.trace, case.removal.target
    if (given := reruns_of(trace)) is not None:
        return case.removal.unit.membership(len(elements_of(trace, case.removal.stack))) @ _slopes_of_given(
            given, target
        )
    where = frozenset((name, layer) for name, modules in sites(trace).items() for layer in modules)
    stack = embedding_stack(trace, case.removal.stack)
    held = Held(trace, _PURPOSE, "attention held", where)
    with differentiable(trace, _PURPOSE, entry=stack) as run, held:
        graph = run(hidden_states=target.hidden_states)
        leaf = leaf_of(graph, stack, _PURPOSE, trace)
        slope = gradients(target.score(graph.outputs), [leaf])[0]
        tokens = (slope * leaf.detach())[0].double().sum(-1).abs().cpu().numpy()
    return case.removal.unit.membership(len(tokens)) @ tokens


def _slopes_of_given(given: GivenModel, target: Target) -> Float:
    """Return |d target / d kept| of every token of a user's own model, its attention held fixed [token].

    If embeddings are multiplied by `kept`, this is |gradient . embedding|.
    """
    import torch

    kept = torch.ones(given.weights.shape[-1], dtype=given.weights.dtype).requires_grad_()
    with enable_grad():
        score = target.score(SimpleNamespace(logits=given.answer(given.weights, kept)[None]))
    if not score.requires_grad:
        raise ValueError(
            f"{_PURPOSE} takes gradients, and rerun returned logits that do not depend on `kept` by "
            "differentiable steps: let it multiply embeddings by `kept`, without torch.no_grad()."
        )
    return torch.autograd.grad(score.sum(), kept)[0].double().abs().numpy()


def _variations(case: RemovalCase) -> Float:
    """Return the total variation of the prediction without each feature [feature].

    Of a number without a probability, it is how far the number moves.
    """
    import torch

    trace = case.removal.trace
    questions = singles(case.n, case.features)
    options: dict[str, Any] = {"batch_size": case.protocol.batch_size, "watched": case.watched}
    if trace.answer.reading == "none":
        with case.removal.answering(**options) as ask:
            numbers = ask(questions).number
        return np.abs(numbers[:-1] - numbers[-1])
    logits = trace.logits
    if logits is None:
        raise ValueError(f"{trace.model_id or 'this model'} returns no logits and so no prediction.")
    row = None if logits.dim() == CLASSES else case.removal.target.position
    plain = torch.as_tensor(logits if row is None else logits[row]).double()
    plain = trace.answer.probabilities(plain)

    def variation(outputs: Any) -> Tensor:
        logits = head_of(outputs)
        changed = logits if row is None else logits[:, row]
        return torch.as_tensor(
            total_variation(trace.answer.probabilities(changed.double()).cpu(), plain.cpu())
        )

    # A row read at a token moves if tokens are deleted: removal refuses any title but "function".
    prediction = Target("the answer", "function" if row is None else "distribution", variation)
    removal = replace(case.removal, target=prediction)
    with removal.answering(**options) as ask:
        return ask(questions[:-1]).number
