"""Whether attention ranks features as gradients and removals do, and maps rank tokens as derivatives do.

Whether attention ranks features as gradients and removals do, by Kendall's tau.

Jain and Wallace 2019, Attention is not Explanation, section 4.1 and algorithm 1.

Whether maps rank tokens as derivatives do, layer by layer, by Spearman's rho.

Modarressi et al. 2022, GlobEnc, section 4 and equation 18.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._gradients import enable_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import spoken_range
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.cues import default_methods, seen
from attnwidgets.evaluate.examples.explained_input import (
    explained,
    function_of,
    functions_by_name,
    name_of,
    rows_of,
)
from attnwidgets.evaluate.metrics.attention_swaps import total_variation
from attnwidgets.evaluate.metrics.ranking import defined, kendall, spearman
from attnwidgets.evaluate.removals.ordering import singles
from attnwidgets.evaluate.removals.protocol import RemovalOptions
from attnwidgets.evaluate.scorecards.build import scored, scored_explanations
from attnwidgets.explanations.results.trace_protocol import elements_of, require_trace, reruns_of
from attnwidgets.explanations.targets.resolve import CLASSES, Target, head_of
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.examples.explained_input import Spec, Specs
    from attnwidgets.evaluate.removals.protocol import Removal, RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.interventions import Seen
    from attnwidgets.tracing.rerun_trace import GivenModel

IMPORTANCE_PAPER = "Jain and Wallace 2019, Attention is not Explanation"
METRICS = ("gradient_tau", "leave_one_out_variation_tau")
_PURPOSE = "importance_correlation"

LAYERS_PAPER = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"
_CHUNK = 64  # derivatives computed at once


_OPTIONS = RemovalOptions(_PURPOSE, "draws", draws=100)


@forceable
@documented
@_OPTIONS.former_keywords
def importance_correlation(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    unit: str | None = None,
) -> Scorecard:
    """Measure whether attention, or any explanation a, ranks features as gradients and single removals do.

        gradient_tau                  Kendall's tau-b of a_i with |gradient . embedding| of i, attention's
                                      weights fixed
        leave_one_out_variation_tau   Kendall's tau-b of a_i with the total variation of the prediction
                                      without i, 1/2 sum over all classes of |p(x) - p(x - i)|;
                                      of a number without a probability, how far it moves

    `single_removals` correlates with the target's loss alone, which is signed. For a row of attention,
    pass a function of a trace:
    `lambda t: aw.attention(t).select(layer=-1).mean("head").to_attributions("row", query="cls")`.

    Args:
        traces: {traces}
        explanations: {explanations}
        target: The target to differentiate, as every method takes it; by default the model's prediction.
        operator: {operator}
        removal: {removal}
        unit: {unit} Gradients of tokens add up.
        force: {force}

    Returns:
        A Scorecard [metric, method, 1], -1 to 1. "oracle" ranks as the measure itself does. NaN, with the
        reason in `.warning`, for fewer than two features or if either side is constant.

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
    protocol = _OPTIONS.protocol(operator, removal)
    inputs = explained(traces, explanations, target, _PURPOSE, unit)
    samples = []
    for case in protocol.cases(inputs, [target], _PURPOSE):
        features = case.features
        random = np.random.default_rng(case.seed).uniform(size=(protocol.draws, len(features)))
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
        title=f"correlation with importance, {protocol.operator}",
        paper=IMPORTANCE_PAPER,
        options=protocol.options("operator", "special", "draws", "seed"),
    )


