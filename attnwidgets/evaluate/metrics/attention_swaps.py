"""Other attention, the same prediction? Permuted, uniform and adversarial rows in the place of the model's.

Jain and Wallace 2019, Attention is not Explanation; Wiegreffe and Pinter 2019, Attention is not not
Explanation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.interventions import Seen
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

EPSILON = 0.01
"""What Jain and Wallace allow a classifier's answer to move (0.05 for answers to questions)."""
_LARGEST = float(np.log(2))
_ONE = "undefined where a model returns one number alone: there are no other answers to move to"


def total_variation(p: Any, q: Any) -> Float:
    """Return half the sum of |p - q| over the last axis, 0 to 1."""
    return np.abs(np.asarray(p, dtype=np.float64) - np.asarray(q, dtype=np.float64)).sum(axis=-1) / 2


def jensen_shannon(p: Any, q: Any) -> Float:
    """Return the Jensen-Shannon divergence over the last axis, 0 to log 2 nats."""
    first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    middle = (first + second) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            np.where(one > 0, one * (np.log(one) - np.log(middle)), 0.0).sum(axis=-1)
            for one in (first, second)
        ]
    return np.clip((parts[0] + parts[1]) / 2, 0, _LARGEST)


@forceable
def attention_permutation(
    traces: Any,
    layer: Any = None,
    *,
    permutations: int = 100,
    stack: str | None = None,
    seed: int = 0,
) -> Scorecard:
    """How far a prediction moves when attention's weights are shuffled, and when they are made uniform.

    Every row of all heads of the layers named is permuted among the tokens that it may read; "permuted" is
    the median total variation of the answer over permutations, "uniform" that of a pass with equal weights.
    Near 0: the prediction does not hang on where attention goes.

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        layer: A layer number, several, or None: all at once.
        permutations: How many are drawn.
        stack: Which attention, where there are several.
        seed: Of the draws.

    Returns:
        A Scorecard [metric "total_variation" and "flipped", "permuted" and "uniform", 1] over texts;
        "flipped" is the share of passes in which another answer is the most probable. NaN where a model
        returns one number alone, which is no answer among several.

    Raises:
        ValueError: Where a trace has no prediction or no model; for an unknown stack.
        IndexError: Where there is no such layer.

    Source: Jain and Wallace 2019, section 4.2.1; Wiegreffe and Pinter 2019, section 3.2 (there with a model
    that is trained so: `uniform_attention`).
    """
    from attnwidgets.intervene.edit_attention import edit_attention

    several = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, not {permutations}.")
    samples = []
    for trace in progress(several, "permuting attention"):
        require_trace(trace, "attention_permutation")
        name = resolve_stack(trace, stack)
        heads = dict.fromkeys(_layers(trace, layer, name), "all")
        plain = _answer(trace, trace.logits)
        found = []
        for draw in range(permutations + 1):
            kind = "uniform" if draw == permutations else "permuted"
            change = edit_attention(trace, heads, kind, stack=name, seed=seed + draw)
            found.append(_previewed(trace, change))
        moved = total_variation(np.stack(found), plain)
        flipped = (np.argmax(found, axis=-1) != plain.argmax()).astype(float)
        if len(plain) == 1:
            moved, flipped = np.full((2, len(found)), np.nan)
        samples.append(
            [
                [[float(np.median(moved[:-1]))], [float(moved[-1])]],
                [[flipped[:-1].mean()], [float(flipped[-1])]],
            ]
        )
    return scored(
        np.array(samples, dtype=np.float64),
        "attention_permutation",
        model=several[0].model_id,
        metrics=["total_variation", "flipped"],
        methods=["permuted", "uniform"],
        notes=[_ONE if np.isnan(samples).any() else ""],
        title="attention permuted",
        paper="Jain and Wallace 2019, Attention is not Explanation",
        options={"permutations": permutations, "seed": seed, "layer": layer},
    )


@dataclass(frozen=True)
class AdversarialAttention:
    """Attention as far from the model's as could be found, with which it predicts nearly the same.

    Attributes:
        layers: The layers that were changed.
        attention: By layer, the other weights [head, query, key].
        divergence: Jensen-Shannon divergence from the model's rows, 0 to log 2: the mean over heads, queries
            and layers.
        total_variation: How far the prediction moved, 0 to 1; at most `epsilon`.
        epsilon: How far it was allowed to.
    """

    layers: tuple[int, ...]
    attention: dict[int, Float] = field(repr=False)
    divergence: float
    total_variation: float
    epsilon: float


