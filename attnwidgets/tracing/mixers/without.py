"""Kernels called again without the values of some tokens, with everything else unchanged."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.mixers.calls import CHANNELS_FIRST, CONVOLUTION, VALUES, handling
from attnwidgets.tracing.mixers.kernels import AttentionWeights, Identity
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from attnwidgets.tracing.mixers.mix import MixedBlock


@contextmanager
def without_tokens(block: MixedBlock, tokens: Tensor, method: str) -> Iterator[None]:
    """Take the values of tokens away from the kernels of a block that is called on copies of its input.

    Kernels keep their weights, and short convolutions their activations as factors: the values lose exactly
    the contributions of the tokens. Attention is not changed.

    Args:
        block: The block's run.
        tokens: Whether a copy lacks a token [copy, token].
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If a kernel of the block takes no values as an argument, or mixes the output of
            another mixer of the block.
    """
    waiting = [mix.proved for mix in block.mixes if not isinstance(mix.kernel, AttentionWeights)]
    done = 0  # channels of the first mixer that were called; its heads may have separate calls

    def handle(name: str, go_on: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        nonlocal done
        is_alone = bool(waiting) and isinstance(waiting[0].kernel, Identity)
        if not waiting or (name == CONVOLUTION) != is_alone:
            return go_on(**arguments)
        mix = waiting[0]
        # A convolution alone returns the values, which a kernel is given.
        values = go_on(**arguments) if is_alone else arguments[VALUES[name]]
        channels = slice(done, done + values[0].numel() // mix.n_tokens)
        done = channels.stop % mix.n_channels
        if not done:
            del waiting[0]
        recorded, handed = mix.values[..., channels], mix.handed_by(tokens)[..., channels]
        if name in CHANNELS_FIRST:
            recorded, handed = recorded.transpose(1, 2), handed.transpose(1, 2)
        recorded, handed = recorded.to(values), handed.reshape(values.shape).to(values)
        change = (values - recorded.reshape(1, *values.shape[1:])).norm(dim=1)
        if not change.max() <= tolerance(mix.values.dtype) * recorded.norm():
            raise UnsupportedModelError(
                f"{method} is not available: mixers of {block.path} follow each other, so that without a "
                f"token's values in one of them {mix.path} mixes other values, and what that token handed to "
                "them is not known."
            )
        values = values - handed
        return values if is_alone else go_on(**arguments | {VALUES[name]: values})

    with handling(handle):
        yield
    if waiting:
        raise UnsupportedModelError(
            f"{method} is not available: {waiting[0].path} mixes values by its own code "
            f"({waiting[0].kernel.kind}), not by a function that can be called without those of a token."
        )
