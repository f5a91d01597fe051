"""What mixes tokens in a block without being recorded, by the classes of its modules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import nn

from attnwidgets.tracing.anatomy.block_names import is_attention
from attnwidgets.tracing.anatomy.blocks import ATTENTION, Mixer

if TYPE_CHECKING:
    from collections.abc import Iterator

# Kinds by the names of classes; the first that fits.
_KINDS = (
    ("gated delta rule", re.compile(r"delta")),
    ("state space", re.compile(r"mamba|ssm|ssd|falconh1mixer|bambamixer|statespace")),
    ("linear attention", re.compile(r"lightning|linear_?attn|linear_?attention|retention|gated_?linear")),
    ("recurrence", re.compile(r"recurrent|rglru|rg_lru|[ms]lstm|rwkv\w*attention|rwkv\w*timemix")),
    ("convolution", re.compile(r"short_?conv|convolution")),
    ("Fourier transform", re.compile(r"fourier")),
    ("pooling", re.compile(r"pooling$")),
)
# Parts that bear the name of their mixer and mix nothing themselves, and wrappers named after what they hold.
_PARTS = re.compile(r"norm|embedding|rotary|mlp|cache|expert|router|activation|dropout|layer$|block$")
_WORKS_ALONE = re.compile(r"mlp|moe|experts|feed_?forward|ffn")


def unrecorded_mixers(block: nn.Module, path: str, recorded: set[str]) -> tuple[Mixer, ...]:
    """Return what mixes tokens in a block besides the attention modules that were recorded.

    Args:
        block: The block.
        path: Its path in the model.
        recorded: Paths of the modules whose attention was recorded.

    Returns:
        Mixers in the order of the modules; one of kind "unknown" if nothing in the block is known to mix
        tokens or to work on every token alone.
    """
    mixers = tuple(_mixers(block, path, recorded))
    if mixers or any(name == path or name.startswith(f"{path}.") for name in recorded):
        return mixers
    kinds = [type(part).__name__.lower() for part in block.modules()]
    return () if any(map(_WORKS_ALONE.search, kinds)) else (Mixer("unknown", path),)


def _mixers(module: nn.Module, path: str, recorded: set[str]) -> Iterator[Mixer]:
    if path in recorded:
        return
    kind = _kind(module)
    holds_recorded = any(name.startswith(f"{path}.") for name in recorded)
    if kind and not holds_recorded and not (kind == ATTENTION and _holds_attention(module)):
        yield Mixer(kind, path)
        return
    for name, part in module.named_children():
        yield from _mixers(part, f"{path}.{name}", recorded)


def _kind(module: nn.Module) -> str:
    """Return how a module mixes tokens; "" if it is not known to."""
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrence"
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return "convolution" if max(module.kernel_size) > 1 else ""
    name = type(module).__name__.lower()
    if _PARTS.search(name):
        return ""
    kind = next((kind for kind, pattern in _KINDS if pattern.search(name)), "")
    return kind or (ATTENTION if is_attention(module) and _has_weights(module) else "")


def _holds_attention(module: nn.Module) -> bool:
    """Return whether a module only wraps another that attends, as BERT's does."""
    return any(is_attention(part) and _has_weights(part) for part in module.modules() if part is not module)


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None
