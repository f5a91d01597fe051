"""Guided backpropagation: a backward pass in which ReLUs let only positive gradients through.

Springenberg et al. 2015, Striving for Simplicity: The All Convolutional Net, section 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

_RELUS = ("relu", "relu_", "relu6", "relu6_")


class GuidedRelus(TorchFunctionMode):
    """Within this context, the gradient by the output of every ReLU is set to zero where it is negative.

    Attributes:
        count: Number of ReLUs that ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch; a hook on the output of a ReLU clips the gradient that comes back."""
        output = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _RELUS:
            self.count += 1
            if output.requires_grad:
                output.register_hook(_positive)
        return output


def _positive(gradient: Tensor) -> Tensor:
    return gradient.clamp(min=0)
