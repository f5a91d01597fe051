"""Components of a model by name: heads and MLPs, as circuits are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import require_choice
from attnwidgets._selecting import pick

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

_FORM = '("head", layer, head) or ("mlp", layer)'


class Component(NamedTuple):
    """A head, an MLP, or an end of the model.

    Attributes:
        kind: "input" (the embeddings), "head", "mlp", or "output" (the last residual stream).
        layer: Number of the layer; -1 of the input, the number of layers of the output.
        head: Number of the head; None for others.
    """

    kind: str
    layer: int
    head: int | None = None

    def __str__(self) -> str:
        if self.kind == "head":
            return f"head {self.layer}.{self.head}"
        return f"MLP {self.layer}" if self.kind == "mlp" else self.kind


def component_of(given: Any, trace: Trace, stack: str) -> Component:
    """Return a component that a user named, checked.

    Raises:
        ValueError: If it has another form.
        IndexError: If the layer or head is out of range.
    """
    parts = tuple(given) if isinstance(given, (tuple, list)) else ()
    if not parts or len(parts) - (parts[-1] is None) != {"head": 3, "mlp": 2}.get(parts[0]):
        raise ValueError(f"{given!r} is not a component; a component is {_FORM}.")
    require_choice("component", parts[0], ("head", "mlp"))
    (layer,) = pick(parts[1], trace.layers(stack), "layer")
    if parts[0] == "mlp":
        return Component("mlp", layer)
    try:
        (head,) = pick(parts[2], range(trace.n_heads(stack, layer)), "head")
    except IndexError as error:
        raise IndexError(f"layer {layer}: {error}") from error
    return Component("head", layer, head)


def components(trace: Trace, stack: str) -> list[Component]:
    """Return all heads and MLPs, layer by layer."""
    return [
        part
        for layer in trace.layers(stack)
        for part in (
            *(Component("head", layer, head) for head in range(trace.n_heads(stack, layer))),
            Component("mlp", layer),
        )
    ]
