"""Weights drawn anew, layer by layer from the top or all: the control that every explanation should fail.

Adebayo et al. 2018, Sanity Checks for Saliency Maps, section 3 (cascading and independent randomisation).
"""

from __future__ import annotations

import copy as copying
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, pick, spoken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from torch import nn

    Layers = Literal["all", "top"] | int | Iterable[int]

PAPER = "Adebayo et al. 2018, Sanity Checks for Saliency Maps"

_FINAL = re.compile(r"final|(^|\.)ln_f\b|head|pooler|classifier", re.IGNORECASE)
_EMBEDDING = re.compile(r"embed|relative", re.IGNORECASE)


@overload
def randomized(
    model: Any,
    layers: Layers = "all",
    *,
    copy: Literal[False] = False,
    cascading: bool = True,
    embeddings: bool | None = None,
    head: bool | None = None,
    stack: str | None = None,
    seed: int = 0,
) -> AbstractContextManager[Any]: ...


@overload
def randomized(
    model: Any,
    layers: Layers = "all",
    *,
    copy: Literal[True],
    cascading: bool = True,
    embeddings: bool | None = None,
    head: bool | None = None,
    stack: str | None = None,
    seed: int = 0,
) -> Any: ...


def randomized(
    model: Any,
    layers: Layers = "all",
    *,
    copy: bool = False,
    cascading: bool = True,
    embeddings: bool | None = None,
    head: bool | None = None,
    stack: str | None = None,
    seed: int = 0,
) -> Any:
    """Draw weights of a model anew, for the length of a `with` block or in a copy.

    An explanation that looks the same on a model with random weights does not explain what was learned. The
    model's own initialiser draws (`_init_weights` of transformers); a weight it leaves alone is drawn from a
    normal distribution with the weight's mean and deviation::

        with aw.randomized(model):                # everything
            ...
        with aw.randomized(model, layers=4):      # from the top down to layer 4
            ...
        fresh = aw.randomized(model, copy=True)   # another model; yours is not touched

    Inside the block the model has these weights for every caller, also in other threads; where there are any,
    use a copy.

    Args:
        model: A transformers model, or any module with blocks in a list.
        layers: "all"; "top", the last block; a number, from the top down to that block (negative ones count
            from the end); or several numbers, those blocks alone.
        copy: Return a new model instead of a context manager.
        cascading: False draws only the block that a number names (independent randomisation).
        embeddings: Whether what lies below the first block is drawn as well. None: with "all".
        head: Whether what lies above the last block (final norm, pooler, output layer) is drawn as well.
            None: with "all" and from the top down. An output layer that is tied to the embeddings goes with
            the embeddings.
        stack: Which list of blocks, where a model has several (encoder and decoder, towers).
        seed: Of the draws. A block gets the same weights whatever is drawn with it, so that a cascade goes on
            where a shorter one ended.

    Returns:
        A context manager that yields the model and puts its weights back, the very same tensors, whatever
        happens inside; with `copy=True`, the new model.

    Raises:
        ValueError: For blocks that share their weights with others that are kept, quantised or offloaded
            weights, an unknown stack, or a model without a list of blocks.
        IndexError: Where there is no such block.
        TypeError: Where `model` is no model.

    Source: Adebayo et al. 2018, section 3.
    """
    from attnwidgets.tracing.recording.borrow import unwrap

    inner = unwrap(model)
    if copy:
        model = copying.deepcopy(model)
        inner = unwrap(model)
    plan = _plan(inner, layers, cascading, embeddings, head, stack)
    if not copy:
        return _swapped(model, inner, plan, seed)
    from attnwidgets.intervene.fresh_weights import redraw

    values = redraw(inner, plan, seed)
    for parameter in inner.parameters():
        if id(parameter) in values:
            parameter.data = values[id(parameter)]
    return model


@contextmanager
def _swapped(model: Any, inner: nn.Module, plan: dict[int, str], seed: int) -> Iterator[Any]:
    """Put other values behind the parameters of a plan, and theirs back."""
    from attnwidgets.intervene.fresh_weights import redraw

    values = redraw(inner, plan, seed)
    # The parameters stay the same objects and their storage is left alone: nothing is to be copied back.
    kept = [(parameter, parameter.data) for parameter in inner.parameters() if id(parameter) in values]
    try:
        for parameter, _ in kept:
            parameter.data = values[id(parameter)]
        yield model
    finally:
        for parameter, own in kept:
            parameter.data = own


@dataclass(frozen=True)
class _Place:
    """Where a parameter lies as seen from one list of blocks, by all names it goes by.

    Attributes:
        name: Its first name.
        blocks: The blocks that it is in.
        side: "below" or "above" them; "" where it is in one, or belongs to another list.
    """

    name: str
    blocks: frozenset[int]
    side: Literal["below", "above", ""]


