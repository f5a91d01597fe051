"""A model's architecture without its sizes and weights: the key under which verdicts about it are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

WRITTEN_ON_SAVING = frozenset(
    {"_name_or_path", "name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
)
"""Config entries that say where a model lies or how it was saved; the weights have their own dtype."""


def architecture(model: nn.Module) -> tuple[Any, ...]:
    """Return what determines a model's operations: its classes, and its config's choices except sizes."""
    config: Any = getattr(model, "config", None)
    facts = config.to_dict() if hasattr(config, "to_dict") else {}
    return (
        type(model),
        frozenset(type(module) for module in model.modules()),
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
