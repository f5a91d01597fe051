"""The state of a model that decides its answers: weights, attributes of modules, hooks, adapters."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from torch import nn

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_LONGEST = 64
"""Entries of a list or mapping up to which it is treated as an option rather than for data."""
_SAMPLES = 16.618
"""Numbers of a parameter that are compared; not whole, so that their columns differ in a matrix of 2^n."""


@functools.cache
def _left_out() -> frozenset[str]:
    """Return the attributes of a module that are not options."""
    from torch import nn

    # Every module has weights, hooks, and whether it trains, which a twin never does. transformers sets the
    # others as it loads or saves a model.
    return frozenset(vars(nn.Module())) | {
        *("name_or_path", "all_tied_weights_keys", "kernel_config", "_is_hf_initialized")
    }


def options_of(module: nn.Module) -> tuple[tuple[str, str], ...]:
    """Return a module's options by name: its numbers and strings, and lists and mappings of these.

    An adapter's scaling, a norm's epsilon, which adapter is active, that a layer is causal.
    """
    left_out = _left_out()
    values = [(name, value) for name, value in vars(module).items() if name not in left_out]
    if values and hasattr(type(module), "config_class"):
        values = [(name, value) for name, value in values if not name.startswith("_")]
    return tuple(
        [
            (name, repr(sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value))
            for name, value in values
            if type(value) in _PLAIN or _is_short(value)
        ]
    )


def _is_short(value: Any) -> bool:
    """Return whether a value is a short list or mapping of numbers and strings."""
    if not isinstance(value, (dict, list, tuple, set, frozenset)) or len(value) > _LONGEST:
        return False
    parts = (*value, *value.values()) if isinstance(value, dict) else value
    return all(type(part) in _PLAIN for part in parts)


def hooks_in(module: nn.Module) -> Iterator[Any]:
    """Yield the hooks on a module that may change its numbers: those of transformers only capture outputs."""
    for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):  # noqa: SLF001 - torch has no other way
        if not str(getattr(hook, "__module__", "")).startswith("transformers."):
            yield hook


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model by name, each once, in the order of its `named_modules()`.

    That nests a generator for every level of the model, and passes each module through all of them.
    """
    modules: dict[nn.Module, str] = {}
    waiting = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if module not in modules:
            modules[module] = name
            children = module._modules.items()  # noqa: SLF001 - `named_children()` is a generator as well
            prefix = f"{name}." if name else ""
            waiting += [(prefix + child, part) for child, part in children if part is not None][::-1]
    return {name: module for module, name in modules.items()}


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model, each once, in the order of its `modules()`; see `named_modules`."""
    return list(named_modules(model).values())


def state_of(model: nn.Module) -> int:
    """Return a number that changes with everything in a model that may change its answers, in this session.

    Weights count as in `weights_of`.
    """
    modules = modules_of(model)
    return hash((tuple(map(_state_of_module, modules)), _weights(modules)))


def weights_of(model: nn.Module) -> int:
    """Return a number that changes with the parameters of a model or block, in this session.

    They count by their address, by how often they were written to, and by some of their numbers: writing to
    `weight.data` counts nowhere. All numbers would take as long as a pass.
    """
    return hash(_weights(modules_of(model)))


def _weights(modules: list[nn.Module]) -> tuple[Any, ...]:
    writes = tuple(_writes(tensor) for module in modules for tensor in module._parameters.values())  # noqa: SLF001
    return writes, _samples(modules)


def _writes(tensor: torch.Tensor | None) -> tuple[int, int] | None:
    """Return the address of a tensor, and how often it was written to; None without an address."""
    if tensor is None or tensor.is_meta:
        return None
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch has no public name


def _samples(modules: list[nn.Module]) -> tuple[bytes, ...]:
    """Return a few numbers of every parameter, evenly spaced, by device and precision."""
    import torch

    by_kind: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for module in modules:
        for tensor in module._parameters.values():  # noqa: SLF001 - `parameters()` walks again
            # Other classes, of quantised weights, may not be indexed like tensors.
            if tensor is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                continue
            count = tensor.numel()
            if tensor.is_meta or not count:
                continue
            if tensor.is_contiguous():
                step = max(1, int(count / _SAMPLES))
                # A slice of the flattened tensor takes three times as long.
                values = tensor.detach().as_strided((-(-count // step),), (step,))
            else:
                values = tensor.detach().select(0, 0).flatten()
                values = values[:: max(1, int(len(values) / _SAMPLES))]
            by_kind.setdefault((tensor.device, tensor.dtype), []).append(values)
    return tuple(bytes(torch.cat(parts).view(torch.uint8).cpu().numpy()) for parts in by_kind.values())


def _state_of_module(module: nn.Module) -> tuple[Any, ...]:
    # One walk over the model: this is computed in every trace.
    return (
        id(type(module)),
        id(vars(module).get("forward")),
        options_of(module),
        # Hooks of this package are those of interventions, which traces record.
        tuple(id(hook) for hook in hooks_in(module) if not _is_ours(hook)),
        tuple((name, id(child)) for name, child in module._modules.items()),  # noqa: SLF001
        tuple(map(_writes, module._buffers.values())),  # noqa: SLF001 - `buffers()` walks again
    )


def _is_ours(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("attnwidgets.")


WRITTEN_ON_SAVING = frozenset(
    {"_name_or_path", "name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
)
"""Config entries that say where a model lies or how it was saved; the weights have their own dtype."""


def architecture(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> tuple[Any, ...]:
    """Return a key of a model's operations: its classes, and its config's choices except sizes.

    `modules` are those of the model, if they are listed already.
    """
    config: Any = getattr(model, "config", None)
    facts = config.to_dict() if hasattr(config, "to_dict") else {}
    return (
        type(model),
        frozenset(map(type, modules_of(model) if modules is None else modules)),
        tuple(sorted(_choices("", facts))),
    )


def _choices(prefix: str, facts: dict[Any, Any]) -> list[tuple[str, str]]:
    choices: list[tuple[str, str]] = []
    for name, value in facts.items():
        if name in WRITTEN_ON_SAVING or str(name).endswith(("id2label", "label2id")):
            continue
        if isinstance(value, dict):
            choices += _choices(f"{prefix}{name}.", value)
        else:
            is_choice = isinstance(value, (str, bool)) or value is None
            choices.append((f"{prefix}{name}", str(value) if is_choice else type(value).__name__))
    return choices
