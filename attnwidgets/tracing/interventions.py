"""Interventions in force: what changes a model's attention while `with` blocks run, and its undoing.

Every intervention is entered on a model. The first one switches the model to the attention function that
recording uses and takes its attention modules; the last one to leave puts everything back. They are applied
in the order in which they were entered, in plain calls, in recorded ones and in `generate()`, of the thread
and task that entered them (and of tasks started within): whoever else calls the model sees it as it was.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.attention_modules import Turns, sites
from attnwidgets.tracing.recording.attention_function import NAME, UnsupportedModelError, changers
from attnwidgets.tracing.recording.borrow import configs_of, held, implementation, unwrap
from attnwidgets.tracing.recording.call_scope import own_calls, own_implementation, own_uncompiled
from attnwidgets.tracing.recording.recorder import register
from attnwidgets.tracing.recording.twin import origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.tracing.attention_modules import AttentionModule

_LOGGER = logging.getLogger("attnwidgets")
# Models for which the log has named another caller, once each.
_told: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_ELSEWHERE = (
    "another thread or task calls this %s, and sees it without the interventions in force here (%s). To "
    "include a thread of yours, start it as "
    "Thread(target=contextvars.copy_context().run, args=(function, ...))."
)


@dataclass(frozen=True)
class Seen:
    """One attention call as an intervention sees it.

    Attributes:
        stack: Its stack.
        layer: Its layer.
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap and position_bias.
        first_query: Position of the first query in the text; above 0 where a cache holds what came before.
        first_key: Position of the first key; above 0 where a sliding window has left some behind.
        changed: Whether an intervention before this one changed the weights.
    """

    stack: str
    layer: int
    query: Tensor
    key: Tensor
    settings: Mapping[str, Any]
    first_query: int
    first_key: int
    changed: bool = False

    @cached_property
    def readable(self) -> Tensor:
        """Which keys a query may read [batch or 1, 1, query, key]."""
        mask = self.settings.get("mask")
        if mask is None:
            shape = (1, 1, self.query.shape[2], self.key.shape[2])
            return torch.ones(shape, dtype=torch.bool, device=self.query.device)
        return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2

    def queries(self, positions: frozenset[int] | None) -> list[int]:
        """Return which rows of the call are at some positions of the text."""
        places = range(self.query.shape[2])
        return [at for at in places if positions is None or at + self.first_query in positions]

    def keys(self, positions: frozenset[int]) -> list[int]:
        """Return which columns of the call are at some positions of the text."""
        return [at for at in range(self.key.shape[2]) if at + self.first_key in positions]


class Intervention:
    """A change of a model's attention, in force while its `with` block runs.

    It may be entered again after it was left, and beside others; `aw.interventions(model)` lists what is in
    force.

    Attributes:
        kind: What makes it ("ablate_heads").
        said: What it does, in words.
        where: Stack and layer of every attention that it changes.
    """

    def __init__(self, model: Any, kind: str, said: str, where: frozenset[tuple[str, int]]) -> None:
        self.kind, self.said, self.where = kind, said, where
        self._model = unwrap(getattr(model, "model", model) if hasattr(model, "stack_table") else model)
        self._entered: list[_Session] = []

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:  # noqa: ARG002 - what a kind overrides
        """Return weights [batch, head, query, key] to go on with."""
        return weights

    def write(self, seen: Seen, output: Tensor) -> Tensor:  # noqa: ARG002 - what a kind overrides
        """Return what the heads return, [batch, head, query, dim], to go on with."""
        return output

    def __enter__(self) -> Self:
        before = _session_of(self._model)
        if before is not None and any(one is self for one in before.active):
            raise RuntimeError(f"{self!r} is in force already; make another one with aw.{self.kind}.")
        session = before
        if session is None or session.owner != _here():
            # A task inherits what is in force where it was started, and changes nothing there.
            session = _Session(self._model, [] if before is None else [*before.active])
            session.begin()
            changers.set((*changers.get(), session))
        session.active.append(self)
        self._entered.append(session)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = next((one for one in reversed(self._entered) if one.owner == _here()), self._entered[-1])
        self._entered.remove(session)
        session.active = [one for one in session.active if one is not self]
        if len(session.active) == len(session.inherited):
            session.active = []
            changers.set(tuple(one for one in changers.get() if one is not session))
            session.end()

    def __repr__(self) -> str:
        return f"<{self.kind}: {self.said}>"


def _here() -> tuple[int, int]:
    """Return what tells this thread and task from others."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        task = None
    return threading.get_ident(), id(task)


