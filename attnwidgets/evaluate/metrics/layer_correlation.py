"""Whether maps rank tokens as derivatives do, layer by layer, by Spearman's rho.

Modarressi et al. 2022, GlobEnc, section 4 and equation 18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import spoken_range
from attnwidgets.evaluate.examples.cues import default_methods, seen
from attnwidgets.evaluate.examples.method_specs import function_of, functions_by_name, name_of, rows_of
from attnwidgets.evaluate.metrics.rank_measures import defined, spearman
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.explanations.results.trace_protocol import require_trace

if TYPE_CHECKING:
    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.examples.method_specs import Spec, Specs
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"
_CHUNK = 64  # derivatives computed at once


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
    global: they go through all layers up to l. A map that does so too (rollout, GlobEnc) is compared with its
    like; one that describes layer l alone (attention, norms, value zeroing) is not, and usually falls
    behind. A high rho says that a map agrees with a gradient, which is not ground truth either.

    Args:
        traces: Trace returned by `aw.trace`, or a list of traces, of one model.
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
        with fewer than two sources, or if one side is constant.

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
        require_trace(trace, "layer_correlation")
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
        kept = [_ranked(trace, at, special=special) for at in rows]
        if reference is None:
            expected = derivatives(trace, rows)
        else:
            expected = rows_of(function_of(reference)(trace), rows, len(trace.tokens), compared)
        for place, (name, function) in enumerate(functions.items()):
            found = rows_of(function(trace), rows, len(trace.tokens), name)
            for column, layer in enumerate(layers):
                if layer in found and layer in expected:
                    samples[number, 0, place, column] = _mean_rho(found[layer], expected[layer], kept)
    undefined = "undefined where a row has fewer than two sources or is constant"
    return scored(
        samples,
        "layer_correlation",
        model=inputs[0].model_id,
        title=f"correlation with {compared}",
        paper=PAPER,
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

    These are rows of `aw.hidden_token_attribution(trace, times_input=True, normalize=False)`, from one
    backward pass for every number of a state, instead of all rows at once.
    """
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable

    stack = trace.default_stack
    with differentiable(trace, "layer_correlation", place="block") as run:
        graph = run()
        leaf, states = graph.inputs[stack], graph.states[stack][1:]
        found = {}
        for layer, state in enumerate(states):
            squares = torch.zeros(len(rows), leaf.shape[1], dtype=torch.float64)
            for number, row in enumerate(rows):
                for part in torch.eye(state.shape[-1], dtype=state.dtype, device=state.device).split(_CHUNK):
                    (slopes,) = torch.autograd.grad(
                        state[0, row], leaf, part, retain_graph=True, is_grads_batched=True
                    )
                    squares[number] += (slopes[:, 0] * leaf.detach()[0]).double().square().sum((0, -1)).cpu()
            found[layer] = squares.sqrt().numpy()
    return found


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
    kept = seen(len(trace.tokens), row, causal=bool(trace.is_causal()))
    if not special:
        kept &= ~np.asarray(trace.axes()[1].units["token"].special)
    return np.flatnonzero(kept)


def _mean_rho(found: Float, expected: Float, kept: list[Any]) -> float:
    """Return the mean correlation of rows [row, key], without those that have none."""
    pairs = zip(found, expected, kept, strict=True)
    rhos = [defined(spearman, one[columns], other[columns]) for one, other, columns in pairs]
    known = [rho for rho in rhos if not np.isnan(rho)]
    return float(np.mean(known)) if known else float("nan")
