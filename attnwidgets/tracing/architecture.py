"""What a model's operations follow from, whatever its size and weights: by it verdicts are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def architecture(model: nn.Module) -> tuple[Any, ...]:
    """Return what a model's operations follow from: classes, and what its config chooses but sizes."""
    config: Any = getattr(model, "config", None)
    facts = config.to_dict() if hasattr(config, "to_dict") else {}
    return (
        type(model),
        frozenset(type(module) for module in model.modules()),
        tuple(sorted(_choices("", facts))),
    )


def _choices(prefix: str, facts: dict[str, Any]) -> list[tuple[str, str]]:
    ignored = (
        "name_or_path",
        "_name_or_path",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "architectures",
    )
    found: list[tuple[str, str]] = []
    for name, value in facts.items():
        if name in ignored or name.endswith(("id2label", "label2id")):
            continue
        if isinstance(value, dict):
            found += _choices(f"{prefix}{name}.", value)
        else:
            chosen = isinstance(value, (str, bool)) or value is None
            found.append((f"{prefix}{name}", str(value) if chosen else type(value).__name__))
    return found
