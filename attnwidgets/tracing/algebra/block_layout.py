"""The layout of a transformer block: which module does what. `known_layouts.py` has one per model family.

A layout names modules by their path in the block and fits a block that has them all. Whether the block
computes what the layout says is checked at run time (`blocks.py`), so an architecture that uses the same
names for other things is rejected rather than trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class CrossAttention:
    """The cross-attention between a block's self-attention and its MLP, with its norm in the same order.

    Args:
        attention: Module that calls the attention function.
        out: Its output projection.
        norm: The norm of the cross-attention.
    """

    attention: str
    out: str
    norm: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules a block must have."""
        return (self.attention, self.out, self.norm)


@dataclass(frozen=True)
class Layout:
    """Which module of a block does what.

    With x the block's input, att the attention with its output projection and `after`, f the `mlp` steps:

        post      h = norm1(x + att(x));      output = norm2(h + f(h))
        pre       z = x + att(norm1(x));      output = z + f(norm2(z))
        parallel  output = x + att(norm1(x)) + f(norm2(x))

    A step may also be a vector or number of the block that scales its input (BEiT, Granite), or None.

    Args:
        family: Readable name, used in messages.
        order: One of the three orders above.
        attention: Module that calls the attention function.
        out: The attention's output projection.
        norm1: Norm of the attention branch; "" for none.
        norm2: Norm of the MLP branch; "" for none.
        mlp: Modules applied in sequence.
        value: The projection that produces the values; "" if unknown.
        fused: Whether `value` also produces queries and keys: "" (no), "thirds" (all queries, all keys, all
            values), "heads" (query, key and value of each head side by side).
        after: Norm or scale applied to the attention output before it is added (Gemma 2, DINOv2); "" for
            none.
        cross: The cross-attention, if the block has one.
    """

    family: str
    order: Literal["post", "pre", "parallel"]
    attention: str
    out: str
    norm1: str
    norm2: str
    mlp: tuple[str, ...]
    value: str = ""
    fused: Literal["", "thirds", "heads"] = ""
    after: str = ""
    cross: CrossAttention | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules a block must have, not counting a cross-attention."""
        named = (self.attention, self.out, self.norm1, self.norm2, *self.mlp, self.value, self.after)
        return tuple(path for path in named if path)

    @property
    def crossing(self) -> Layout:
        """The layout with the cross-attention in the place of the self-attention."""
        if self.cross is None:
            raise ValueError(f"blocks of {self.family} have no cross-attention")
        attention, out, norm = self.cross.paths
        return replace(
            self, attention=attention, out=out, norm1=norm, value="", fused="", after="", cross=None
        )
