"""Maps that know nothing of the model: the middle of the picture, and its edges. Baselines for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.attribution.grad_cam import picture_stack
from attnwidgets.explanations.attribution.input_planes import require_plane
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

_WIDTH = 0.25  # the Gaussian's sigma, as a share of each side
_SALIENCE = "Tatler 2007, The central fixation bias in scene viewing"
_EDGES = "Adebayo et al. 2018, Sanity Checks for Saliency Maps (an edge detector compared with methods)"


def centre_prior(trace: Trace) -> Attributions:
    """Return a Gaussian in the middle of the picture, where photographers put their subject.

    A method that is not better than this has shown where objects usually are. Its sigma is a quarter of each
    side.

    Args:
        trace: A trace of a picture that is read by patches.

    Returns:
        Attributions [source] over patches, 0 to 1; class and register tokens have 0.

    Raises:
        ValueError: If the trace holds no picture's patches.
        TypeError: If `trace` is not a trace.

    Source: Tatler 2007 (people look at the middle of a screen first).

    Example:
        >>> import torch, transformers
        >>> config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        >>> model = transformers.ResNetForImageClassification(config).eval()
        >>> trace = aw.trace(model, None, image=torch.rand(3, 40, 40))
        >>> aw.vision.centre_prior(trace).values.argmax()  # the middle patch of 5 x 5
        np.int64(12)
    """
    unit = _patches(trace, "centre_prior")
    rows, columns = unit.grid or (1, 1)
    down, across = ((np.arange(n) + 0.5) / n - 0.5 for n in (rows, columns))
    far = down[:, None] ** 2 + across[None] ** 2
    return _over(trace, np.exp(-far / (2 * _WIDTH**2)), "centre prior", _SALIENCE)


def edges(trace: Trace) -> Attributions:
    """Return the edges of the picture: the change of brightness from pixel to pixel, averaged over patches.

    Many maps look right because they show edges, which need no model.

    Args:
        trace: A trace of a picture that is read by patches.

    Returns:
        Attributions [source] over patches, the mean length of the gradient of the channels' mean in the
        model's input; class and register tokens have 0.

    Raises:
        ValueError: If the trace holds no picture's patches.
        TypeError: If `trace` is not a trace.

    Source: Adebayo et al. 2018, section 5 (methods compared with an edge detector).

    Example:
        >>> import torch, transformers
        >>> config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        >>> model = transformers.ResNetForImageClassification(config).eval()
        >>> trace = aw.trace(model, None, image=torch.zeros(3, 32, 32))
        >>> float(aw.vision.edges(trace).values.max())  # a plain picture has none
        0.0
    """
    _patches(trace, "edges")
    plane = require_plane(trace, "edges")
    grey = trace.inputs[plane.name][0].double().mean(0).cpu().numpy()
    length = np.hypot(*np.gradient(grey))
    count = len(trace.axes(plane.stack)[0])
    sums = plane.over_tokens(np.stack([length, np.ones_like(length)]), count)
    means = np.divide(sums[0], sums[1], out=np.zeros(count), where=sums[1] > 0)
    return _attributions(trace, means, "edges", _EDGES)


PRIORS: dict[str, Any] = {"centre prior": centre_prior, "edges": edges}
"""Baselines by name, for comparison with methods: `{"rollout": ..., **aw.vision.PRIORS}`."""


def _patches(trace: Any, name: str) -> Unit:
    require_trace(trace, f"vision.{name}")
    stack = picture_stack(trace)
    if stack is None:
        raise ValueError(f"vision.{name} needs a picture that is read by patches, and this trace holds none.")
    return trace.axes(stack)[0].units["patch"]


def _over(trace: Trace, cells: Float, title: str, paper: str) -> Attributions:
    """Return values of the cells of a grid [row, column] as Attributions over a trace's patches."""
    unit = _patches(trace, title)
    flat = cells.reshape(-1)
    values = [0.0 if cell is None else float(flat[cell]) for cell in unit.cells or ()]
    return _attributions(trace, np.array(values), title, paper)


def _attributions(trace: Trace, values: Float, title: str, paper: str) -> Attributions:
    stack = picture_stack(trace) or trace.default_stack
    common = provenance_of(trace, stack, title.replace(" ", "_"), title=title, paper=paper)
    return Attributions(values, axis=trace.axes(stack)[0], unit="patch", **common)
