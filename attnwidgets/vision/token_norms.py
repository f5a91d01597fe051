"""The norms of tokens, layer by layer, the outliers among them, and the register neurons that cause them.

`token_norms` and `outlier_tokens` follow Darcet et al. 2024, Vision Transformers Need Registers, section 2.1.
`find_register_neurons` follows Jiang et al. 2025, Vision Transformers Don't Need Trained Registers, section
3: register neurons are units of MLPs that fire at tokens of high norm in the blocks before the norms grow.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.explanations.attribution.grad_cam import picture_stack
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.gradients.differentiable import Graph
    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.trace import Trace

NORMS_PAPER = "Darcet et al. 2024, Vision Transformers Need Registers"
TIMES = 3.0
"""Default threshold of outliers, in multiples of the patches' median norm."""

NEURONS_PAPER = "Jiang et al. 2025, Vision Transformers Don't Need Trained Registers"


def token_norms(trace: Trace, *, stack: str | None = None) -> Attributions:
    """Return the length of every token's state, layer by layer: outliers encode little of their patch.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: Stack of a model that has several; by default the stack that reads a picture, else the default
            stack of the trace.

    Returns:
        Attributions [layer, token], the L2 norms |x| of the states after every block, before the model's last
        norm; the targets are "layer 0", "layer 1", ...

    Raises:
        ValueError: If the stack is unknown, the blocks of the model are unknown, or interventions have
            changed since the trace.
        TypeError: If `trace` is not a trace.

    Source: Darcet et al. 2024, section 2.1, figures 3 and 4.

    Example:
        >>> import torch, transformers
        >>> config = transformers.ViTConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2,
        ...     intermediate_size=32, image_size=32, patch_size=8)
        >>> trace = aw.trace(transformers.ViTModel(config).eval(), None, image=torch.rand(3, 32, 32))
        >>> aw.vision.token_norms(trace).shape
        (2, 17)
    """
    require_trace(trace, "vision.token_norms")
    stack = resolve_stack(trace, stack or picture_stack(trace))
    with passing(trace, "token_norms") as graph:
        states = graph.states.get(stack, [])[1:]
        if not states:
            raise ValueError(
                f"token_norms: the blocks of stack {stack!r} of {type(trace.model).__name__} are not found."
            )
        rows = [state[0].double().norm(dim=-1).cpu().numpy() for state in states]
    axis = trace.axes(stack)[0]
    unit = "patch" if "patch" in axis.units else next(iter(axis.units))
    return Attributions(
        np.stack(rows),
        axis=axis,
        target=tuple(f"layer {layer}" for layer in range(len(rows))),
        unit=unit,
        **provenance_of(trace, stack, "token_norms", title="token norms", paper=NORMS_PAPER),
    )


def passing(trace: Trace, purpose: str) -> Any:
    """Return a context that yields the states of another pass over a trace's input, without gradients."""
    from contextlib import contextmanager

    from attnwidgets.tracing.gradients.differentiable import differentiable

    @contextmanager
    def run() -> Iterator[Graph]:
        with differentiable(trace, purpose, back=False) as model:
            yield model()

    return run()


@dataclass(frozen=True)
class OutlierTokens(Table):
    """Tokens whose norm lies above a threshold, in a layer.

    Attributes:
        layer: The layer.
        threshold: The norm above which a token is an outlier.
        tokens: Their positions, in order; class and register tokens are never among them.
        labels: Their labels.
        norms: Their norms, in the same order.
        median: The patches' median norm.
        n_patches: The number of patches.
    """

    layer: int
    threshold: float
    tokens: tuple[int, ...]
    labels: tuple[str, ...]
    norms: tuple[float, ...]
    median: float
    n_patches: int

    @property
    def share(self) -> float:
        """The share of patches that are outliers."""
        return len(self.tokens) / self.n_patches

    def _columns(self) -> Iterator[Columns]:
        """Yield token, label, norm."""
        yield {"token": self.tokens, "label": self.labels, "norm": self.norms}

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        largest = f", the largest {max(self.norms):.4g}" if self.norms else ""
        return (
            f"<{len(self)} of {self.n_patches} patches ({self.share:.2%}) above {self.threshold:.4g} "
            f"after layer "
            f"{self.layer}{largest}; median {self.median:.4g}>"
        )


