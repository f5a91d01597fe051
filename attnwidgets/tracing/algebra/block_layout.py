"""What a description of a transformer block says; `layouts.py` has one for each family.

A layout names modules by their path in the block. It fits a block that holds them all; whether the block also
computes what the layout says is found out at run time (`blocks.py`), so that a name taken by another
architecture is refused and never trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class CrossAttention:
    """Where a block's cross-attention is: between its self-attention and its MLP, normed in the same order.

    Args:
        attention: The module that calls the attention function.
        out: Its output projection.
        norm: The norm of its side.
    """

    attention: str
    out: str
    norm: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Every module that must be there."""
        return (self.attention, self.out, self.norm)


@dataclass(frozen=True)
class Layout:
    """Where things are in a block.

    With x the block's input, att the attention with its output projection and `after`, f the steps of `mlp`:

        post      h = norm1(x + att(x));      output = norm2(h + f(h))
        pre       z = x + att(norm1(x));      output = z + f(norm2(z))
        parallel  output = x + att(norm1(x)) + f(norm2(x))

    A step may also be a vector or a number of the block, which scales (BEiT, Granite), or None.

    Args:
        family: Name for people.
        order: Which of the three.
        attention: The module that calls the attention function.
        out: The attention's output projection.
        norm1: Norm of the attention's side; "" for none.
        norm2: Norm of the other side; "" for none.
        mlp: Modules applied one after another.
        value: The projection that values come from; "" where it is none of its own.
        fused: How `value` also holds queries and keys: "" (it does not), "thirds" (queries, keys, values),
            "heads" (query, key and value of a head side by side).
        after: Norm or scale of the attention's output before it is added (Gemma 2, DINOv2); "" for none.
        cross: The block's cross-attention, in the blocks that have one.
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
        """Every module that must be there, but for a cross-attention."""
        named = (self.attention, self.out, self.norm1, self.norm2, *self.mlp, self.value, self.after)
        return tuple(path for path in named if path)

    @property
    def crossing(self) -> Layout:
        """The same block from its cross-attention on, as a block of that attention."""
        if self.cross is None:
            raise ValueError(f"blocks of {self.family} have no cross-attention")
        cross = self.cross
        return replace(
            self,
            attention=cross.attention,
            out=cross.out,
            norm1=cross.norm,
            value="",
            fused="",
            after="",
            cross=None,
        )