def _session_of(model: nn.Module) -> _Session | None:
    own = origin(model)
    return next((one for one in reversed(_sessions()) if one.model is own), None)


def _sessions() -> list[_Session]:
    """Return the sessions that this thread and task is in, the innermost last."""
    # A task that was started inside of a `with` block remembers it after its end.
    return [one for one in changers.get() if isinstance(one, _Session) and one.active]


def interventions(model: Any = None) -> tuple[Intervention, ...]:
    """Return the interventions in force in this thread and task, in the order in which they are applied.

    Args:
        model: A model or a trace of one; None: on any model.
    """
    if model is None:
        models = dict.fromkeys(session.model for session in _sessions())
        return tuple(one for each in models for one in interventions(each))
    if hasattr(model, "stack_table"):
        model = model.model
    session = None if model is None else _session_of(unwrap(model))
    return () if session is None else tuple(session.active)


def said_of(model: Any) -> tuple[str, ...]:
    """Return what the interventions in force on a model do, in words."""
    return tuple(one.said for one in interventions(model))


def require_same_interventions(trace: Any, purpose: str) -> None:
    """Raise ValueError where a trace was recorded under other interventions than are in force now.

    What runs the model again would explain another model than the trace shows.
    """
    then, now = tuple(trace.interventions), said_of(trace.model)
    if then == now:
        return
    if then:
        message = (
            f"{purpose} runs the model again, and this trace was recorded with {'; '.join(then)}"
            f"{' and now there is ' + '; '.join(now) if now else ''}: call it inside of the same with block."
        )
    else:
        message = (
            f"{purpose} runs the model again, which is now changed ({'; '.join(now)}), and this trace was "
            "recorded before that: trace again inside of the with block (trace.rerun()), or call it outside."
        )
    raise ValueError(message)


class _Pass(threading.local):
    """Where a pass of a model is, in each thread that runs one."""

    def __init__(self) -> None:
        self.turns: Turns | None = None
        self.next: dict[int, int] = {}
        self.seen: Seen | None = None
        self.calls = 0
        self.running = False