def outlier_tokens(norms: Any, threshold: float | None = None, layer: int = -1) -> OutlierTokens:
    """Return the patches whose norm lies above a threshold after a layer.

    Args:
        norms: Result of `aw.vision.token_norms`, or a trace.
        threshold: The norm. Published thresholds were read off a histogram, and differ by model (150 for
            DINOv2-g; 30 for CLIP-B). By default three times the patches' median.
        layer: Number of the layer; negative numbers count from the last block, attending or not, whose
            norms are those before the model's last norm.

    Raises:
        ValueError: For a threshold that is not above 0.
        IndexError: If the layer is out of range.

    Source: Darcet et al. 2024, section 2.1.

    Example:
        >>> values = [[1.0, 1.2, 9.0, 0.8]]
        >>> norms = aw.results.Attributions(values, axis=["a", "b", "c", "d"], target=["layer 0"])
        >>> aw.vision.outlier_tokens(norms).labels
        ('c',)
    """
    result = norms if isinstance(norms, Attributions) else token_norms(norms)
    values: NDArray[np.floating] = np.atleast_2d(result.values)
    layer = position(layer, range(len(values)), "layer")
    unit = result.source_unit
    patches = [index for index, special in enumerate(unit.special) if not special]
    row = values[layer]
    median = float(np.median(row[patches]))
    if threshold is None:
        threshold = TIMES * median
    if not threshold > 0:
        raise ValueError(f"threshold must be a norm above 0, not {threshold}.")
    above = [patch for patch in patches if row[patch] > threshold]
    return OutlierTokens(
        layer,
        float(threshold),
        tuple(unit.spans[patch][0] for patch in above),
        tuple(unit.labels[patch] for patch in above),
        tuple(float(row[patch]) for patch in above),
        median,
        len(patches),
    )


class RegisterNeuron(NamedTuple):
    """A hidden unit of an MLP.

    Attributes:
        layer: Number of the block.
        unit: Number of the unit.
        score: Its mean absolute activation at outlier tokens.
        elsewhere: Its mean absolute activation at the other patches.
    """

    layer: int
    unit: int
    score: float
    elsewhere: float


