"""Which layers, heads and tokens of a model an intervention is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, pick
from attnwidgets.tracing.attention_modules import sites
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from attnwidgets.tracing.attention_modules import AttentionModule


def sites_of(model: Any, stack: str | None) -> tuple[str, tuple[AttentionModule, ...]]:
    """Return a stack's name and its attention modules.

    Raises:
        ValueError: Where there is no such stack.
    """
    table = sites(model)
    if stack is None:
        preferred = (name for name in ("self", "encoder", "text") if name in table)
        stack = next(preferred, next(iter(table)))
    if stack not in table:
        raise ValueError(f"stack {stack!r} is not one of {listed(table)}.{suggest(stack, table)}")
    return stack, table[stack]


def chosen_heads(heads: Any, own: tuple[AttentionModule, ...]) -> dict[int, tuple[int, ...]]:
    """Return heads by layer.

    Args:
        heads: A pair (layer, head), several such pairs, or heads by layer: a number, several, or "all".
        own: The attention modules, one a layer.

    Raises:
        IndexError: Where there is no such layer or head.
        TypeError: Where that is not what `heads` is.
    """
    if isinstance(heads, Mapping):
        pairs = list(heads.items())
    else:
        several = [heads] if _is_pair(heads) else heads
        if isinstance(several, str) or not isinstance(several, Iterable):
            raise TypeError(_TAKEN.format(heads))
        pairs = list(several)
    found: dict[int, set[int]] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - layer and head
            raise TypeError(_TAKEN.format(heads))
        layer = pick(pair[0], range(len(own)), "layer")[0]
        found.setdefault(layer, set()).update(_heads(pair[1], own[layer], layer))
    return {layer: tuple(sorted(several)) for layer, several in sorted(found.items())}


_TAKEN = "heads must be (layer, head), a list of such pairs, or {{layer: heads}}, not {!r}."


def _is_pair(heads: Any) -> bool:
    return isinstance(heads, tuple) and bool(heads) and not isinstance(heads[0], tuple)


def _heads(wanted: Any, site: AttentionModule, layer: int) -> tuple[int, ...]:
    count = site.n_heads
    if isinstance(wanted, str):
        if wanted != "all":
            raise TypeError(_TAKEN.format({layer: wanted}))
        if count is None:
            raise ValueError(f"how many heads layer {layer} has is known from a trace only: pass a trace.")
        return tuple(range(count))
    if isinstance(wanted, (list, tuple, set, range)) and not wanted:
        return ()
    try:
        return pick(wanted, range(count if count is not None else 10**6), "head")
    except IndexError as error:
        raise IndexError(f"layer {layer}: {error}") from error


def some_layers(layers: Any, own: tuple[AttentionModule, ...]) -> tuple[int, ...]:
    """Return layers by number, several, a slice, or None for all."""
    return tuple(range(len(own))) if layers is None else pick(layers, range(len(own)), "layer")


def positions(tokens: Any, name: str, model: Any, stack: str, side: int) -> frozenset[int]:
    """Return positions of tokens.

    Args:
        tokens: A position, several, a range or a slice; negative ones count from the end, which takes a
            trace.
        name: Of the argument.
        model: A model, or a trace, which knows how many tokens there are.
        stack: Whose tokens.
        side: 0 for queries, 1 for keys.

    Raises:
        ValueError: Where a position is out of range.
        TypeError: Where it is none.
    """
    count = len(model.axes(stack)[side]) if isinstance(model, Trace) else None
    if isinstance(tokens, slice):
        if count is None and (tokens.stop is None or min(tokens.start or 0, tokens.stop) < 0):
            raise ValueError(f"{name}={tokens}: where a text ends is known from a trace only: pass a trace.")
        tokens = range(*tokens.indices(tokens.stop if count is None else count))
    several = tokens if isinstance(tokens, Iterable) and not isinstance(tokens, str) else [tokens]
    found = set()
    for one in several:
        if isinstance(one, (bool, str)) or not hasattr(one, "__index__"):
            raise TypeError(f"{name} takes positions of tokens (0, [3, 4], range(5, 9)), not {one!r}.")
        at = int(one.__index__())
        if (count is None and at < 0) or (count is not None and not -count <= at < count):
            ends = "0 or more (negative ones take a trace)" if count is None else f"0 to {count - 1}"
            raise ValueError(f"{name} has position {at}; there is {ends}.")
        found.add(at if count is None else at % count)
    return frozenset(found)


def spoken(numbers: Iterable[int]) -> str:
    """Return "3 to 7, 12" or the like."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def said_heads(heads: Mapping[int, tuple[int, ...]]) -> str:
    """Return "heads 1, 4 of layer 3" or the like."""
    layers: dict[tuple[int, ...], list[int]] = {}
    for layer, own in heads.items():
        if own:
            layers.setdefault(own, []).append(layer)
    parts = [
        f"head{'s' * (len(own) != 1)} {spoken(own)} of layer{'s' * (len(some) != 1)} {spoken(some)}"
        for own, some in layers.items()
    ]
    return " and ".join(parts) or "no head"