@forceable
def adversarial_attention(
    trace: Any,
    layer: Any = -1,
    *,
    epsilon: float = EPSILON,
    steps: int = 100,
    rate: float = 0.3,
    penalty: float = 50.0,
    stack: str | None = None,
    seed: int = 0,
) -> AdversarialAttention:
    """Look for attention as unlike the model's as can be, with which its answer stays within `epsilon`.

    Maximised is the Jensen-Shannon divergence of the rows less `penalty` times what total variation exceeds
    epsilon, by gradient ascent on the logits of all rows of the layers named. Of all steps the one that is
    farthest within epsilon is returned. A search finds a lower bound: that nothing far was found does not say
    that there is nothing.

    Args:
        trace: What `aw.trace` returned.
        layer: A layer number or several.
        epsilon: How far the answer may move, in total variation.
        steps: Of the ascent, each a pass forward and back.
        rate: Of the ascent (Adam).
        penalty: Weight of what exceeds epsilon.
        stack: Which attention, where there are several.
        seed: Of the start, which is the model's attention with a little noise.

    Returns:
        An AdversarialAttention.

    Raises:
        ValueError: Where epsilon is not 0 to 1; for an unknown stack; where gradients cannot be had, or the
            model returns one number alone.
        IndexError: Where there is no such layer.

    Source: Jain and Wallace 2019, section 4.2.2, equation 4.
    """
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable
    from attnwidgets.tracing.interventions import Intervention

    require_trace(trace, "adversarial_attention")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon must be above 0 and at most 1, not {epsilon}.")
    name = resolve_stack(trace, stack)
    layers = _layers(trace, layer, name)
    generator = torch.Generator().manual_seed(seed)
    own = {number: trace.attention_layer(number, name) for number in layers}
    # What a row does not read at all it may not read.
    start = {
        number: torch.where(weights > 0, weights.clamp_min(1e-30).log(), -torch.inf)
        + 0.01 * torch.randn(weights.shape, generator=generator).to(weights)
        for number, weights in own.items()
    }
    free = {number: one.clone().requires_grad_() for number, one in start.items()}

    class Given(Intervention):
        """The rows that are looked for."""

        def __init__(self) -> None:
            where = frozenset((name, number) for number in layers)
            super().__init__(trace, "adversarial_attention", "attention looked for", where)

        def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
            return free[seen.layer].softmax(-1)[None].to(weights)

    target = resolve_target(trace, None, method="adversarial_attention")
    plain = torch.from_numpy(_answer(trace, trace.logits))
    if len(plain) == 1:
        raise ValueError(f"adversarial_attention is {_ONE}.")
    best = AdversarialAttention(layers, {n: w.double().numpy() for n, w in own.items()}, 0.0, 0.0, epsilon)
    optimizer = torch.optim.Adam(list(free.values()), lr=rate)
    with differentiable(trace, "adversarial_attention") as run, Given():
        for _ in progress(range(steps), "looking for other attention"):
            logits = run().outputs.logits[0]
            row = logits if logits.dim() == 1 else logits[target.position]
            moved = (row.softmax(-1).double() - plain.to(row.device)).abs().sum() / 2
            distance = torch.stack([_divergence(free[n].softmax(-1), own[n]) for n in layers]).mean()
            now, far = float(moved.detach()), float(distance.detach())
            if now <= epsilon and far > best.divergence:
                rows = {n: free[n].softmax(-1).detach().double().numpy() for n in layers}
                best = AdversarialAttention(layers, rows, far, now, epsilon)
            optimizer.zero_grad()
            loss = penalty * (moved - epsilon).clamp_min(0).cpu() - distance
            grads = torch.autograd.grad(loss, list(free.values()))
            for one, grad in zip(free.values(), grads, strict=True):
                one.grad = torch.nan_to_num(grad)
            optimizer.step()
    return best


def _divergence(new: Tensor, old: Tensor) -> Tensor:
    """Return the mean Jensen-Shannon divergence of rows."""
    import torch

    old = old.to(new)
    middle = ((new + old) / 2).clamp_min(1e-30).log()
    parts = [
        torch.where(one > 0, one * (one.clamp_min(1e-30).log() - middle), 0.0).sum(-1) for one in (new, old)
    ]
    return ((parts[0] + parts[1]) / 2).double().mean()


def _layers(trace: Trace, layer: Any, stack: str) -> tuple[int, ...]:
    return pick(slice(None) if layer is None else layer, range(trace.n_layers(stack)), "layer")


def _answer(trace: Trace, logits: Any) -> Float:
    """Return the probabilities at the place of the prediction."""
    target = resolve_target(trace, None, method="attention_permutation")
    row = logits.double() if logits.dim() == 1 else logits[target.position].double()
    return row.softmax(-1).numpy()


def _previewed(trace: Trace, change: Any) -> Float:
    from attnwidgets.intervene.preview import preview

    return _answer(trace, preview(trace, change).logits)