def find_register_neurons(
    traces: Any,
    *,
    k: int = 10,
    layer: int = -1,
    threshold: float | None = None,
    up_to: int | None = None,
) -> tuple[RegisterNeuron, ...]:
    """Return the units of MLPs that are most active at tokens of high norm, over several pictures.

        score(l, u) = mean over pictures of mean over outlier tokens p of |a_pu|

    with a the activation of hidden unit u of block l at token p. The highest scores among the first blocks
    count: later units read the outliers instead of causing them. A unit with the same activation elsewhere
    (`.elsewhere`) is not a register neuron.

    Args:
        traces: Traces of pictures by one model; the more, the better (the authors take hundreds).
        k: Number of units (the authors take 10 in a ViT-B and 50 in a ViT-L).
        layer: The layer after which norms are read, as for `outlier_tokens`.
        threshold: The norm above which a token is an outlier; by default three times the patches' median.
        up_to: The last block whose units count; negative numbers count from the model's last. By default the
            block after which outliers appear first; of several pictures the latest.

    Returns:
        Units, the highest score first.

    Raises:
        ValueError: If no picture has an outlier, the traces are of several models, k is below 1, or the MLPs
            of the model are unknown.
        IndexError: If the layer is out of range.
        TypeError: If an item is not a trace.

    Example:
        >>> import torch, transformers
        >>> config = transformers.ViTConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2,
        ...     intermediate_size=32, image_size=32, patch_size=8)
        >>> trace = aw.trace(transformers.ViTModel(config).eval(), None, image=torch.rand(3, 32, 32))
        >>> low = 0.5 * aw.vision.outlier_tokens(trace).median
        >>> len(aw.vision.find_register_neurons(trace, k=3, threshold=low))
        3
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}.")
    listed = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    for trace in listed:
        require_trace(trace, "vision.find_register_neurons")
    if len({id(trace.model) for trace in listed}) > 1:
        raise ValueError("traces are of several models; give those of one.")
    scores, elsewhere, first, largest = [], [], [], 0.0
    for trace in listed:
        norms = token_norms(trace)
        result = outlier_tokens(norms, threshold, layer)
        largest = max(largest, float(norms.values[layer].max()) / result.median)
        if not len(result):
            continue
        units = _activations(trace)
        patches = [index for index, special in enumerate(norms.source_unit.special) if not special]
        rest = [patch for patch in patches if patch not in result.tokens]
        scores.append([row[list(result.tokens)].mean(0) for row in units])
        elsewhere.append([row[rest].mean(0) if rest else np.zeros(row.shape[1]) for row in units])
        first.append(_first_layer(norms.values, result.tokens, patches, result.threshold / result.median))
    if not scores:
        raise ValueError(
            f"no token is an outlier: the largest norm is {largest:.2f} times the median of the "
            f"patches. Models "
            "without outliers have no register neurons; otherwise pass threshold=."
        )
    mean = [np.mean(rows, axis=0) for rows in zip(*scores, strict=True)]
    last = max(first) if up_to is None else position(up_to, range(len(mean)), "layer")
    other = [np.mean(rows, axis=0) for rows in zip(*elsewhere, strict=True)]
    ranked = sorted(
        (
            RegisterNeuron(number, unit, float(score), float(other[number][unit]))
            for number, row in enumerate(mean[: last + 1])
            for unit, score in enumerate(row)
        ),
        key=lambda neuron: (-neuron.score, neuron.layer, neuron.unit),
    )
    return tuple(ranked[:k])


def _first_layer(
    norms: NDArray[np.floating], tokens: Sequence[int], patches: Sequence[int], times: float
) -> int:
    """Return the first layer after which half of the outliers are some times the median."""
    for layer, row in enumerate(norms):
        if np.mean(row[list(tokens)] > times * np.median(row[list(patches)])) >= 0.5:  # noqa: PLR2004 - half
            return layer
    return len(norms) - 1


def hidden_units(trace: Trace, model: nn.Module) -> list[HookPoint]:
    """Return the hook points of the hidden units of every block's MLP in the stack that reads a picture.

    Raises:
        ValueError: If the stack is unknown, or its MLPs are not described.
    """
    from attnwidgets.tracing.anatomy.block_names import block_names
    from attnwidgets.tracing.hooks.hook_point import in_block

    stack = picture_stack(trace)
    blocks = block_names(trace, model).get(stack or "", ())
    if not blocks:
        raise ValueError(f"the blocks of {type(model).__name__} that read a picture are not found.")
    return [in_block(model, block, number, "mlp.hook_post") for number, block in enumerate(blocks)]


def _activations(trace: Trace) -> list[NDArray[np.float64]]:
    """Return the absolute activations of the hidden units of every block [token, unit]."""
    from attnwidgets.tracing.gradients.differentiable import differentiable
    from attnwidgets.tracing.hooks.hook import hooked

    activations: list[NDArray[np.float64]] = []

    def record(states: Tensor) -> None:
        activations.append(states.detach().reshape(-1, states.shape[-1]).abs().double().cpu().numpy())

    with differentiable(trace, "find_register_neurons", back=False) as run, ExitStack() as undo:
        for point in hidden_units(trace, run.model):
            undo.enter_context(hooked(run.model, point, record))
        run()
    return activations
