"""The norms of tokens, layer by layer, and the outliers among them.

Darcet et al. 2024, Vision Transformers Need Registers, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.explanations.attribution.grad_cam import picture_stack
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.gradients.differentiable import Graph
    from attnwidgets.tracing.trace import Trace

PAPER = "Darcet et al. 2024, Vision Transformers Need Registers"
TIMES = 3.0
"""How many times the patches' median norm an outlier has by default."""


def token_norms(trace: Trace, *, stack: str | None = None) -> Attributions:
    """The length of every token's state, layer by layer: outliers hold little of their own patch.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: Stack of a model that has several; by default the one that reads a picture, else the trace's
            default.

    Returns:
        Attributions [layer, token], the L2 norms |x| of the states after every block, before the model's last
        norm; the targets are "layer 0", "layer 1", ...

    Raises:
        ValueError: If the stack is unknown, the blocks of the model are not found, or interventions have
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
        **provenance_of(trace, stack, "token_norms", title="token norms", paper=PAPER),
    )


def passing(trace: Trace, purpose: str) -> Any:
    """Return a context that yields the states of one more pass over a trace's input, without gradients."""
    from contextlib import contextmanager

    from attnwidgets.tracing.gradients.differentiable import differentiable

    @contextmanager
    def run() -> Iterator[Graph]:
        with differentiable(trace, purpose, back=False) as model:
            yield model()

    return run()


@dataclass(frozen=True)
class OutlierTokens(Table):
    """Tokens whose norm lies above a threshold, in one layer.

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
        threshold: The norm. Published ones were read off a histogram, and differ by model (150 for DINOv2-g;
            30 for CLIP-B). By default three times the patches' median.
        layer: Number of the layer; negative numbers count from the last block, attending or not, whose
            norms are those before the model's last norm.

    Raises:
        ValueError: For a threshold that is not above 0.
        IndexError: If the layer is out of range.

    Source: Darcet et al. 2024, section 2.1.

    Example:
        >>> norms = aw.Attributions([[1.0, 1.2, 9.0, 0.8]], axis=["a", "b", "c", "d"], target=["layer 0"])
        >>> aw.vision.outlier_tokens(norms).labels
        ('c',)
    """
    found = norms if isinstance(norms, Attributions) else token_norms(norms)
    values: NDArray[np.floating] = np.atleast_2d(found.values)
    layer = position(layer, range(len(values)), "layer")
    unit = found.source_unit
    places = [place for place, special in enumerate(unit.special) if not special]
    row = values[layer]
    median = float(np.median(row[places]))
    if threshold is None:
        threshold = TIMES * median
    if not threshold > 0:
        raise ValueError(f"threshold must be a norm above 0, not {threshold}.")
    above = [place for place in places if row[place] > threshold]
    return OutlierTokens(
        layer,
        float(threshold),
        tuple(unit.spans[place][0] for place in above),
        tuple(unit.labels[place] for place in above),
        tuple(float(row[place]) for place in above),
        median,
        len(places),
    )