@dataclass(eq=False)
class _Session:
    """One model with the interventions in force on it, for the calls of one thread and task.

    Args:
        model: The model.
        active: What is in force.
    """

    model: nn.Module
    active: list[Intervention]
    owner: tuple[int, int] = field(default_factory=_here)

    def __post_init__(self) -> None:
        self.inherited = tuple(self.active)
        self._table: dict[str, tuple[AttentionModule, ...]] = sites(self.model)
        self.modules = frozenset(site.module for own in self._table.values() for site in own)
        self._pass = _Pass()
        self._undo = ExitStack()
        self._own: Callable[[], bool] = bool

    def begin(self) -> None:
        """Switch the model for our own calls, and the twin of it that is borrowed here, if one is."""
        if any(one.model is not self.model and one.modules & self.modules for one in _sessions()):
            raise ValueError(
                f"parts of this {type(self.model).__name__} are changed through another model that holds "
                "them: enter all interventions with the same model."
            )
        if not configs_of(self.model):
            raise UnsupportedModelError(
                f"{type(self.model).__name__} has no configuration that says how it attends."
            )
        register()
        with ExitStack() as undo:
            self._own = undo.enter_context(own_calls())
            twin = held(self.model)
            for model in (self.model,) if twin is None else (self.model, twin):
                undo.callback(model.register_forward_pre_hook(self._before, with_kwargs=True).remove)
                undo.callback(model.register_forward_hook(self._after, with_kwargs=True).remove)
            if twin is not None:
                undo.enter_context(implementation(twin, NAME))
            undo.enter_context(own_uncompiled(self.model, self._own))
            undo.enter_context(own_implementation(configs_of(self.model), NAME, self._own))
            self._undo = undo.pop_all()

    def end(self) -> None:
        """Put everything back."""
        self._undo.close()

    def _before(self, model: nn.Module, *_: Any) -> None:
        if not self._own():
            if self.model not in _told:
                _told.add(self.model)
                _LOGGER.warning(_ELSEWHERE, type(model).__name__, "; ".join(one.said for one in self.active))
            return
        if _session_of(self.model) is self:
            now = self._pass
            now.turns = Turns(self._table)
            now.calls, now.running = 0, True

    def _after(self, model: nn.Module, *_: Any) -> None:
        if not self._own() or _session_of(self.model) is not self:
            return
        self._pass.running = False
        if not self._pass.calls:
            raise UnsupportedModelError(
                f"interventions do nothing in {type(model).__name__}: it computes attention outside "
                "transformers' attention interface."
            )

    def weigh(
        self, module: nn.Module, query: Tensor, key: Tensor, weights: Tensor, settings: dict[str, Any]
    ) -> Tensor:
        """Apply what changes weights, in order."""
        now = self._pass
        now.calls += 1
        now.turns = Turns(self._table) if now.turns is None else now.turns
        place = now.turns.of(module)
        if place is None:
            return weights
        stack, layer = place
        own = origin(module)
        if not now.running and sum(site.module is own for site in self._table[stack]) > 1:
            raise UnsupportedModelError(
                f"a block of {type(self.model).__name__} that is several layers was called by itself, so "
                "that an intervention cannot tell which it is."
            )
        first_query, first_key = self._positions(own, stack, query, key, settings)
        plain = weights
        for one in self.active:
            seen = Seen(
                stack, layer, query, key, settings, first_query, first_key, changed=weights is not plain
            )
            if (stack, layer) in one.where:
                weights = one.weigh(seen, weights)
        now.seen = Seen(stack, layer, query, key, settings, first_query, first_key)
        return weights

    def write(self, module: nn.Module, output: Tensor) -> Tensor:  # noqa: ARG002 - weigh was told of it
        """Apply what changes what heads return, in order."""
        seen, self._pass.seen = self._pass.seen, None
        if seen is not None:
            for one in self.active:
                if (seen.stack, seen.layer) in one.where:
                    output = one.write(seen, output)
        return output

    def _positions(
        self, module: nn.Module, stack: str, query: Tensor, key: Tensor, settings: Mapping[str, Any]
    ) -> tuple[int, int]:
        """Return the positions of a call's first query and first key in the text."""
        n_queries, n_keys = query.shape[2], key.shape[2]
        if stack == "cross":
            # The decoder's self-attention of the same layer came before and knows.
            return max(0, self._pass.next.get(-1, n_queries) - n_queries), 0
        first_query = first_key = 0
        if n_keys != n_queries:
            last = n_keys - 1
            mask = settings.get("mask")
            if mask is not None:
                # A cache of fixed size holds room for what is to come.
                read = Seen(stack, 0, query, key, settings, 0, 0).readable[..., -1, :].flatten(0, -2).any(0)
                last = int(read.nonzero().max()) if bool(read.any()) else last
            first_query = last + 1 - n_queries
            known = self._pass.next.get(id(module), 0)
            if known > first_query and last == n_keys - 1:
                # A sliding window has forgotten the first keys.
                first_query, first_key = known, known + n_queries - n_keys
        self._pass.next[id(module)] = first_query + n_queries
        if stack == "decoder":
            self._pass.next[-1] = first_query + n_queries
        return first_query, first_key