def _plan(
    model: nn.Module,
    layers: Any,
    cascading: bool,
    embeddings: bool | None,
    head: bool | None,
    stack: str | None,
) -> dict[int, str]:
    """Return the part of every parameter that is to be drawn, by the parameter's id."""
    from attnwidgets.tracing.block_names import block_lists as stacks_of

    stacks = stacks_of(model)
    everything = layers == "all" and stack is None and embeddings is not False and head is not False
    if everything and len(stacks) != 1:
        chosen = {id(parameter): "around the blocks" for parameter in model.parameters()}
        for path, blocks in stacks.items():
            for number, block in enumerate(blocks):
                chosen |= {id(parameter): f"{path}.{number}" for parameter in block.parameters()}
        _require_real(model, chosen)
        return chosen
    path = _stack(model, stacks, stack, layers)
    wanted = _wanted(model, layers, len(stacks[path]), cascading=cascading)
    whole = layers == "all"
    alone = not whole and not (layers == "top" or (isinstance(layers, int) and cascading))
    below = whole if embeddings is None else embeddings
    above = not alone if head is None else head
    chosen = {}
    for key, place in _located(model, path).items():
        if place.blocks & wanted and not place.blocks <= wanted:
            shared = ", ".join(map(str, sorted(place.blocks)))
            raise ValueError(f"blocks {shared} share weight {place.name!r}: draw all of them, or none.")
        if place.blocks & wanted:
            chosen[key] = f"{path}.{min(place.blocks)}"
        elif (place.side == "below" and below) or (place.side == "above" and above):
            chosen[key] = f"{place.side} {path}"
    _require_real(model, chosen)
    return chosen


def _stack(model: nn.Module, stacks: dict[str, Any], stack: str | None, layers: Any) -> str:
    if not stacks:
        raise ValueError(
            f"{type(model).__name__} has no list of blocks that attend; aw.randomized(model) without layers, "
            "embeddings and head draws all of it."
        )
    if stack is None and len(stacks) == 1:
        return next(iter(stacks))
    if stack is None:
        raise ValueError(f"layers={layers!r} needs stack: {type(model).__name__} has {listed(stacks)}.")
    fitting = [name for name in stacks if name == stack or stack in name.split(".")]
    if len(fitting) != 1:
        raise ValueError(f"stack {stack!r} is not one of {listed(stacks)}.{suggest(stack, stacks)}")
    return fitting[0]


def _wanted(model: nn.Module, layers: Any, n: int, *, cascading: bool) -> set[int]:
    """Return the numbers of the blocks to draw."""
    if layers == "all":
        return set(range(n))
    if isinstance(layers, str):
        if layers != "top":
            near = suggest(layers, ("all", "top"))
            raise ValueError(f"layers {layers!r} is not 'all', 'top', a number or several.{near}")
        return {n - 1}
    try:
        numbers = pick(layers, tuple(range(n)), "layer")
    except IndexError as error:
        depth = getattr(getattr(model, "config", None), "num_hidden_layers", n)
        if n == 1 and depth != n:
            message = f"layers {layers!r}: all {depth} layers share one block; pass layers='all' or 0."
        else:
            message = f"layers {layers!r}: there {spoken(range(n), 'layer')}."
        raise IndexError(message) from error
    return set(range(numbers[0], n)) if isinstance(layers, int) and cascading else set(numbers)


def _located(model: nn.Module, path: str) -> dict[int, _Place]:
    """Return where every parameter lies, by its id."""
    from attnwidgets.tracing.block_names import block_lists

    others = tuple(f"{other}." for other in block_lists(model) if other != path)
    named = list(model.named_parameters(remove_duplicate=False))
    start = next(place for place, (name, _) in enumerate(named) if name.startswith(f"{path}."))
    found: dict[int, _Place] = {}
    for place, (name, parameter) in enumerate(named):
        before = found.get(id(parameter), _Place(name, frozenset(), ""))
        blocks, side = before.blocks, before.side
        if name.startswith(f"{path}."):
            blocks |= {int(name.removeprefix(f"{path}.").split(".")[0])}
        elif not name.startswith(others):
            # Modules are declared from the input to the output, except for what says by its name where it
            # belongs. What is tied to something below is below.
            low = _EMBEDDING.search(name) or (place < start and not _FINAL.search(name))
            side = "below" if low or side == "below" else "above"
        found[id(parameter)] = _Place(before.name, blocks, "" if blocks else side)
    return found


def _require_real(model: nn.Module, chosen: dict[int, str]) -> None:
    """Raise ValueError where a weight is not there in full precision."""
    for name, parameter in model.named_parameters():
        if id(parameter) in chosen and (parameter.is_meta or not parameter.is_floating_point()):
            why = "offloaded" if parameter.is_meta else f"quantised ({parameter.dtype})"
            raise ValueError(f"weight {name!r} is {why}: load the model without that to draw its weights.")
