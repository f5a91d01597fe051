"""Does attention rank features as other measures of importance do? Kendall's tau with gradients and removals.

Jain and Wallace 2019, Attention is not Explanation, section 4.1 and algorithm 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.examples.explained_input import explained, is_constant, watched
from attnwidgets.evaluate.metrics.attention_swaps import total_variation
from attnwidgets.evaluate.metrics.rank_measures import kendall
from attnwidgets.evaluate.removals.ordering import singles
from attnwidgets.evaluate.removals.removal import Operator, removable, removing
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.explanations.targets.resolve import CLASSES, Target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.interventions import Seen

    Float = NDArray[np.float64]
    Order = NDArray[np.intp]

PAPER = "Jain and Wallace 2019, Attention is not Explanation"
METRICS = ("gradient_tau", "leave_one_out_variation_tau")
_PURPOSE = "importance_correlation"
_TWO = 2


@forceable
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
    """Whether attention, or any explanation a, ranks features as gradients and single removals do.

        gradient_tau                  Kendall's tau-b of a_i with |gradient . embedding| of i, attention's
                                      weights held as they are
        leave_one_out_variation_tau   Kendall's tau-b of a_i with the total variation of the answer without i,
                                      1/2 sum over all classes of |p(x) - p(x - i)|

    `single_removals` has tau with what the target alone loses, which has a sign.

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: As `faithfulness` takes them: a row of attention is a function of a trace,
            `lambda t: aw.attention(t).select(layer=-1).mean("head").to_attributions("row", query="cls")`.
        target: What the gradient is of; by default what the model predicts.
        operator: How features are removed, see `OPERATORS`.
        special: Whether special tokens are features.
        draws: How many random vectors the row "random" is the mean of.
        seed: Of those draws.
        unit: What features are; by default the unit of the explanations. Gradients of tokens add up.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [metric, method, 1], -1 to 1. "oracle" ranks as the measure itself does. NaN, with the
        reason in `.warning`, for fewer than two features or where one side is constant.

    Raises:
        ValueError: For an unknown or impossible operator; a model without logits; an explanation of another
            input or unit; where gradients cannot be had.
        TypeError: Where an explanation is a map or nothing of the kind.

    Source: Jain and Wallace 2019, algorithms 1 and 2.
    """
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}.")
    inputs = explained(traces, explanations, target, _PURPOSE, unit)
    samples = []
    for number, one in enumerate(watched(inputs)):
        meant = resolve_target(one.trace, target, method=_PURPOSE)
        features = removable(one.trace, one.unit, one.stack, meant, special=special)
        measures = [
            _slopes(one, meant)[features],
            _variations(one, meant, features, operator, batch_size, watched=len(inputs) == 1),
        ]
        random = np.random.default_rng([seed, number]).uniform(size=(draws, len(features)))
        samples.append(
            [
                [
                    *(_tau(values[features], measure) for values in one.values.values()),
                    float(np.mean([_tau(values, measure) for values in random])),
                    _tau(measure, measure),
                ]
                for measure in measures
            ]
        )
    undefined = np.isnan(samples).any()
    return scored_explanations(
        inputs,
        np.array(samples)[..., None],
        _PURPOSE,
        metrics=METRICS,
        notes=["undefined where one side is constant, or of fewer than two features" if undefined else ""],
        title=f"correlation with importance, {operator}",
        paper=PAPER,
        options={"operator": operator, "special": special, "draws": draws, "seed": seed},
    )


def _tau(values: Float, measure: Float) -> float:
    undefined = len(values) < _TWO or not np.isfinite(measure).all()
    return (
        float("nan") if undefined or is_constant(values) or is_constant(measure) else kendall(values, measure)
    )


def _slopes(one: ExplainedInput, target: Target) -> Float:
    """Return |gradient . embedding| of every element with attention held [element]."""
    from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack, leaf_of
    from attnwidgets.tracing.attention_modules import sites
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.interventions import Intervention

    class Held(Intervention):
        """Attention's weights as they are, and no gradient through them."""

        def weigh(self, seen: Seen, weights: Tensor) -> Tensor:  # noqa: ARG002 - wherever it is
            return weights.detach()

    trace = one.trace
    where = frozenset((name, layer) for name, own in sites(trace).items() for layer in range(len(own)))
    with differentiable(trace, _PURPOSE) as run, Held(trace, _PURPOSE, "attention held", where):
        graph = run(hidden_states=target.hidden_states)
        leaf = leaf_of(graph, embedding_stack(trace, one.stack), _PURPOSE, trace)
        slope = gradients(target.score(graph.outputs), [leaf])[0]
        tokens = (slope * leaf.detach())[0].double().sum(-1).abs().cpu().numpy()
    return one.unit.membership(len(tokens)) @ tokens


def _variations(
    one: ExplainedInput,
    target: Target,
    features: Order,
    operator: Operator,
    batch_size: int,
    *,
    watched: bool,
) -> Float:
    """Return the total variation of the answer without each feature [feature]."""
    import torch

    logits = one.trace.logits
    if logits is None:
        raise ValueError(
            f"{one.trace.model_id or 'this model'} returns no logits, so that there is no answer to compare."
        )
    row = None if logits.dim() == CLASSES else target.position
    plain = torch.as_tensor(logits if row is None else logits[row]).double().softmax(-1)

    def moved(outputs: Any) -> Tensor:
        found = outputs.logits if row is None else outputs.logits[:, row]
        return torch.as_tensor(total_variation(found.double().softmax(-1).cpu(), plain.cpu()))

    # What is read at a token moves where tokens are deleted: removal refuses any title but this.
    title = "function" if row is None else "distribution"
    answer = Target("the answer", title, moved)
    with removing(
        one.trace, operator, answer, unit=one.unit, stack=one.stack, batch_size=batch_size, watched=watched
    ) as ask:
        return ask(singles(len(one.unit), features)[:-1]).number