def _slopes(case: RemovalCase) -> Float:
    """Return |gradient . embedding| of every element with fixed attention weights [element]."""
    from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack, leaf_of
    from attnwidgets.tracing.anatomy.attention_modules import sites
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.interventions import Intervention

    class Detached(Intervention):
        """Attention's weights, without a gradient through them."""

        def weigh(self, seen: Seen, weights: Tensor) -> Tensor:  # noqa: ARG002 - everywhere alike
            return weights.detach()

    trace, target = case.removal.trace, case.removal.target
    if (supplied := reruns_of(trace)) is not None:
        return case.removal.unit.membership(len(elements_of(trace, case.removal.stack))) @ _slopes_of_given(
            supplied, target
        )
    where = frozenset((name, layer) for name, modules in sites(trace).items() for layer in modules)
    stack = embedding_stack(trace, case.removal.stack)
    detached = Detached(trace, _PURPOSE, "attention held", where)
    with differentiable(trace, _PURPOSE, entry=stack) as run, detached:
        graph = run(reads=target.reads)
        leaf = leaf_of(graph, stack, _PURPOSE, trace)
        slope = gradients(target.score(graph.outputs), [leaf])[0]
        tokens = (slope * leaf.detach())[0].double().sum(-1).abs().cpu().numpy()
    return case.removal.unit.membership(len(tokens)) @ tokens


def _slopes_of_given(supplied: GivenModel, target: Target) -> Float:
    """Return |d target / d kept| of every token of a user's model, its attention fixed [token].

    If embeddings are multiplied by `kept`, this is |gradient . embedding|.
    """
    import torch

    ones = torch.ones(supplied.weights.shape[-1], dtype=supplied.weights.dtype).requires_grad_()
    with enable_grad():
        score = target.score(SimpleNamespace(logits=supplied.answer(supplied.weights, ones)[None]))
    if not score.requires_grad:
        raise ValueError(
            f"{_PURPOSE} takes gradients, and rerun returned logits that do not depend on `kept` by "
            "differentiable steps: let it multiply embeddings by `kept`, without torch.no_grad()."
        )
    return torch.autograd.grad(score.sum(), ones)[0].double().abs().numpy()


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


