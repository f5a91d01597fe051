"""The places in a block whose activations are read and replaced: its input, what it adds, and its heads."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets.tracing.attention_modules import Turns, sites
from attnwidgets.tracing.hooks.hook import Hook
from attnwidgets.tracing.hooks.hook_point import resolve_hook_point
from attnwidgets.tracing.hooks.running_pass import PassWatch
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.layers import is_trace
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor, nn

    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.interventions import Seen

    # activations [batch, token, width] (of heads [batch, head, token, dim]) and the positions of their tokens
    # [batch or 1, token] -> activations to continue with
    Change = Callable[[Tensor, Tensor], Tensor]

Site = Literal["state", "attention", "mlp", "head"]
SITES: tuple[Site, ...] = ("state", "attention", "mlp", "head")
"""The input of a block, what its attention and its MLP add to the residual stream, and the outputs of its
heads before the output projection."""

_HOOKS = {"state": "hook_resid_pre", "attention": "hook_attn_out", "mlp": "hook_mlp_out"}
_BLOCKS = {"self": "blocks", "encoder": "encoder", "decoder": "decoder"}


def site_of(model: nn.Module, site: Site, layer: int, stack: str) -> HookPoint:
    """Return the hook point of a site other than "head".

    Raises:
        UnsupportedModelError: If the family of models is not described there, or the stack has no such sites.
    """
    if stack not in _BLOCKS:
        raise UnsupportedModelError(
            f"site {site!r} is not known of stack {stack!r}; it is of {', '.join(map(repr, _BLOCKS))}. "
            "Site 'head' is known of every stack."
        )
    try:
        return resolve_hook_point(model, f"{_BLOCKS[stack]}.{layer}.{_HOOKS[site]}")
    except ValueError as error:
        raise UnsupportedModelError(f"site {site!r} of layer {layer} is not found: {error}") from error


class ActivationIntervention(Intervention):
    """An intervention on the activations at one site, in some layers.

    Args:
        model: A model, or a trace of one.
        kind: Name of the public function that makes it.
        said: What it does, in words.
        stack: Name of the stack.
        site: The site.
        changes: What is done to the activations, by layer.
    """

    def __init__(
        self, model: Any, kind: str, said: str, stack: str, site: Site, changes: Mapping[int, Change]
    ) -> None:
        super().__init__(model, kind, said, frozenset((stack, layer) for layer in changes))
        self._changes = dict(changes)
        hooked = self._changes if site != "head" else {}
        self._points = {layer: site_of(self._model, site, layer, stack) for layer in hooked}
        self._at_heads = site == "head"

    def write(self, seen: Seen, output: Tensor) -> Tensor:
        """Return the outputs of heads to continue with."""
        if not self._at_heads:
            return output
        positions = torch.arange(output.shape[2], device=output.device) + seen.first_query
        return self._changes[seen.layer](output, positions[None])

    @contextmanager
    def attach(self, model: nn.Module, own: Callable[[], bool]) -> Iterator[None]:
        """Hook a model, or a twin of it, for as long as the block runs."""
        with ExitStack() as undo:
            watch: PassWatch | None = None
            for layer, point in self._points.items():
                if watch is None:
                    watch = PassWatch(model, point, own)
                    undo.callback(watch.remove)
                change = partial(_at_positions, self._changes[layer], watch)
                undo.callback(Hook(model, point, change, own=own).remove)
            yield


def _at_positions(change: Change, watch: PassWatch, states: Tensor) -> Tensor:
    return change(states, watch.positions(states))


@contextmanager
def reading_activations(
    twin: nn.Module,
    model: Any,
    stack: str,
    wanted: Iterable[tuple[Site, int]],
    keep: Callable[[Site, int, Tensor], Tensor | None],
) -> Iterator[None]:
    """Let `keep` see activations of a stack in every pass of a borrowed model, while the block runs.

    Args:
        twin: The borrowed model, which runs.
        model: The model, or a trace of one, by which layers are counted.
        stack: Name of the stack.
        wanted: Sites and layers.
        keep: Takes site, layer and activations [batch, token, width], for heads [batch, head, token, dim];
            may return what to continue with, except for heads.
    """
    wanted = set(wanted)
    table = sites(model)
    turns = Turns(table)

    def listen(module: nn.Module, output: Tensor) -> None:
        place = turns.of(module)
        if place is not None and place[0] == stack and ("head", place[1]) in wanted:
            keep("head", place[1], output)

    with ExitStack() as undo:
        undo.callback(twin.register_forward_pre_hook(lambda *_: turns.start()).remove)
        inner = unwrap(model.model if is_trace(model) else model)
        for site, layer in sorted(wanted):
            if site != "head":
                hook = Hook(twin, site_of(inner, site, layer, stack), partial(keep, site, layer))
                undo.callback(hook.remove)
        undo.enter_context(recording(twin, (), [listen]))
        yield
