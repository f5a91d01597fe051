"""Hooks: read or replace the states at a hook point, in every call, with positions and ids of its tokens.

A `Hook` replaces states, `reading` returns them. States do not show which tokens they belong to, so a
`PassWatch` follows the arguments and caches of the same passes, from which it selects tokens by position.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets._errors import suggest
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import listed
from attnwidgets.tracing.anatomy.block_names import block_lists, word_embeddings
from attnwidgets.tracing.recording.cache import cache_given, cache_returned
from attnwidgets.tracing.recording.call_scope import own_method
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from attnwidgets.tracing.hooks.hook_point import HookPoint

    # states [batch, token, width] -> their replacement, or None to leave them
    Change = Callable[[Tensor], Tensor | None]
    Positions = int | slice | str | Iterable[int] | None

NAMED_POSITIONS = ("prompt", "generated", "last")
_TABLE = 2  # axes of ids, masks and positions [batch, token]


class _Reached(Exception):  # noqa: N818 - not an error: the rest of the pass is not needed
    """Ends a pass once its hook point has been reached."""


class Hook:
    """A hook at a hook point.

    Args:
        model: The model without wrappers.
        site: The hook point.
        change: Called with the states of every pass.
        first: Whether to run before other hooks of the module, so that they see the changed states.
        is_own: Returns whether to act on the current call; by default on every call, as for a twin.

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
        is_own: Callable[[], bool] = lambda: True,
    ) -> None:
        self.site = site
        self._own = is_own
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

    def store(states: Tensor) -> None:
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

    with hooked(model, site, store):
        yield read


