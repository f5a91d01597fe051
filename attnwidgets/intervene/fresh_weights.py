"""Fresh weights for parts of a model, drawn by its initialiser without changing the model."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets._gradients import no_grad

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

# transformers does not initialise modules with this mark, which everything loaded from a checkpoint has.
_DONE = "_is_hf_initialized"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def redraw(model: nn.Module, parts: Mapping[int, str], seed: int) -> dict[int, Tensor]:
    """Return new values of some parameters by their id, on their device and in their precision.

    A twin of the model, with the same modules and separate parameters, is passed to the model's initialiser
    (`_init_weights` of the nearest transformers model around a module). Weights that it does not initialise
    are drawn from a normal distribution with the mean and standard deviation of the present weights.

    Args:
        model: The model; not changed.
        parts: The part that each parameter to draw belongs to, by the parameter's id. A part gets the same
            weights whatever else is drawn with it.
        seed: Seed of the draws, which are made on the CPU, so that devices agree.
    """
    values: dict[int, Tensor] = {}
    with torch.random.fork_rng(devices=[]), no_grad():
        for part in dict.fromkeys(parts.values()):
            torch.manual_seed(_seed_of(seed, part))
            ids = {key for key, name in parts.items() if name == part}
            twins: dict[int, nn.Parameter] = {}
            for module, owner in _children_first(_twin(model, ids, twins, {}), None):
                if owner is not None and not all(p.is_meta for p in module.parameters()):
                    owner._init_weights(module)  # noqa: SLF001 - there is no public method
            for name, parameter in model.named_parameters():
                if id(parameter) in ids:
                    fresh = twins[id(parameter)].detach()
                    if fresh.isnan().any():
                        fresh = _of_its_scale(parameter, name)
                    values[id(parameter)] = fresh.to(parameter.device, parameter.dtype)
    return values


def _seed_of(seed: int, part: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}/{part}".encode(), digest_size=7).digest(), "big")


def _twin(
    module: nn.Module, drawn_ids: set[int], twins: dict[int, nn.Parameter], seen: dict[int, nn.Module]
) -> nn.Module:
    """Return a copy of a module with separate parameters: NaN if they are to be drawn, else on "meta".

    Initialising a tensor on "meta" costs nothing and changes nothing.

    Args:
        module: The module; not changed.
        drawn_ids: Ids of the parameters to draw.
        twins: Parameters made so far, by the id of the original; updated.
        seen: Modules made so far, by the id of the original; updated.
    """
    if id(module) in seen:
        return seen[id(module)]
    twin: nn.Module = object.__new__(type(module))
    seen[id(module)] = twin
    state: dict[str, Any] = vars(twin)
    state.update(vars(module))
    state.pop(_DONE, None)
    state.update({hooks: OrderedDict() for hooks in _HOOKS})
    registered: dict[str, dict[str, Any]] = {
        name: dict(state[name]) for name in ("_parameters", "_buffers", "_modules")
    }
    state.update(registered)
    for name, parameter in registered["_parameters"].items():
        if parameter is not None:
            # A tied weight is drawn by its first module, as models are tied after initialisation.
            is_drawn = id(parameter) in drawn_ids and id(parameter) not in twins
            values = torch.full(
                parameter.shape, torch.nan, device="cpu" if is_drawn else "meta", dtype=torch.float32
            )
            registered["_parameters"][name] = nn.Parameter(values, requires_grad=False)
            twins.setdefault(id(parameter), registered["_parameters"][name])
    for name, buffer in registered["_buffers"].items():
        registered["_buffers"][name] = None if buffer is None else buffer.detach().clone()
    for name, child in registered["_modules"].items():
        registered["_modules"][name] = None if child is None else _twin(child, drawn_ids, twins, seen)
    return twin


def _children_first(module: nn.Module, owner: Any) -> Iterator[tuple[nn.Module, Any]]:
    """Yield every module after its children, with the nearest model around it that has an initialiser."""
    if hasattr(module, "_init_weights"):
        owner = module
    for child in module.children():
        yield from _children_first(child, owner)
    yield module, owner


def _of_its_scale(parameter: nn.Parameter, name: str) -> Tensor:
    """Return normal values with the mean and standard deviation of a weight."""
    weight = parameter.detach().to("cpu", torch.float32)
    if not weight.isfinite().all():
        raise ValueError(f"weight {name!r} has NaN or infinite values, so its scale is unknown.")
    noise = torch.randn(weight.shape, device="cpu", dtype=torch.float32)
    return weight.mean() + weight.std(correction=0) * noise
