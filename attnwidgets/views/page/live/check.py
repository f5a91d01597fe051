"""The check of a live page: its forward pass is compared with torch's, on the same rounded weights."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets.views.page.live.forward import forward

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from numpy.typing import NDArray

    from attnwidgets.views.page.live.weights import Layout

TOLERANCE = 1e-4
"""By how much two passes may differ, as a share of the largest logit."""
_ROUNDING = 1e-6
"""By how much they may differ in any case, where all logits are zero."""


def torch_logits(model: Any, inputs: Mapping[str, torch.Tensor], layout: Layout) -> NDArray[np.float64]:
    """Return the last logits [outcome] that torch computes from the weights rounded to float16.

    Of a model without a head these are its last states. The model is left as it is.

    Args:
        model: A transformers model.
        inputs: What it is called with for one text; the first axis of all is the batch.
        layout: The model as the page has it.

    Raises:
        ValueError: The page would compute something else.
    """
    ids = [int(token) for token in inputs["input_ids"][0]]
    states, logits = forward(layout, ids)
    rounded = deepcopy(model).float().cpu().eval()
    with no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.half().float())
        output = rounded(**{name: values.cpu() for name, values in inputs.items()})
    known = output.last_hidden_state if layout.shape["reads"] == "none" else output.logits
    expected = np.atleast_2d(known[0].double().numpy())
    here = states if layout.shape["reads"] == "none" else logits
    scale = float(np.abs(expected).max())
    distance = float(np.abs(here - expected).max()) if here.shape == expected.shape else np.inf
    if not distance <= TOLERANCE * scale + _ROUNDING:
        raise ValueError(
            f"computed in the page, {type(model).__name__} differs from what it returns here by "
            f"{distance / max(scale, _ROUNDING):.1e} of its largest output: it has hooks or modules that the "
            "page does not know"
        )
    return np.asarray(expected[-1])