def layer_correlation(
    traces: Any,
    methods: Specs | None = None,
    *,
    reference: Spec | None = None,
    row: int | Literal["each"] = 0,
    special: bool = True,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Scorecard:
    """Measure whether maps rank a token's sources as its derivatives do, at every layer.

    At layer l, Spearman's rho over the tokens j that token i can see, of

        map[l, i, j]    and    || d h_i / d e_j times e_j ||_F,

    with h_i the output of layer l and e_j the input of the first (hidden token attribution). Derivatives are
    global: they go through all layers up to l. A map that does so too (rollout, GlobEnc) compares like with
    like; a map of layer l alone (attention, norms, value zeroing) does not, and usually scores
    lower. A high rho says that a map agrees with a gradient, which is not ground truth either.

    Args:
        traces: Trace returned by `aw.trace`, or a list of traces, of the same model.
        methods: Names in `aw.methods()`, pairs (name, options), functions of a trace that return a map, or a
            mapping from labels to these. None: those of `aw.evaluate.cue_contribution`.
        reference: A method to compare maps with instead, as `methods` takes one.
        row: Whose sources are ranked: a token by number (0 is [CLS] of encoders; -1 the last token, for
            decoders), or "each" of them, whose correlations are averaged.
        special: Whether special tokens are ranked, too.
        level: Coverage of the confidence intervals (bootstrap over texts).
        resamples: How often texts are resampled for them.
        seed: Seed of the resampling.

    Returns:
        A Scorecard [1, method, layer], -1 to 1; chance is 0. NaN, with the reason in `.warning`, for a row
        with fewer than two sources, or if either side is constant.

    Raises:
        ValueError: If traces are empty, the token does not exist, the models have different numbers of
            layers, a method is unknown or cannot explain a trace, or a text does not fit in memory.
        TypeError: If a method returns no map.

    Source: Modarressi et al. 2022, section 4.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "Hi there")
        >>> card = aw.evaluate.layer_correlation(trace, ["attention", "globenc"])
        >>> card.metrics, card.shape
        (('spearman',), (1, 2, 6))
    """
    inputs = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    if not inputs:
        raise ValueError("traces is empty: give at least one.")
    for trace in inputs:
        require_trace(trace, "evaluate.layer_correlation")
    causal = bool(inputs[0].is_causal())
    compared = "hidden token attribution" if reference is None else name_of(reference).replace("_", " ")
    specs = default_methods(causal=causal) if methods is None else methods
    functions = functions_by_name(specs)
    layers = inputs[0].layers()
    samples = np.full((len(inputs), 1, len(functions), len(layers)), np.nan)
    for number, trace in enumerate(progress(inputs, "layer correlation")):
        if trace.layers() != layers:
            raise ValueError(
                f"traces[{number}] has layers {spoken_range(trace.layers())}, the first "
                f"{spoken_range(layers)}; compare one model."
            )
        rows = _rows(row, len(trace.tokens), number)
        ranked = [_ranked(trace, at, special=special) for at in rows]
        if reference is None:
            expected = derivatives(trace, rows)
        else:
            expected = rows_of(function_of(reference)(trace), rows, len(trace.tokens), compared)
        for index, (name, function) in enumerate(functions.items()):
            result = rows_of(function(trace), rows, len(trace.tokens), name)
            for column, layer in enumerate(layers):
                if layer in result and layer in expected:
                    samples[number, 0, index, column] = _mean_rho(result[layer], expected[layer], ranked)
    undefined = "undefined where a row has fewer than two sources or is constant"
    return scored(
        samples,
        "layer_correlation",
        model=inputs[0].model_id,
        title=f"correlation with {compared}",
        paper=LAYERS_PAPER,
        metrics=["spearman"],
        methods=list(functions),
        x=layers,
        x_name="layer",
        level=level,
        resamples=resamples,
        seed=seed,
        notes=[undefined if np.isnan(samples).any() else ""],
        options={"reference": compared, "row": row, "special": special},
    )


def derivatives(trace: Any, rows: list[int]) -> dict[int, Float]:
    """Return by layer ||d h_i / d e_j times e_j||_F of some tokens i by all tokens j [row, token].

    These are rows of `aw.hidden_token_attribution(trace, times_input=True, normalize=False)`, from a
    backward pass for every number of a state, instead of all rows at once.
    """
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable

    stack = trace.default_stack
    with differentiable(trace, "layer_correlation", place="block") as run:
        graph = run()
        leaf, states = graph.inputs[stack], graph.states[stack][1:]
        result = {}
        for layer, state in enumerate(states):
            squares = torch.zeros(len(rows), leaf.shape[1], dtype=torch.float64)
            for number, row in enumerate(rows):
                for part in torch.eye(state.shape[-1], dtype=state.dtype, device=state.device).split(_CHUNK):
                    (slopes,) = torch.autograd.grad(
                        state[0, row], leaf, part, retain_graph=True, is_grads_batched=True
                    )
                    squares[number] += (slopes[:, 0] * leaf.detach()[0]).double().square().sum((0, -1)).cpu()
            result[layer] = squares.sqrt().numpy()
    return result


def _rows(row: int | str, n: int, number: int) -> list[int]:
    """Return the numbers of the rows that are read."""
    if row == "each":
        return list(range(n))
    if isinstance(row, str) or not -n <= row < n:
        raise ValueError(
            f"row must be 'each' or the number of one of {n} tokens of traces[{number}], not {row!r}."
        )
    return [row % n]


def _ranked(trace: Any, row: int, *, special: bool) -> Any:
    """Return the tokens that are ranked in a row."""
    ranked = seen(len(trace.tokens), row, causal=bool(trace.is_causal()))
    if not special:
        ranked &= ~np.asarray(trace.axes()[1].units["token"].special)
    return np.flatnonzero(ranked)


def _mean_rho(rows: Float, expected: Float, ranked: list[Any]) -> float:
    """Return the mean correlation of rows [row, key], without those that have none."""
    pairs = zip(rows, expected, ranked, strict=True)
    rhos = [defined(spearman, row[tokens], target[tokens]) for row, target, tokens in pairs]
    rhos = [rho for rho in rhos if not np.isnan(rho)]
    return float(np.mean(rhos)) if rhos else float("nan")
