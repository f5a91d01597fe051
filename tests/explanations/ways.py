"""Every way to make a map of context mixing, taken from the registry, and the traces it is tried on."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets.explanations.registry.registry import explain, methods
from tests.tracing.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.explanations.results.mixing_map import MixingMap

# Options that are tried of a method beside its defaults; a new method is tried with its defaults.
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "alti": [{"distance": "l2"}, {"rolled_out": True}, {"after": "norm2"}],
    "attention_norm": [
        *({"variant": variant} for variant in ("res", "res_ln", "enc")),
        {"per_head": True},
        {"variant": "res_ln", "normalize": "row"},
    ],
    "globenc": [{"normalize": "row"}],
    "hidden_token_attribution": [{"scope": "local", "normalize": False}],
    "rollout": [{"residual": None}, {"start_layer": 1}],
    "value_zeroing": [{"distance": "euclidean"}, {"normalize": False}],
}


@dataclass(frozen=True)
class Way:
    """A method with options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    def __call__(self, trace: Any, stack: str | None = None) -> MixingMap:
        """Return the map, not computed yet."""
        result: MixingMap = explain(trace, self.name, stack=stack, **self.options)
        return result


def ways(*, all_options: bool = True) -> list[Way]:
    """Return every registered method of this package that returns maps of a stack, with options to try."""
    maps = [
        method
        for method in methods()
        if method.kind == "map"
        and method.function.__module__.startswith("attnwidgets.")
        and "stack" in inspect.signature(method.function).parameters
    ]
    return [
        Way(method.name, options)
        for method in maps
        for options in [{}, *(_OPTIONS.get(method.name, []) if all_options else [])]
    ]


@functools.cache
def traced(family: str, dtype: torch.dtype = torch.float32) -> Any:
    """Return the trace of a family's tiny model, made once; nothing may change its model."""
    return FAMILIES[family].traced(dtype)


def served(trace: Any, way: Way) -> list[str]:
    """Return the stacks of a trace that a way serves."""
    return [stack for stack in trace.stacks if _serves(trace, way, stack)]


def _serves(trace: Any, way: Way, stack: str) -> bool:
    if methods()[way.name].refusal(trace, stack):
        return False
    # Options may narrow the traces that a method serves; nothing is computed yet.
    if way.options:
        try:
            way(trace, stack)
        except ValueError:
            return False
    return True


def apart(actual: Any, expected: Any) -> float:
    """Return the largest difference relative to the largest number."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    return float(np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-30))
