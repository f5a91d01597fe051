"""Hooks: read or replace the states at a hook point, in every call of the model."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from attnwidgets.tracing.hooks.hook_point import HookPoint

    # states [batch, token, width] -> their replacement, or None to leave them
    Change = Callable[[Tensor], Tensor | None]


class _Reached(Exception):  # noqa: N818 - not an error: the rest of the pass is not needed
    """Ends a pass once its hook point has been reached."""


class Hook:
    """A hook at a hook point.

    Args:
        model: The model without wrappers.
        site: The hook point.
        change: Called with the states of every pass.
        first: Whether to run before other hooks of the module, so that they see the changed states.
        own: Returns whether the current call is one to act on; by default all are, as for a twin.

    Attributes:
        passes: Number of passes so far.
    """

    def __init__(
        self,
        model: nn.Module,
        site: HookPoint,
        change: Change,
        *,
        first: bool = False,
        own: Callable[[], bool] = lambda: True,
    ) -> None:
        self.site = site
        self._own = own
        self.passes = 0
        self._change = change
        self._call = -1
        module = model.get_submodule(site.module)
        self._handles: list[RemovableHandle] = []
        if site.call is not None:
            self._handles.append(model.register_forward_pre_hook(self._start, prepend=first))
        self._handles.append(
            module.register_forward_pre_hook(self._before, with_kwargs=True, prepend=first)
            if site.side == "input"
            else module.register_forward_hook(self._after, prepend=first)
        )

    @property
    def said(self) -> str:
        """A description of the change with everything it depends on; "" if `change` has none."""
        return str(getattr(getattr(self._change, "__self__", None), "said", ""))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _start(self, *_: Any) -> None:
        if self._own():
            self._call = -1

    def _replaced(self, states: Tensor) -> Tensor:
        self._call += 1
        if self.site.call is not None and self.site.call != self._call:
            return states
        self.passes += 1
        changed = self._change(states)
        return states if changed is None else changed

    def _before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self._own():
            return None
        for index, value in enumerate(args):
            if _is_states(value):
                return (*args[:index], self._replaced(value), *args[index + 1 :]), kwargs
        for name in sorted(kwargs, key=lambda name: name != "hidden_states"):
            if _is_states(kwargs[name]):
                return args, kwargs | {name: self._replaced(kwargs[name])}
        raise UnsupportedModelError(
            f"site {self.site.name!r}: {type(module).__name__} receives no hidden states."
        )

    def _after(self, module: nn.Module, _: tuple[Any, ...], output: Any) -> Any:
        if not self._own():
            return None
        if _is_states(output):
            return self._replaced(output)
        if isinstance(output, (tuple, list)) and output and _is_states(output[0]):
            items = (self._replaced(output[0]), *output[1:])
            return output._make(items) if hasattr(output, "_make") else type(output)(items)
        raise UnsupportedModelError(
            f"site {self.site.name!r}: {type(module).__name__} returns {type(output).__name__}, not hidden "
            "states; name a module inside it."
        )


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1


@contextmanager
def hooked(model: nn.Module, site: HookPoint, change: Change, *, first: bool = False) -> Iterator[Hook]:
    """Apply `change` to the states at a hook point of a borrowed model; the hook is removed on exit."""
    hook = Hook(model, site, change, first=first)
    try:
        yield hook
    finally:
        hook.remove()


@contextmanager
def reading(model: nn.Module, site: HookPoint) -> Iterator[Callable[..., Tensor]]:
    """Yield a function that runs a borrowed model on inputs up to a hook point and returns the states there.

    The states are [batch, token, width], as the model computes them. The rest of the model does not run.

    Raises:
        UnsupportedModelError: If a pass does not reach the hook point.
    """
    seen: list[Tensor] = []

    def keep(states: Tensor) -> None:
        seen.append(states.detach())
        raise _Reached

    def read(**inputs: Any) -> Tensor:
        seen.clear()
        try:
            with no_grad():
                model(**inputs)
        except _Reached:
            return seen.pop()
        raise UnsupportedModelError(
            f"site {site.name!r}: a pass of {type(model).__name__} does not reach {site.module!r}."
        )

    with hooked(model, site, keep):
        yield read
