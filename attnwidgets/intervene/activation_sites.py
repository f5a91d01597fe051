"""The sites of a block whose activations are read and replaced: its input, its outputs, and its heads.

Sites other than heads are hook points (`points_of`). Outputs of heads are read and written where the
attention function returns them, as `Intervention.write` and `recording` do. `ActivationIntervention` replaces
activations of both kinds, `reading_activations` reads them.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._selecting import listed
from attnwidgets.tracing.anatomy.attention_modules import Turns, sites, tower_names
from attnwidgets.tracing.anatomy.block_names import block_lists
from attnwidgets.tracing.hooks.hook import Hook, PassWatch
from attnwidgets.tracing.hooks.hook_point import HookPoint, resolve_hook_point
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.layers import is_trace
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.module_calls import HIDDEN_DIMS
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor, nn

    from attnwidgets.tracing.interventions import Seen

    # activations [batch, token, width] (of heads [batch, head, token, dim]) and the positions of their tokens
    # [batch or 1, token] -> activations to continue with
    Change = Callable[[Tensor, Tensor], Tensor]

Site = Literal["state", "attention", "mlp", "head"]
SITES: tuple[Site, ...] = ("state", "attention", "mlp", "head")
"""The input of a block, the outputs of its attention and its MLP (as added to the residual stream), and
the outputs of its heads before the output projection."""

_HOOKS = {"state": "hook_resid_pre", "attention": "hook_attn_out", "mlp": "hook_mlp_out"}
_BLOCKS = {"self": "blocks", "encoder": "encoder", "decoder": "decoder"}


def site_of(
    model: nn.Module,
    site: Site,
    layer: int,
    stack: str,
    lists: Mapping[str, nn.ModuleList] | None = None,
) -> HookPoint:
    """Return the hook point of a site other than "head".

    Args:
        model: The model without wrappers.
        site: The site.
        layer: Number of the layer.
        stack: Name of the stack.
        lists: The model's lists of blocks (`block_lists`); computed if None.

    Raises:
        UnsupportedModelError: If the family of models is not described, or the stack lacks the sites.
    """
    lists = block_lists(model) if lists is None else lists
    if stack not in _BLOCKS:
        towers = dict(zip(tower_names(list(lists)), lists, strict=True))
        if stack not in towers:
            raise UnsupportedModelError(
                f"site {site!r} is not described for stack {stack!r}, only for "
                f"{', '.join(map(repr, [*_BLOCKS, *towers]))}. Site 'head' is available in every stack."
            )
        lists = {towers[stack]: lists[towers[stack]]}
    try:
        return resolve_hook_point(
            model, f"{_BLOCKS.get(stack, 'blocks')}.{layer}.{_HOOKS[site]}", lists=lists
        )
    except ValueError as error:
        raise UnsupportedModelError(f"site {site!r} of layer {layer} is not found: {error}") from error


def points_of(
    model: Any, sites_and_layers: Iterable[tuple[Site, int]], stack: str
) -> dict[tuple[Site, int], HookPoint]:
    """Return the hook points of sites in layers of a model, or of a trace's model; heads have none."""
    inner = unwrap(model.model if is_trace(model) else model)
    lists = block_lists(inner)
    try:
        return {
            (site, layer): site_of(inner, site, layer, stack, lists)
            for site, layer in sites_and_layers
            if site != "head"
        }
    except UnsupportedModelError as error:
        available = [site for site in SITES if _is_available(inner, site, stack, lists)]
        raise UnsupportedModelError(
            f"{str(error).rstrip('.')}. Known in this model: {listed(available)}; name them in sites=."
        ) from error


def _is_available(model: nn.Module, site: Site, stack: str, lists: Mapping[str, nn.ModuleList]) -> bool:
    """Return whether the first layer of a model has a hook point for a site."""
    try:
        return site == "head" or bool(site_of(model, site, 0, stack, lists))
    except UnsupportedModelError:
        return False


