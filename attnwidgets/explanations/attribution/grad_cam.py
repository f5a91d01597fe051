"""Grad-CAM and its family: feature maps of a layer, weighted by a target's gradient there.

Selvaraju et al. 2017, Grad-CAM; Draelos and Carin 2020, HiResCAM; Jiang et al. 2021, LayerCAM; Chattopadhyay
et al. 2018, Grad-CAM++; for attention, the baseline of Chefer et al. 2021. Guided Grad-CAM multiplies
Grad-CAM with guided backpropagation (Selvaraju et al. 2017, section 3.2).
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import position
from attnwidgets.explanations.attribution.gradients import SHARPENED, saliency
from attnwidgets.explanations.attribution.input_planes import require_plane
from attnwidgets.explanations.attribution.signed_attention import attention_gradients
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import Need, is_map
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import is_trace, provenance_of
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.tracing.model_state import named_modules

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.tracing.media.patches import Grid
    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

Variant = Literal["gradcam", "hirescam", "layercam", "gradcam++", "attention", "guided"]
PAPERS = {
    "gradcam": "Selvaraju et al. 2017, Grad-CAM: Visual Explanations from Deep Networks",
    "hirescam": "Draelos and Carin 2020, Use HiResCAM instead of Grad-CAM for Faithful Explanations",
    "layercam": "Jiang et al. 2021, LayerCAM: Exploring Hierarchical Class Activation Maps",
    "gradcam++": "Chattopadhyay et al. 2018, Grad-CAM++: Generalized Gradient-based Visual Explanations",
    "attention": "Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization (a "
    "baseline there)",
    "guided": "Selvaraju et al. 2017, Grad-CAM, section 3.2",
}
TITLES = {
    "gradcam": "Grad-CAM",
    "hirescam": "HiResCAM",
    "layercam": "LayerCAM",
    "gradcam++": "Grad-CAM++",
    "attention": "Grad-CAM of attention",
    "guided": "Guided Grad-CAM",
}
_EPSILON = 1e-6  # of Grad-CAM++, in the authors' denominators


def picture_stack(trace: Any) -> str | None:
    """Return the stack of a trace whose tokens are a picture's patches; None if there is none."""
    for stack in trace.stacks:
        unit = None if stack == "cross" else trace.axes(stack)[0].units.get("patch")
        if unit is not None and unit.grid is not None and unit.cells is not None:
            return str(stack)
    return None


def _reads_a_picture(trace: Any, _: str) -> str:
    if is_map(trace) or not is_trace(trace):
        return "and this is not a trace"
    return "" if picture_stack(trace) else "and no stack of this trace holds a picture's patches"


PICTURE = Need("picture", "a model that reads a picture by patches", _reads_a_picture)
"""The requirement of methods whose sources are the patches of a picture."""


