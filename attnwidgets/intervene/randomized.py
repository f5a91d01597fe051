"""Randomised weights, layer by layer from the top or all: a control that explanations should depend on.

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
    """Randomise weights of a model while a `with` block runs, or in a copy.

    An explanation that looks the same on a model with random weights does not explain what the model learned.
    Weights are drawn by the model's initialiser (`_init_weights` of transformers); a weight that it
    does not initialise is drawn from a normal distribution with its mean and standard deviation::

        with aw.randomized(model):                # everything
            ...
        with aw.randomized(model, layers=4):      # from the top down to layer 4
            ...
        fresh = aw.randomized(model, copy=True)   # another model; yours is not changed

    Inside the block the model has these weights for every caller, also in other threads; use a copy if it has
    other callers.

    Args:
        model: A transformers model, or any module with a list of blocks.
        layers: "all"; "top", the last block; a number, from the top down to that block (negative ones count
            from the end); or several numbers, only those blocks.
        copy: Return a new model instead of a context manager.
        cascading: Whether a single number stands for all blocks from the top down to it; False randomises
            only that block (independent randomisation).
        embeddings: Whether parameters below the first block are randomised as well. None: with "all".
        head: Whether parameters above the last block (final norm, pooler, output layer) are randomised as
            well. None: with "all" and from the top down. An output layer tied to the embeddings belongs to
            the embeddings.
        stack: Which list of blocks, in models with several (encoder and decoder, towers).
        seed: Seed of the draws. A block gets the same weights whatever else is randomised, so that a longer
            cascade continues a shorter cascade.

    Returns:
        A context manager that yields the model and restores its weights, the very same tensors, on exit, even
        after an exception; with `copy=True`, the new model.

    Raises:
        ValueError: If chosen blocks share weights with others, weights are quantised or offloaded, the stack
            is unknown, or the model has no list of blocks.
        IndexError: If the block is out of range.
        TypeError: If `model` is not a model.

    Source: Adebayo et al. 2018, section 3.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> trace = aw.trace(model, tokenizer, "A moving and very funny film.")
        >>> with aw.randomized(model, layers="top"):
        ...     control = trace.rerun()
        >>> bool((control.logits == trace.logits).all())
        False
    """
    from attnwidgets.tracing.recording.borrow import unwrap

    inner = unwrap(model)
    if copy:
        model = copying.deepcopy(model)
        inner = unwrap(model)
    plan = _plan(inner, layers, cascading, embeddings, head, stack)
    if not copy:
        return _swap_weights(model, inner, plan, seed)
    from attnwidgets.intervene.fresh_weights import redraw

    values = redraw(inner, plan, seed)
    for parameter in inner.parameters():
        if id(parameter) in values:
            parameter.data = values[id(parameter)]
    return model


@contextmanager
def _swap_weights(model: Any, inner: nn.Module, plan: dict[int, str], seed: int) -> Iterator[Any]:
    """Replace the values of a plan's parameters while the block runs."""
    from attnwidgets.intervene.fresh_weights import redraw

    values = redraw(inner, plan, seed)
    # Parameters remain the same objects and keep their storage, so nothing has to be copied back.
    originals = [(parameter, parameter.data) for parameter in inner.parameters() if id(parameter) in values]
    try:
        for parameter, _ in originals:
            parameter.data = values[id(parameter)]
        yield model
    finally:
        for parameter, original in originals:
            parameter.data = original


@dataclass(frozen=True)
class _Location:
    """Location of a parameter relative to a list of blocks; a tied parameter may be in several blocks.

    Attributes:
        name: First name of the parameter.
        blocks: Numbers of the blocks that contain it.
        side: "below" or "above" the blocks; "" if it is in a block, or belongs to another list.
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
    """Return the part that every parameter to randomise belongs to, by the parameter's id."""
    from attnwidgets.tracing.anatomy.block_names import block_lists as stacks_of

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
    chosen_blocks = _block_numbers(model, layers, len(stacks[path]), cascading=cascading)
    whole = layers == "all"
    alone = not whole and not (layers == "top" or (isinstance(layers, int) and cascading))
    below = whole if embeddings is None else embeddings
    above = not alone if head is None else head
    chosen = {}
    for key, location in _locations(model, path).items():
        if location.blocks & chosen_blocks and not location.blocks <= chosen_blocks:
            shared = ", ".join(map(str, sorted(location.blocks)))
            raise ValueError(
                f"blocks {shared} share weight {location.name!r}: randomise all of them, or none."
            )
        if location.blocks & chosen_blocks:
            chosen[key] = f"{path}.{min(location.blocks)}"
        elif (location.side == "below" and below) or (location.side == "above" and above):
            chosen[key] = f"{location.side} {path}"
    _require_real(model, chosen)
    return chosen


def _stack(model: nn.Module, stacks: dict[str, Any], stack: str | None, layers: Any) -> str:
    if not stacks:
        raise ValueError(
            f"{type(model).__name__} has no list of attention blocks; aw.randomized(model) without layers, "
            "embeddings and head randomises all of it."
        )
    if stack is None and len(stacks) == 1:
        return next(iter(stacks))
    if stack is None:
        raise ValueError(f"layers={layers!r} needs stack: {type(model).__name__} has {listed(stacks)}.")
    fitting = [name for name in stacks if name == stack or stack in name.split(".")]
    if len(fitting) != 1:
        raise ValueError(f"stack {stack!r} is not one of {listed(stacks)}.{suggest(stack, stacks)}")
    return fitting[0]


def _block_numbers(model: nn.Module, layers: Any, n: int, *, cascading: bool) -> set[int]:
    """Return the numbers of the blocks to randomise."""
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
        shared = f"all {depth} layers share one block; pass layers='all' or 0."
        why = shared if n == 1 and depth != n else f"there {spoken(range(n), 'layer')}."
        raise IndexError(f"layers {layers!r}: {why}") from error
    return set(range(numbers[0], n)) if isinstance(layers, int) and cascading else set(numbers)


def _locations(model: nn.Module, path: str) -> dict[int, _Location]:
    """Return the location of every parameter, by its id."""
    from attnwidgets.tracing.anatomy.block_names import block_lists

    other_lists = tuple(f"{other}." for other in block_lists(model) if other != path)
    named = list(model.named_parameters(remove_duplicate=False))
    start = next(index for index, (name, _) in enumerate(named) if name.startswith(f"{path}."))
    locations: dict[int, _Location] = {}
    for index, (name, parameter) in enumerate(named):
        before = locations.get(id(parameter), _Location(name, frozenset(), ""))
        blocks, side = before.blocks, before.side
        if name.startswith(f"{path}."):
            blocks |= {int(name.removeprefix(f"{path}.").split(".")[0])}
        elif not name.startswith(other_lists):
            # Modules are declared from input to output; names identify the exceptions. A parameter that is
            # tied to a parameter below the blocks is below them.
            is_below = _EMBEDDING.search(name) or (index < start and not _FINAL.search(name))
            side = "below" if is_below or side == "below" else "above"
        locations[id(parameter)] = _Location(before.name, blocks, "" if blocks else side)
    return locations


def _require_real(model: nn.Module, chosen: dict[int, str]) -> None:
    """Raise ValueError if a weight is offloaded or quantised."""
    for name, parameter in model.named_parameters():
        if id(parameter) in chosen and (parameter.is_meta or not parameter.is_floating_point()):
            why = "offloaded" if parameter.is_meta else f"quantised ({parameter.dtype})"
            raise ValueError(f"weight {name!r} is {why}: load the model without that to randomise it.")