class PassWatch:
    """Follows the passes of a model by hooks that change nothing.

    Without a cache, every pass of `generate()` reads the prompt again; its first pass tells how long that is.
    A state does not tell how many tokens are in it: they are counted, pass by pass.

    Args:
        model: The model, unwrapped.
        hook_point: The hook point whose tokens are selected.
        is_own: Returns whether the current call is to be followed.

    Attributes:
        calls: How often the blocks around the hook point have run.
    """

    def __init__(self, model: nn.Module, hook_point: HookPoint, is_own: Callable[[], bool]) -> None:
        self.calls = 0
        self._ids: Tensor | None = None
        self._positions: Tensor | None = None
        # Tokens before the pass, in each text, and after it [batch or 1, 1]; None if they are unknown.
        self._past: Tensor | None = None
        self._read: Tensor | None = None
        self._state: Any = None
        self._continues = False
        self._prompt: Tensor | None = None
        self._generating = False
        owner = model.get_submodule(_owner(model, hook_point))
        self._names = list(inspect.signature(owner.forward).parameters)
        self._own = is_own
        with ExitStack() as stack:
            stack.callback(owner.register_forward_pre_hook(self._begin, with_kwargs=True).remove)
            stack.callback(owner.register_forward_hook(self._end).remove)
            for table in word_embeddings(model):
                stack.callback(table.register_forward_pre_hook(self._embed).remove)
            if callable(getattr(model, "generate", None)):
                follow = functools.partial(functools.partial, self._generate)
                stack.enter_context(own_method(model, "generate", follow, is_own))
            self._undo = stack.pop_all()

    def remove(self) -> None:
        """Remove the hooks."""
        self._undo.close()

    def _generate(self, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `generate` and mark the passes in between as generation."""
        self._generating, self._prompt, self._state, self._read = True, None, None, None
        try:
            return generate(*args, **kwargs)
        finally:
            self._generating, self._prompt, self._state = False, None, None

    def _embed(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        if self._own() and args and isinstance(args[0], torch.Tensor) and not args[0].is_floating_point():
            self._ids = args[0]

    def _begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._own():
            return
        self.calls += 1
        inputs = dict(zip(self._names, args, strict=False)) | kwargs
        cache = cache_given(inputs)
        state = inputs.get("state") if cache is None else cache
        self._begin_after(state, _cache_length(cache))
        names = ("input_ids", "attention_mask", "position_ids")
        ids, mask, positions = (_table(inputs.get(name)) for name in names)
        if positions is None and mask is not None and not self._continues:
            positions = (mask.long().cumsum(-1) - 1).clamp_min(0)
        self._positions = positions
        self._ids = self._ids if ids is None else ids
        states = inputs.get("inputs_embeds") if ids is None else ids
        if positions is not None:
            self._read = positions.amax(-1, keepdim=True) + 1
        elif self._past is not None and isinstance(states, torch.Tensor):
            self._read = self._past + states.shape[1]
        else:
            self._read = None
        self._state = state

    def _end(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        if self._own():
            returned = cache_returned(output)
            state = getattr(output, "state", None) if returned is None else returned
            self._state = self._state if state is None else state

    def _begin_after(self, state: Any, length: int) -> None:
        """Note how many tokens are before a pass that is given a cache or another state."""
        is_followed = state is not None and (
            state is self._state or (self._generating and self._read is not None)
        )
        self._continues = bool(length) or is_followed or _is_used(state)
        if not self._continues or length:
            self._past = torch.tensor([[length]])
        else:
            self._past = self._read if is_followed else None

    def positions(self, states: Tensor) -> Tensor:
        """Return each token's position in its text [batch, token], not counting padding."""
        batch, tokens = states.shape[:2]
        recorded = self._positions
        if recorded is not None and recorded.shape[-1] == tokens and len(recorded) in (1, batch):
            return recorded.to(states.device).expand(batch, tokens)
        if self._past is None:
            raise UnsupportedModelError(
                "positions are unknown: the cache of this model does not tell how many tokens it holds, and "
                "was begun before the with block. Begin the text inside it, or pass use_cache=False."
            )
        past = self._past.to(states.device)
        return (past + torch.arange(tokens, device=states.device)).expand(batch, tokens)

    def chosen(self, states: Tensor, positions: Positions, skip: frozenset[int]) -> Tensor | None:
        """Return which tokens of a pass are selected [batch, token]; None for all of them.

        Args:
            states: States [batch, token, width].
            positions: See `attnwidgets.sae.steering.steer`.
            skip: Ids of tokens to exclude.

        Raises:
            ValueError: If ids are to be excluded, but the model was called with embeddings.
        """
        if positions is None and not skip:
            return None
        if states.dim() != _TABLE + 1:
            raise UnsupportedModelError(
                "positions and skip_special need states [batch, token, width]; here they are "
                f"{tuple(states.shape)}."
            )
        selected = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        if skip:
            if self._ids is None or self._ids.shape != selected.shape:
                raise ValueError(
                    "skip_special needs token ids, but this pass of the model was not given ids of that "
                    "shape; use positions= instead."
                )
            ids = self._ids.to(states.device)
            selected &= ~torch.isin(ids, torch.tensor(sorted(skip), device=states.device))
        return selected if positions is None else selected & self._at(states, positions)

    def _at(self, states: Tensor, positions: Positions) -> Tensor:
        token_positions = self.positions(states)
        new_text = not self._continues and not self._generating
        if new_text or self._prompt is None or len(self._prompt) not in (1, len(token_positions)):
            self._prompt = token_positions.max(dim=-1, keepdim=True).values + 1
        if positions == "last" and self._generating:
            return token_positions >= self._prompt - 1
        if positions == "last":
            last = torch.zeros_like(token_positions, dtype=torch.bool)
            last[:, -1] = True
            # Padding on the right: the last token is where positions are largest.
            return last if self._continues else token_positions == self._prompt - 1
        if positions in ("prompt", "generated"):
            return (
                token_positions < self._prompt if positions == "prompt" else token_positions >= self._prompt
            )
        if isinstance(positions, slice):
            return _within(token_positions, positions, self._prompt)
        numbers = [positions] if isinstance(positions, int) else list(positions or ())
        requested = torch.tensor(numbers, device=token_positions.device)
        counted = torch.where(requested < 0, requested + self._prompt, requested)
        return (token_positions[..., None] == counted[:, None, :]).any(-1)


def _within(positions: Tensor, bounds: slice, prompt: Tensor) -> Tensor:
    """Return which positions lie in a slice; its negative bounds count from the end of the prompt."""

    def end(value: int | None) -> Tensor | None:
        return None if value is None else prompt + value if value < 0 else torch.full_like(prompt, value)

    start, stop, step = end(bounds.start), end(bounds.stop), bounds.step or 1
    first = torch.zeros_like(prompt) if start is None else start
    inside = (positions >= first) & ((positions - first) % step == 0)
    return inside if stop is None else inside & (positions < stop)


def require_positions(positions: Any) -> None:
    """Raise ValueError or TypeError unless `positions` are valid for `aw.steer`."""
    if isinstance(positions, str):
        if positions not in NAMED_POSITIONS:
            raise ValueError(
                f"positions must be numbers, a slice or one of {listed(NAMED_POSITIONS)}, not "
                f"{positions!r}.{suggest(positions, NAMED_POSITIONS)}"
            )
        return
    if isinstance(positions, slice) and positions.step is not None and positions.step < 1:
        raise ValueError(f"positions: the step of a slice must be positive, not {positions.step}.")
    if positions is None or isinstance(positions, slice | int):
        return
    try:
        numbers = [int(number) for number in positions]
    except (TypeError, ValueError) as error:
        raise TypeError(f"positions must be numbers, a slice or a name, not {positions!r}.") from error
    if not numbers:
        raise ValueError("positions is empty: name at least one token.")


def _owner(model: nn.Module, hook_point: HookPoint) -> str:
    """Return the path of the module that runs the blocks around a hook point and receives the inputs."""
    inside = [path for path in block_lists(model) if hook_point.module.startswith(f"{path}.")]
    parts = hook_point.module.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts)))
    # Blocks that do not attend are in the outermost list.
    inside += [path for path in above if isinstance(model.get_submodule(path), torch.nn.ModuleList)]
    return (inside or [hook_point.module])[0].rpartition(".")[0]


def _is_used(state: Any) -> bool:
    """Return whether a cache, or another state, may hold states of earlier tokens."""
    layers = getattr(state, "layers", None)
    if layers is None:
        return state is not None
    past = (getattr(layer, "has_previous_state", None) for layer in layers)
    return any(isinstance(used, dict) and any(used.values()) for used in past)


def _cache_length(cache: Any) -> int:
    """Return the number of tokens in a cache; 0 if it is empty, or holds states that do not tell."""
    length: Callable[[], int] | None = getattr(cache, "get_seq_length", None)
    try:
        return int(length()) if callable(length) else 0
    except ValueError:  # of a cache without keys
        return 0


def _table(value: Any) -> Tensor | None:
    return value if isinstance(value, torch.Tensor) and value.dim() == _TABLE else None