@method(
    "grad_cam",
    question="For this prediction",
    gist="which places of a layer's feature maps speak for it",
    paper="; ".join(PAPERS.values()),
    needs=(PICTURE, "target"),
    returns="Attributions [source] over patches",
    cost="one pass forward and one back",
    speed="seconds",
)
def grad_cam(
    trace: Trace,
    target: Any = None,
    layer: int | str | None = None,
    variant: Variant = "gradcam",
    *,
    foil: Any = None,
) -> Attributions:
    """Where a layer's feature maps speak for the target: the maps, weighted by the target's gradient.

    With F_cp the activation of channel c at position p of the layer, and G_cp the target's gradient by it:

        gradcam      sum_c w_c F_cp,  w_c = mean over p of G_cp
        hirescam     sum_c G_cp F_cp  (input times gradient at this layer)
        layercam     sum_c (G_cp)+ F_cp
        gradcam++    sum_c v_c F_cp,  v_c = sum_p (G_cp)+ G_cp^2 / (2 G_cp^2 + G_cp^3 sum_q F_cq)
        attention    mean over heads h of w_h A_h(class token, p),  w_h = mean over p of the gradient there
        guided       (gradcam)+, drawn bilinearly over the pixels, times the guided gradient of every pixel

    "guided" is Guided Grad-CAM, a sharp picture that is not more faithful than Grad-CAM: its edges are those
    of guided backpropagation, which hardly depend on the class or on trained weights.

    These are the raw numbers. Published pictures set negatives to zero and then stretch the rest from 0
    to 1, which hides the evidence against the target, and is 0/0 where there is none for it.

    Args:
        trace: {trace} Its model may be convolutional, or attend in windows.
        target: {target}
        layer: A number, or a module's path; by default the last layer that the target depends on (LLaVA reads
            its vision tower before the last block). In a transformer, layer l is the first norm of block l,
            whether or not it attends: after the last block's attention, patches have no gradient if the head
            reads the class token alone. In a convolutional model, the layers are the last maps of each size,
            so that -1 is the map before pooling.
        variant: Name of a formula above.
        foil: {foil}

    Returns:
        Attributions [source] over patches, signed, in units of the target; of "guided" over pixels (after the
        sum over colours), and `.to("patch")` sums them. Class and register tokens are not
        in a map and receive 0. Where the map has another number of positions than the trace has patches, the
        sources are the positions of the map. `.provenance["layer"]` is the name of the module.

    Raises:
        ValueError: For an unknown variant or module, a layer that returns no map of the picture, a target
            that must be named; for "guided" of a model without ReLUs; if gradients are NaN, or zero at this
            layer (the message says why).
        TypeError, IndexError: {no_target} Also for a layer out of range.
        UnsupportedModelError: For "attention" of a model without attention from every patch to every patch,
            or without a class token.

    Example:
        >>> import torch, transformers
        >>> sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
        >>> config = transformers.ResNetConfig(**sizes, num_labels=2)
        >>> model = transformers.ResNetForImageClassification(config).eval()
        >>> trace = aw.trace(model, None, image=torch.rand(3, 32, 32))
        >>> aw.vision.grad_cam(trace, "LABEL_1").source_unit.grid
        (4, 4)
    """
    require_choice("variant", variant, tuple(TITLES))
    targets = resolve_target_set(trace, target, foil, "grad_cam").single("grad_cam")
    stack = picture_stack(trace)
    if stack is None:
        raise ValueError("grad_cam: it needs a picture that is read by patches, and this trace holds none.")
    axis = trace.axes(stack)[0]
    unit = axis.units["patch"]
    notes = list(targets.notes)
    if variant == "attention":
        values, name = _of_attention(trace, targets, -1 if layer is None else layer, stack, unit)
    else:
        at_layer = _at_last_layer if layer is None else partial(_at_layer, layer=layer)
        maps, gradient, name = at_layer(trace, targets, stack=stack, unit=unit)
        if variant == "guided":
            cam = weighted(maps, gradient, "gradcam")
            return _guided(trace, (target, foil, targets), cam, {"layer": layer, "variant": variant}, name)
        values = weighted(maps, gradient, variant)
        axis = _axis_of(axis, unit, (values.shape[0], values.shape[1]))
        unit = axis.units["patch"]
        values = values.reshape(-1)
    if not (values > 0).any():
        notes.append(
            "no value is above zero: the published map, clipped at zero and then scaled, is 0/0, and is "
            "drawn as zeros"
        )
    whole = np.zeros(len(unit))
    in_grid = [(index, cell) for index, cell in enumerate(unit.cells or ()) if cell is not None]
    patches, cells = zip(*in_grid, strict=True)
    whole[list(patches)] = values[list(cells)]
    common = provenance_of(
        trace,
        stack,
        "grad_cam",
        title=TITLES[variant],
        paper=PAPERS[variant],
        options={"layer": layer, "variant": variant},
        notes=notes,
        facts={"layer": name},
    )
    return Attributions(whole, axis=axis, unit="patch", **targets.names(), **common)


def _guided(
    trace: Trace, explained: tuple[Any, Any, TargetSet], cam: Float, options: dict[str, Any], name: str
) -> Attributions:
    """Return Guided Grad-CAM over pixels, from the map of Grad-CAM [row, column]."""
    import torch

    target, foil, targets = explained
    plane = require_plane(trace, "grad_cam")
    guided = saliency(trace, target, foil, relu="guided", reduce="sum", at="input", unit=plane.unit)
    clipped = torch.as_tensor(cam.clip(min=0))[None, None]
    drawn = torch.nn.functional.interpolate(clipped, plane.shape, mode="bilinear", align_corners=False)
    common = provenance_of(
        trace,
        plane.stack,
        "grad_cam",
        title=TITLES["guided"],
        paper=PAPERS["guided"],
        options=options,
        notes=(*targets.notes, SHARPENED),
        facts={"layer": name},
    )
    values = np.asarray(guided.values, float) * drawn.numpy().reshape(-1)
    return Attributions(values, axis=guided.axis, unit=plane.unit, **targets.names(), **common)