class ActivationIntervention(Intervention):
    """An intervention on activations at some sites and layers.

    Args:
        model: A model, or a trace.
        kind: Name of the public function that returns it.
        description: Its effect, in words.
        stack: Name of the stack.
        changes: Functions of the activations, by site and layer.
        points: Hook points of these sites; computed if None.
    """

    def __init__(
        self,
        model: Any,
        kind: str,
        description: str,
        stack: str,
        changes: Mapping[tuple[Site, int], Change],
        points: Mapping[tuple[Site, int], HookPoint] | None = None,
    ) -> None:
        super().__init__(model, kind, description, frozenset((stack, layer) for _, layer in changes))
        self._changes = dict(changes)
        points = points_of(self._model, changes, stack) if points is None else points
        self._points = {change: points[change] for change in changes if change[0] != "head"}

    def write(self, seen: Seen, output: Tensor) -> Tensor:
        """Return the outputs of heads to continue with."""
        change = self._changes.get(("head", seen.layer))
        if change is None:
            return output
        positions = torch.arange(output.shape[2], device=output.device) + seen.first_query
        return change(output, positions[None])

    @contextmanager
    def attach(self, model: nn.Module, own: Callable[[], bool]) -> Iterator[None]:
        """Hook a model, or a twin of it, for as long as the block runs."""
        with ExitStack() as undo:
            if self._points:
                watch = PassWatch(model, next(iter(self._points.values())), own)
                undo.callback(watch.remove)
                hook = _hooks(model, self._points.values(), undo, own)
                for site_and_layer, point in self._points.items():
                    hook(point, partial(_at_positions, self._changes[site_and_layer], watch))
            yield


def _at_positions(change: Change, watch: PassWatch, states: Tensor) -> Tensor:
    return change(states, watch.positions(states))


def _hooks(
    model: nn.Module, points: Iterable[HookPoint], undo: ExitStack, own: Callable[[], bool] = lambda: True
) -> Callable[[HookPoint, Callable[[Tensor], Tensor | None]], None]:
    """Return a function that hooks a point, so that every change sees states [batch, token, width].

    Some MLPs (OPT's) read the tokens of all texts as a single row: their states are reshaped to the axes of
    the block's input.
    """
    shape: list[int] = []

    def record_shape(states: Tensor) -> None:
        if states.dim() != HIDDEN_DIMS:
            raise UnsupportedModelError(
                f"the states of blocks of {type(model).__name__} are {list(states.shape)}, and not [batch, "
                "token, width]: activations there cannot be replaced."
            )
        shape[:] = states.shape[:-1]

    lists = tuple(block_lists(model))  # walks all modules: computed once, not for every point
    for module in {block_around(lists, point) for point in points}:
        undo.callback(Hook(model, HookPoint("block", module, "input"), record_shape, is_own=own).remove)

    def hook(point: HookPoint, change: Callable[[Tensor], Tensor | None]) -> None:
        def shaped(states: Tensor) -> Tensor | None:
            if states.dim() == len(shape) + 1:
                return change(states)
            changed = change(states.reshape(*shape, states.shape[-1]))
            return None if changed is None else changed.reshape(states.shape)

        undo.callback(Hook(model, point, shaped, is_own=own).remove)

    return hook


def block_around(lists: Iterable[str], point: HookPoint) -> str:
    """Return the path of the block that a hook point is in, or is, from the paths of lists of blocks."""
    path = next(path for path in lists if point.module.startswith(f"{path}."))
    return f"{path}.{point.module.removeprefix(f'{path}.').split('.')[0]}"


@contextmanager
def reading_activations(
    twin: nn.Module,
    model: Any,
    stack: str,
    points: Mapping[tuple[Site, int], HookPoint],
    heads: Iterable[int],
    record: Callable[[Site, int, Tensor], Tensor | None],
) -> Iterator[None]:
    """Call `record` with activations of a stack in every pass of a borrowed model, while the block runs.

    Args:
        twin: The borrowed model, which runs.
        model: The model or a trace, by which layers are counted.
        stack: Name of the stack.
        points: Hook points by site and layer, from `points_of`.
        heads: Layers whose heads are read.
        record: Takes site, layer and activations [batch, token, width], for heads [batch, head, token, dim];
            may return activations to continue with, except for heads.
    """
    head_layers = frozenset(heads)
    turns = Turns(sites(model))

    def listen(module: nn.Module, output: Tensor) -> None:
        turn = turns.of(module)
        if turn is not None and turn[0] == stack and turn[1] in head_layers:
            record("head", turn[1], output)

    with ExitStack() as undo:
        undo.callback(twin.register_forward_pre_hook(lambda *_: turns.start()).remove)
        hook = _hooks(twin, points.values(), undo)
        for (site, layer), point in points.items():
            hook(point, partial(record, site, layer))
        undo.enter_context(recording(twin, (), [listen]))
        yield
