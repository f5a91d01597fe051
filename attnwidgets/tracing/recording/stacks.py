"""Which stack a model's attention modules belong to: self, encoder, decoder, cross, or a tower."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from attnwidgets.tracing.recording.recorder import unpeft

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


class Named(Protocol):
    """An attention call or an attention module, with the module's name."""

    @property
    def name(self) -> str:
        """The module's name in the model."""


AnyNamed = TypeVar("AnyNamed", bound=Named)


def by_stack(model: nn.Module, calls: Sequence[AnyNamed]) -> dict[str, list[AnyNamed]]:
    """Return attention calls, or modules named like them, by the stack that they belong to, in order."""
    ids = {id(module): name for name, module in model.named_modules()}
    encoder = _encoder_of(unpeft(model))
    inside = (
        {ids[id(module)] for module in encoder.modules() if id(module) in ids}
        if encoder is not None
        else set()
    )
    stacks: dict[str, list[AnyNamed]] = {}
    outside = [call for call in calls if call.name not in inside]
    if encoder is not None and outside and len(outside) < len(calls):
        stacks = {"encoder": [], "decoder": [], "cross": []}
        for call in calls:
            tail = ".".join(call.name.split(".")[-3:])
            cross = call.name not in inside and bool(_CROSS.search(tail))
            stacks["encoder" if call.name in inside else "cross" if cross else "decoder"].append(call)
        return {name: members for name, members in stacks.items() if members}
    crossing = [
        call for call in calls if _CROSS.search(call.name.split(".")[-1]) or "crossattention" in call.name
    ]
    towers = list(dict.fromkeys(_tower(call.name) for call in calls))
    if (
        outside
        and len(outside) == len(calls)
        and crossing
        and len(crossing) < len(calls)
        and len(towers) == 1
    ):
        return {"decoder": [call for call in calls if call not in crossing], "cross": crossing}
    names = dict(zip(towers, _tower_names(towers), strict=True))
    for call in calls:
        own = "cross" if call in crossing and len(towers) > 1 else names[_tower(call.name)]
        stacks.setdefault(own, []).append(call)
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
