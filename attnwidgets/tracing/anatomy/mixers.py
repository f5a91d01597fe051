"""The mixers of a block that were not recorded, by the classes of its modules."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from torch import nn

from attnwidgets.tracing.anatomy.block_names import is_attention
from attnwidgets.tracing.anatomy.blocks import ATTENTION, UNKNOWN, Mixer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Kinds by the names of classes; the first that fits.
_KINDS = (
    ("gated delta rule", re.compile(r"delta")),
    ("state space", re.compile(r"mamba|statespace|falconh1mixer|bambamixer")),
    ("linear attention", re.compile(r"lightning|linear_?attn|linear_?attention|retention")),
    ("recurrence", re.compile(r"recurrent|rglru|rg_lru|[msx]lstm|rwkv\w*attention|rwkv\w*timemix")),
    ("convolution", re.compile(r"short_?conv|convolution")),
    ("Fourier transform", re.compile(r"fourier")),
    ("pooling", re.compile(r"pooling$")),
)
# Parts that bear the name of their mixer and mix nothing themselves, and blocks named after their parts.
_PARTS = re.compile(
    r"norm|embedding|rotary|mlp|cache|expert|router|activation|dropout|(coder|hybrid)layer$|block$"
)
_WORKS_ALONE = re.compile(r"mlp|moe|experts|feed_?forward|ffn")


def attends(module: nn.Module) -> bool:
    """Return whether a module is named as a softmax attention and does not wrap another such module."""
    return _is_attention(module) and not any(
        _is_attention(part) for part in module.modules() if part is not module
    )


def unrecorded_mixers(
    block: nn.Module, path: str, recorded: Collection[str], ran: Collection[nn.Module]
) -> tuple[Mixer, ...]:
    """Return the mixers of a block besides the attention modules that were recorded.

    Args:
        block: The block.
        path: Its path in the model.
        recorded: Paths of the modules whose attention was recorded.
        ran: The attention modules that ran: others, such as a decoder's cross-attention without an encoder,
            mix nothing.

    Returns:
        Mixers in the order of the modules; one of kind "unknown" if nothing in the block is known to mix
        tokens or to work on every token alone.
    """
    mixers = tuple(_mixers(block, path, recorded, ran))
    if mixers or any(name == path or name.startswith(f"{path}.") for name in recorded):
        return mixers
    kinds = [type(part).__name__.lower() for part in block.modules()]
    return () if any(map(_WORKS_ALONE.search, kinds)) else (Mixer(UNKNOWN, path),)


def _mixers(
    module: nn.Module, path: str, recorded: Collection[str], ran: Collection[nn.Module]
) -> Iterator[Mixer]:
    if path in recorded:
        return
    kind = _kind(module) or (ATTENTION if module in ran else "")
    if kind and not any(name.startswith(f"{path}.") for name in recorded):
        yield Mixer(kind, path)
        return
    for name, part in module.named_children():
        yield from _mixers(part, f"{path}.{name}", recorded, ran)


def _kind(module: nn.Module) -> str:
    """Return how a module mixes tokens other than by attention; "" if it is not known to."""
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrence"
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return "convolution" if max(module.kernel_size) > 1 else ""
    return _kind_named(type(module).__name__.lower())


@functools.lru_cache
def _kind_named(name: str) -> str:
    if _PARTS.search(name):
        return ""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "")


def _is_attention(module: nn.Module) -> bool:
    return is_attention(module) and not _kind(module) and next(module.parameters(), None) is not None
