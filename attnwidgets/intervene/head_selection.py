"""Interventions on chosen heads, and the selection of layers, heads and tokens."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, pick
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnwidgets.tracing.anatomy.attention_modules import AttentionModule
    from attnwidgets.tracing.interventions import Seen

    Change = Callable[[Seen, Tensor, list[int]], Tensor]


class HeadIntervention(Intervention):
    """An intervention on some heads of a stack.

    Args:
        model: A model, or a trace of one.
        kind: Name of the public function that makes it.
        said: What it does, in words.
        stack: Name of the stack.
        heads: Heads by layer.
        weigh: Takes a call, its weights [batch, head, query, key] and the layer's heads; returns new weights.
        write: The same for the outputs of heads [batch, head, query, dim].
    """

    def __init__(
        self,
        model: Any,
        kind: str,
        said: str,
        stack: str,
        heads: Mapping[int, Iterable[int]],
        *,
        weigh: Change | None = None,
        write: Change | None = None,
    ) -> None:
        self._heads = {layer: list(numbers) for layer, numbers in heads.items()}
        super().__init__(
            model, kind, said, frozenset((stack, layer) for layer in heads if self._heads[layer])
        )
        self._weigh, self._write = weigh, write

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
        """Return the attention weights to continue with."""
        return weights if self._weigh is None else self._changed(self._weigh, seen, weights)

    def write(self, seen: Seen, output: Tensor) -> Tensor:
        """Return the outputs of heads to continue with."""
        return output if self._write is None else self._changed(self._write, seen, output)

    def _changed(self, change: Change, seen: Seen, by_head: Tensor) -> Tensor:
        heads = self._heads[seen.layer]
        if heads[-1] >= by_head.shape[1]:
            raise IndexError(
                f"head {heads[-1]} does not exist in layer {seen.layer}, "
                f"which has heads 0 to {by_head.shape[1] - 1}."
            )
        return change(seen, by_head, heads)


def sites_of(model: Any, stack: str | None) -> tuple[str, Mapping[int, AttentionModule]]:
    """Return a stack's name and its attention modules by layer.

    Raises:
        ValueError: If the stack is unknown.
    """
    table = sites(model)
    if stack is None:
        preferred = (name for name in ("self", "encoder", "text") if name in table)
        stack = next(preferred, next(iter(table)))
    if stack not in table:
        raise ValueError(f"stack {stack!r} is not one of {listed(table)}.{suggest(stack, table)}")
    return stack, table[stack]


def chosen_heads(heads: Any, modules: Mapping[int, AttentionModule]) -> dict[int, tuple[int, ...]]:
    """Return heads by layer.

    Args:
        heads: A pair (layer, head), several such pairs, heads by layer (a number, several, or "all"), or None
            for all heads of all layers.
        modules: The attention modules by layer.

    Raises:
        IndexError: If the layer or head is out of range.
        TypeError: If `heads` has another form.
    """
    pairs = heads
    if heads is None:
        pairs = [(layer, "all") for layer in modules]
    elif isinstance(heads, Mapping):
        pairs = heads.items()
    elif isinstance(heads, tuple) and heads and not isinstance(heads[0], tuple):
        pairs = [heads]
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TypeError(_EXPECTED.format(heads))
    by_layer: dict[int, set[int]] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - layer and head
            raise TypeError(_EXPECTED.format(heads))
        layer = pick(pair[0], tuple(modules), "layer")[0]
        by_layer.setdefault(layer, set()).update(_heads(pair[1], modules[layer], layer))
    return {layer: tuple(sorted(numbers)) for layer, numbers in sorted(by_layer.items())}


_EXPECTED = "heads must be (layer, head), a list of such pairs, or {{layer: heads}}, not {!r}."


def _heads(wanted: Any, module: AttentionModule, layer: int) -> tuple[int, ...]:
    count = module.n_heads
    if isinstance(wanted, str):
        if wanted != "all":
            raise TypeError(_EXPECTED.format({layer: wanted}))
        if count is None:
            raise ValueError(
                f"the number of heads of layer {layer} is only known from a trace: pass a trace."
            )
        return tuple(range(count))
    if isinstance(wanted, (list, tuple, set, range)) and not wanted:
        return ()
    try:
        return pick(wanted, range(count if count is not None else 10**6), "head")
    except IndexError as error:
        raise IndexError(f"layer {layer}: {error}") from error


def some_layers(layers: Any, modules: Mapping[int, AttentionModule]) -> tuple[int, ...]:
    """Return the numbers of layers given by number, several numbers, a slice, or None for all."""
    return tuple(modules) if layers is None else pick(layers, tuple(modules), "layer")


def positions(tokens: Any, name: str, model: Any, stack: str, side: int) -> frozenset[int]:
    """Return positions of tokens.

    Args:
        tokens: A position, several, a range or a slice; negative ones count from the end and need a trace.
        name: Name of the argument, for messages.
        model: A model, or a trace, which knows the number of tokens.
        stack: Stack of the tokens.
        side: 0 for queries, 1 for keys.

    Raises:
        ValueError: If a position is out of range.
        TypeError: If `tokens` is not a position or several.
    """
    count = len(model.axes(stack)[side]) if isinstance(model, Trace) else None
    if isinstance(tokens, slice):
        if count is None and (tokens.stop is None or min(tokens.start or 0, tokens.stop) < 0):
            raise ValueError(
                f"{name}={tokens}: the end of the text is only known from a trace: pass a trace."
            )
        tokens = range(*tokens.indices(tokens.stop if count is None else count))
    items = tokens if isinstance(tokens, Iterable) and not isinstance(tokens, str) else [tokens]
    unique = set()
    for item in items:
        if isinstance(item, (bool, str)) or not hasattr(item, "__index__"):
            raise TypeError(f"{name} must be positions of tokens (0, [3, 4], range(5, 9)), not {item!r}.")
        position = operator.index(item)
        if (count is None and position < 0) or (count is not None and not -count <= position < count):
            allowed = "0 or more (negative ones need a trace)" if count is None else f"0 to {count - 1}"
            raise ValueError(f"{name} has position {position}; allowed are {allowed}.")
        unique.add(position if count is None else position % count)
    return frozenset(unique)


def spoken(numbers: Iterable[int]) -> str:
    """Return "3 to 7, 12" or the like."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def describe_heads(heads: Mapping[int, tuple[int, ...]]) -> str:
    """Return "heads 1, 4 of layer 3" or the like."""
    layers: dict[tuple[int, ...], list[int]] = {}
    for layer, numbers in heads.items():
        if numbers:
            layers.setdefault(numbers, []).append(layer)
    parts = [
        f"head{'s' * (len(numbers) != 1)} {spoken(numbers)} of layer{'s' * (len(some) != 1)} {spoken(some)}"
        for numbers, some in layers.items()
    ]
    return " and ".join(parts) or "no head"