class _NoGradientError(ValueError):
    """Raised if a target does not depend on a layer."""


def weighted(maps: Float, gradient: Float, variant: str) -> Float:
    """Return a class activation map [row, column], before it is clipped and scaled.

    Args:
        maps: The layer's maps [channel, row, column].
        gradient: The target's gradient by them, of the same shape.
        variant: "gradcam", "hirescam", "layercam" or "gradcam++".
    """
    if variant == "hirescam":
        weights = gradient
    elif variant == "layercam":
        weights = gradient.clip(min=0)
    elif variant == "gradcam":
        weights = gradient.mean((1, 2), keepdims=True)
    else:
        below = 2 * gradient**2 + maps.sum((1, 2), keepdims=True) * gradient**3 + _EPSILON
        shares = np.where(gradient != 0, gradient**2 / below, 0.0)
        weights = (gradient.clip(min=0) * shares).sum((1, 2), keepdims=True)
    summed: Float = (weights * maps).sum(0)
    return summed


def _at_layer(
    trace: Trace, targets: TargetSet, *, layer: int | str, stack: str, unit: Unit
) -> tuple[Float, Float, str]:
    """Return a layer's maps and the target's gradient by them [channel, row, column], and its module."""
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.media.feature_maps import lists_places, size_of

    endpoint: Any = "embedding" if trace.has_attention(stack) else "input"
    with differentiable(trace, "grad_cam", place=endpoint) as run, ExitStack() as undo:
        captured: list[tuple[str, Tensor]] = []
        for name in _modules(trace, run.model, layer, stack):
            module = run.model.get_submodule(name)
            undo.callback(module.register_forward_hook(_capture(captured, name)).remove)
        graph = run(reads=targets.reads)
        if not captured:
            raise ValueError(f"grad_cam: a pass does not reach layer {layer!r}, or it returns no states.")
        name, states = captured[0]
        score = targets.scores(graph.outputs)[0]
        gradient = gradients(score, [states], again=True)[0]
        _require_gradient(gradient, score, name)
        size = size_of(trace.inputs)
        converted = [
            _feature_map(tensor.detach(), unit, size, places=lists_places(run.model))
            for tensor in (states, gradient)
        ]
    if converted[0] is None or converted[1] is None:
        raise ValueError(
            f"layer {name!r} returns {list(states.shape)}, which is not a map of the picture: name a module "
            "that returns [batch, channel, row, column], or the patches [batch, token, width]."
        )
    maps, slopes = (tensor[0].double().cpu().numpy() for tensor in converted if tensor is not None)
    return maps, slopes, name


def _at_last_layer(trace: Trace, targets: TargetSet, *, stack: str, unit: Unit) -> tuple[Float, Float, str]:
    """Return maps, gradient and module, as `_at_layer`, of the last layer that the target depends on."""
    for back in range(1, max(1, trace.n_layers(stack)) + 1):
        with suppress(_NoGradientError):
            return _at_layer(trace, targets, layer=-back, stack=stack, unit=unit)
    return _at_layer(trace, targets, layer=-1, stack=stack, unit=unit)  # says why there is none


def _capture(captured: list[tuple[str, Tensor]], name: str) -> Any:
    """Return a forward hook that stores the states of the first module that ends, and passes on a copy."""

    def hook(_: Any, __: Any, output: Any) -> Any:
        import torch

        if captured:
            return None
        states = output[0] if isinstance(output, (tuple, list)) and output else output
        if not isinstance(states, torch.Tensor) or not states.requires_grad:
            return None
        captured.append((name, states))
        # The model continues with a copy, so that in-place operations leave the stored states alone.
        copy = states.clone()
        return copy if states is output else (copy, *output[1:])

    return hook


