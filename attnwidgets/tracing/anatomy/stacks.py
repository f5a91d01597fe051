"""Which stack a model's attention modules belong to: self, encoder, decoder, cross, or a tower."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.recording.wrappers import unpeft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

# Names of cross-attention modules: encoder_attn, EncDecAttention, crossattention, cross_attn, multihead_attn2
_CROSS = re.compile(r"enc_?dec|encoder_att|cross", re.IGNORECASE)
_TOWERS = (
    ("vision", "vision"),
    ("visual", "vision"),
    ("audio", "audio"),
    ("text", "text"),
    ("language", "text"),
)


def by_stack(model: nn.Module, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the attention modules of every stack.

    Args:
        model: The model.
        names: The modules' names in it, in the order of their calls; one that is called often stands often.

    Returns:
        By stack, indices of names, in order.
    """
    encoder = _encoder_of(unpeft(model))
    parts = set() if encoder is None else set(encoder.modules())
    inside = {name for name, module in model.named_modules() if module in parts} if parts else set()
    stacks: dict[str, list[int]] = {}
    outside = [name for name in names if name not in inside]
    if encoder is not None and outside and len(outside) < len(names):
        stacks = {"encoder": [], "decoder": [], "cross": []}
        for index, name in enumerate(names):
            tail = ".".join(name.split(".")[-3:])
            cross = name not in inside and bool(_CROSS.search(tail))
            stacks["encoder" if name in inside else "cross" if cross else "decoder"].append(index)
        return {name: members for name, members in stacks.items() if members}
    crossing = {
        index
        for index, name in enumerate(names)
        if _CROSS.search(name.split(".")[-1]) or "crossattention" in name
    }
    towers = list(dict.fromkeys(map(_tower, names)))
    if (
        outside
        and len(outside) == len(names)
        and crossing
        and len(crossing) < len(names)
        and len(towers) == 1
    ):
        rest = [index for index in range(len(names)) if index not in crossing]
        return {"decoder": rest, "cross": sorted(crossing)}
    short = dict(zip(towers, _tower_names(towers), strict=True))
    for index, name in enumerate(names):
        stack = "cross" if index in crossing and len(towers) > 1 else short[_tower(name)]
        stacks.setdefault(stack, []).append(index)
    # Text first, in whatever order the towers run.
    return dict(sorted(stacks.items(), key=lambda item: item[0] != "text"))


def _encoder_of(model: Any) -> nn.Module | None:
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    for owner in (model, getattr(model, "model", model)):
        encoder = getattr(owner, "encoder", None)
        if isinstance(encoder, torch.nn.Module):
            return encoder
    encoder = model.get_encoder() if hasattr(model, "get_encoder") else None
    return encoder if isinstance(encoder, torch.nn.Module) else None


def _tower(name: str) -> str:
    """Return the path of the list of layers that holds a module: its name up to the first number."""
    return re.split(r"\.\d+(?:\.|$)", name)[0]


def _tower_names(paths: Sequence[str]) -> list[str]:
    """Return short names for lists of layers: "self" for one, else the tower ("text", "vision", "audio")."""
    if len(paths) == 1:
        return ["self"]
    names = [next((name for mark, name in _TOWERS if mark in path), path) for path in paths]
    return names if len(set(names)) == len(names) else list(paths)