def _modules(trace: Trace, model: Any, layer: int | str, stack: str) -> list[str]:
    """Return candidates by a layer's number or a module's path; the first module to run is read."""
    from attnwidgets._errors import suggest
    from attnwidgets.tracing.anatomy.block_names import block_names
    from attnwidgets.tracing.media.feature_maps import (
        blocks_that_attend,
        last_of_each_size,
        size_of,
        watching_maps,
    )

    modules = named_modules(model)
    if isinstance(layer, str):
        if layer not in modules or not layer:
            raise ValueError(
                f"layer {layer!r} is not a module of {type(model).__name__}.{suggest(layer, modules)}"
            )
        return [layer]
    blocks = list(block_names(trace, model).get(stack, ())) or blocks_that_attend(model)
    if blocks:
        block = blocks[position(layer, range(len(blocks)), "layer")]
        norms = [
            name
            for name, module in modules.items()
            if name.startswith(f"{block}.") and "norm" in type(module).__name__.lower()
        ]
        return norms or [block]
    size = size_of(trace.inputs)
    if size is None:
        raise ValueError(f"layer {layer} is not known of {type(model).__name__}: name a module by its path.")
    with watching_maps(model, size) as maps:
        trace.call(model, trace.inputs, {"return_dict": True}, {})
    stages = last_of_each_size(maps)
    return [stages[position(layer, range(len(stages)), "layer")].name]


def _require_gradient(gradient: Tensor, score: Tensor, name: str) -> None:
    """Raise ValueError if a gradient cannot be used, with the likely reason."""
    if not bool(score.isfinite().all()):
        raise ValueError(f"grad_cam: the target is {float(score[0])}; there is nothing to explain.")
    if not bool(gradient.isfinite().all()):
        raise ValueError(f"grad_cam: the gradient at {name!r} is NaN or infinite.")
    if not bool(gradient.any()):
        raise _NoGradientError(
            f"grad_cam: the target's gradient at {name!r} is zero everywhere: it does not depend on this "
            "layer's output, or only through another call of it."
        )


def _feature_map(states: Tensor, unit: Unit, size: Grid | None, *, places: bool) -> Tensor | None:
    """Return states as a map [batch, channel, row, column]; None if they have another shape.

    Args:
        states: A map, or [batch, token, width] of the tokens of the trace, of which the patches count.
        unit: The patches of the trace.
        size: Rows and columns of pixels.
        places: Whether [batch, position, channel] are the positions of a map, row by row.
    """
    from attnwidgets.tracing.media.feature_maps import as_map

    tokens = 3
    if states.dim() == tokens and states.shape[1] == len(unit) and unit.grid is not None and not places:
        in_grid = sorted((cell, index) for index, cell in enumerate(unit.cells or ()) if cell is not None)
        chosen = states[:, [index for _, index in in_grid]]
        return chosen.transpose(1, 2).unflatten(2, unit.grid)
    return None if size is None else as_map(states, size, places=places)


def _axis_of(axis: TokenAxis, unit: Unit, grid: Grid) -> TokenAxis:
    """Return the axis of the trace's tokens, or of a map with other positions."""
    from attnwidgets.tracing.media.feature_maps import grid_axis

    return axis if unit.grid == grid else grid_axis(grid)


def _of_attention(
    trace: Trace, targets: TargetSet, layer: int | str, stack: str, unit: Unit
) -> tuple[Float, str]:
    """Return the class token's attention to every cell, weighted head by head, and the layer's name."""
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    if not trace.has_attention(stack):
        raise UnsupportedModelError(
            f"variant 'attention' needs attention from every patch to every patch: {trace.no_attention}; the "
            "other variants need none."
        )
    if isinstance(layer, str):
        raise TypeError(f"variant 'attention' takes the number of a layer, not {layer!r}.")
    index = position(layer, trace.layers(stack), "layer")
    row = class_token(unit)
    if row is None:
        raise UnsupportedModelError(
            "variant 'attention' reads the row of the class token, and this model has none; the "
            "other variants "
            "need none."
        )
    result = attention_gradients(
        trace,
        lambda outputs: targets.scores(outputs)[0],
        "grad_cam",
        reads=targets.reads,
    )
    in_grid = sorted((cell, number) for number, cell in enumerate(unit.cells or ()) if cell is not None)
    columns = [number for _, number in in_grid]
    weights = result.weights[stack][index][:, row][:, columns]
    slopes = result.gradients[stack][index][:, row][:, columns]
    name = f"attention of layer {trace.layers(stack)[index]}"
    return (slopes.mean(1, keepdims=True) * weights).mean(0), name


def class_token(unit: Unit) -> int | None:
    """Return the index of the class token among a picture's patches; None if there is none."""
    return next((index for index, label in enumerate(unit.labels) if label == "[CLS]"), None)
