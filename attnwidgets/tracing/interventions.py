"""Interventions: changes of a model's computation that are in force while `with` blocks run.

Every intervention is entered on a model. The first intervention switches the model to the attention function
that recording uses; the exit of the last restores everything. They are applied in the order in which they
were entered, in plain calls, recorded calls and `generate()`, of the thread and task that entered them (and
of tasks started within): other callers see the model unchanged. A `Session` holds the interventions on a
model for these callers; the attention function passes it weights (`weigh`) and head outputs (`write`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.anatomy.attention_modules import Turns, sites
from attnwidgets.tracing.layers import is_trace
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.recording.attention_function import NAME, allowed, changers, read_at_all
from attnwidgets.tracing.recording.borrow import configs_of, current_twin, implementation, origin, unwrap
from attnwidgets.tracing.recording.call_scope import own_calls, own_implementation, own_uncompiled
from attnwidgets.tracing.recording.following import following, is_on_interface, is_outside
from attnwidgets.tracing.recording.recorder import register
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.tracing.anatomy.attention_modules import AttentionModule
    from attnwidgets.tracing.recording.attention_function import Scored

_LOGGER = logging.getLogger("attnwidgets")
# Models whose other callers have been warned about, once each.
_warned: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_OTHER_CALLER = (
    "another thread or task calls this %s, without the interventions in force here (%s). To "
    "include a thread of yours, start it as "
    "Thread(target=contextvars.copy_context().run, args=(function, ...))."
)


@dataclass(frozen=True)
class Seen:
    """An attention call as an intervention sees it.

    Attributes:
        stack: Its stack.
        layer: Its layer.
        weights: [batch, head, query, key], before any intervention.
        scored: The inputs of its scores; None where the module computes them itself.
        first_query: Position of the first query in the text; above 0 if a cache holds earlier tokens.
        first_key: Position of the first key; above 0 if a sliding window has dropped earlier keys.
        changed: Whether an earlier intervention changed the weights.
    """

    stack: str
    layer: int
    weights: Tensor
    scored: Scored | None
    first_query: int
    first_key: int
    changed: bool = False

    @cached_property
    def readable(self) -> Tensor:
        """True for every key that a query may read [batch or 1, 1, query, key]."""
        if self.scored is None:
            return read_at_all(self.weights)
        return allowed(self.scored.settings.get("mask"), self.weights.shape, self.weights.device)

    def queries(self, positions: frozenset[int] | None) -> list[int]:
        """Return the rows of the call that are at some positions of the text."""
        rows = range(self.weights.shape[2])
        return [row for row in rows if positions is None or row + self.first_query in positions]

    def keys(self, positions: frozenset[int]) -> list[int]:
        """Return the columns of the call that are at some positions of the text."""
        return [column for column in range(self.weights.shape[3]) if column + self.first_key in positions]


class Intervention:
    """A change of a model's computation, in force while its `with` block runs.

    It can be entered again after its block has ended, and together with others; `aw.interventions(model)`
    lists those in force.

    Attributes:
        kind: Name of the function that returns it ("ablate_heads").
        said: A description of its effect.
        where: Stack and layer of every block that it changes something in.
        table: The attention modules by stack and layer, of the model or trace that it was created with: a
            trace has the modules that its pass ran, and a model alone may count others.
        adds: Number of tokens that it appends in these stacks.
    """

    adds = 0

    def __init__(
        self,
        model: Any,
        kind: str,
        said: str,
        where: frozenset[tuple[str, int]],
        table: Mapping[str, Mapping[int, AttentionModule]] | None = None,
    ) -> None:
        self.kind, self.said, self.where = kind, said, where
        self.table = sites(model) if table is None else table
        self._model = unwrap(model.model if is_trace(model) else model)
        self._entered: list[tuple[Session, ExitStack]] = []

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:  # noqa: ARG002 - subclasses override it
        """Return the weights [batch, head, query, key] that the call continues with."""
        return weights

    def write(self, seen: Seen, output: Tensor) -> Tensor:  # noqa: ARG002 - subclasses override it
        """Return the head outputs [batch, head, query, dim] that the call continues with."""
        return output

    @property
    def acts_in_attention(self) -> bool:
        """Whether a pass must call attention, for the intervention to have an effect."""
        return type(self).attach is Intervention.attach

    @property
    def must_apply(self) -> bool:
        """Whether a pass in which it changes nothing is an error."""
        return bool(self.where) and self.acts_in_attention

    def attach(
        self,
        model: nn.Module,  # noqa: ARG002 - subclasses override it
        own: Callable[[], bool],  # noqa: ARG002
    ) -> AbstractContextManager[Any]:
        """Return a context in which a model, or a twin of it, has the hooks that act outside attention.

        `own` returns whether the intervention is in force for the call that a hook sees.
        """
        return nullcontext()

    def __enter__(self) -> Self:
        before = session_of(self._model)
        if before is not None and any(active is self for active in before.active):
            raise RuntimeError(f"{self!r} is in force already; make another one with aw.{self.kind}.")
        session = before
        if session is None or session.owner != _caller_ids():
            # A task inherits the interventions of its parent, and does not change the parent's session.
            session = Session(self._model, [] if before is None else [*before.active])
        with ExitStack() as hooks:
            for model in session.models():
                hooks.enter_context(self.attach(model, partial(self._acts, session)))
            session.include(self)
            if session is not before:
                session.begin()
                changers.set((*changers.get(), session))
            session.active.append(self)
            self._entered.append((session, hooks.pop_all()))
        return self

    def _acts(self, session: Session) -> bool:
        """Return whether a call is under the session that entered this intervention, or inherited it."""
        current = session_of(self._model)
        if current is None or not any(active is self for active in current.active):
            return False
        return current is session or any(active is self for active in current.inherited)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entries = (entry for entry in reversed(self._entered) if entry[0].owner == _caller_ids())
        entry = next(entries, self._entered[-1])
        self._entered.remove(entry)
        session, hooks = entry
        hooks.close()
        session.active = [active for active in session.active if active is not self]
        if len(session.active) == len(session.inherited):
            session.active = []
            changers.set(tuple(changer for changer in changers.get() if changer is not session))
            session.end()

    def __repr__(self) -> str:
        return f"<{self.kind}: {self.said}>"


def _caller_ids() -> tuple[int, int]:
    """Return ids that identify this thread and task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        task = None
    return threading.get_ident(), id(task)


def session_of(model: nn.Module) -> Session | None:
    """Return the innermost session of a model in this thread and task; None without one."""
    original = origin(model)
    return next((session for session in reversed(_sessions()) if session.model is original), None)


def _sessions() -> list[Session]:
    """Return the sessions that this thread and task is in, the innermost last."""
    # A task that was started inside a `with` block inherits its session, also after the block has ended.
    return [session for session in changers.get() if session.active]


def interventions(model: Any = None) -> tuple[Intervention, ...]:
    """Return the interventions in force in this thread and task, in the order in which they are applied.

    Args:
        model: A model or a trace; None means any model.

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> with aw.ablate_heads(model, {3: [1, 4]}):
        ...     [intervention.kind for intervention in aw.interventions(model)]
        ['ablate_heads']
        >>> aw.interventions(model)
        ()
    """
    if model is None:
        models = dict.fromkeys(session.model for session in _sessions())
        return tuple(intervention for inner in models for intervention in interventions(inner))
    if is_trace(model):
        model = model.model
    session = session_of(unwrap(model)) if model is not None and changers.get() else None
    return () if session is None else tuple(session.active)


def said_of(model: Any) -> tuple[str, ...]:
    """Return descriptions of the interventions in force on a model."""
    return tuple(intervention.said for intervention in interventions(model))


def added_to(model: Any, stack: str) -> int:
    """Return the number of tokens that the interventions in force on a model append to a stack's."""
    return sum(
        intervention.adds
        for intervention in interventions(model)
        if intervention.adds and any(changed_stack == stack for changed_stack, _ in intervention.where)
    )


def require_same_interventions(trace: Any, purpose: str) -> None:
    """Raise ValueError if the interventions in force are not those under which a trace was recorded.

    Running the model again would explain another model than the trace's.
    """
    recorded, current = tuple(trace.interventions), said_of(trace.model)
    if recorded == current:
        return
    if recorded:
        raise ValueError(
            f"{purpose} runs the model again, and this trace was recorded with {'; '.join(recorded)}"
            f"{', while now there is ' + '; '.join(current) if current else ''}: call it inside the same "
            "with block."
        )
    raise ValueError(
        f"{purpose} runs the model again, which is now changed ({'; '.join(current)}), and this trace was "
        "recorded before that: trace again inside the with block (trace.rerun()), or call it outside."
    )


class _Pass(threading.local):
    """The progress of a pass of a model, in each thread that runs one."""

    def __init__(self) -> None:
        self.turns: dict[Intervention, Turns] = {}
        self.next: dict[int, int] = {}
        self.seen: list[tuple[Intervention, Seen]] = []
        self.calls = 0
        self.running = False


@dataclass(eq=False)
class Session:
    """A model with the interventions in force on it, for the calls of one thread and task.

    Args:
        model: The model.
        active: The interventions in force.
    """

    model: nn.Module
    active: list[Intervention]
    owner: tuple[int, int] = field(default_factory=_caller_ids)

    def __post_init__(self) -> None:
        self.inherited = tuple(self.active)
        self.modules: set[nn.Module] = set()
        self._unapplied: set[Intervention] = set()
        for intervention in self.active:
            self.include(intervention)
        self._pass = _Pass()
        self._undo = ExitStack()
        self._own: Callable[[], bool] = bool

    def include(self, intervention: Intervention) -> None:
        """Add the modules of an intervention that is about to be in force."""
        self.modules.update(part.module for parts in intervention.table.values() for part in parts.values())
        if intervention.must_apply:
            self._unapplied.add(intervention)

    def note_applied(self, intervention: Intervention) -> None:
        """Note that an intervention changed something."""
        self._unapplied.discard(intervention)

    def models(self) -> tuple[nn.Module, ...]:
        """Return the model, and its twin that is borrowed in this thread and task, if any."""
        twin = current_twin(self.model)
        return (self.model,) if twin is None else (self.model, twin)

    def begin(self) -> None:
        """Switch the model, and its twin if it is borrowed, for the calls of this thread and task."""
        if any(session.model is not self.model and session.modules & self.modules for session in _sessions()):
            raise ValueError(
                f"parts of this {type(self.model).__name__} are changed through another model that holds "
                "them: enter all interventions with the same model."
            )
        modules = modules_of(self.model)
        configs = configs_of(modules)
        if not configs:
            raise UnsupportedModelError(
                f"{type(self.model).__name__} has no configuration that names its attention implementation."
            )
        register()
        with ExitStack() as undo:
            self._own = undo.enter_context(own_calls())
            for model in self.models():
                undo.callback(model.register_forward_pre_hook(self._before, with_kwargs=True).remove)
                undo.callback(model.register_forward_hook(self._after, with_kwargs=True).remove)
            for twin in self.models()[1:] if is_on_interface(modules) else ():
                undo.enter_context(implementation(twin, NAME))
            undo.enter_context(own_uncompiled(self.model, self._own))
            if is_on_interface(modules):
                undo.enter_context(own_implementation(configs, NAME, self._own))
            if is_outside(modules):
                undo.enter_context(following(self.modules, self._own))
            self._undo = undo.pop_all()

    def end(self) -> None:
        """Restore the model."""
        self._undo.close()

    def _before(self, model: nn.Module, *_: Any) -> None:
        if not self._own():
            if self.model not in _warned:
                _warned.add(self.model)
                _LOGGER.warning(
                    _OTHER_CALLER, type(model).__name__, "; ".join(active.said for active in self.active)
                )
            return
        if session_of(self.model) is self:
            current = self._pass
            current.turns.clear()
            current.calls, current.running = 0, True

    def _after(self, model: nn.Module, *_: Any) -> None:
        if not self._own() or session_of(self.model) is not self:
            return
        self._pass.running = False
        if not self._pass.calls and any(active.acts_in_attention for active in self.active):
            raise UnsupportedModelError(
                f"interventions have no effect on {type(model).__name__}: it computes attention outside "
                "transformers' attention interface, and no softmax of it meets values over its tokens."
            )
        for intervention in self.active:
            if intervention in self._unapplied:
                missed = ", ".join(
                    f"layer {layer} of {stack!r}" for stack, layer in sorted(intervention.where)
                )
                raise ValueError(
                    f"{intervention.kind} has no effect here ({intervention.said}): this pass of "
                    f"{type(model).__name__} did not run {missed}. Make it with a trace of "
                    f"such an input, which knows what runs: aw.{intervention.kind}(trace, ...)."
                )

    def weigh(self, module: nn.Module, weights: Tensor, scored: Scored | None = None) -> Tensor:
        """Apply the interventions to a call's weights, in order; unchanged weights are the same object.

        `scored` holds the inputs of the scores, if the attention function has computed them.
        """
        current = self._pass
        current.calls += 1
        original = origin(module)
        layers = [(intervention, self._layer_of(module, intervention)) for intervention in self.active]
        resolved = [(intervention, *layer) for intervention, layer in layers if layer is not None]
        if not resolved:
            return weights
        for intervention, stack, _ in resolved if not current.running else ():
            if sum(attention.module is original for attention in intervention.table[stack].values()) > 1:
                raise UnsupportedModelError(
                    f"a block of {type(self.model).__name__} that serves as several layers was called by "
                    "itself, so an intervention cannot tell which layer it is."
                )
        first_query, first_key = self._positions(original, resolved[0][1], weights, scored)
        plain = weights
        for intervention, stack, layer in resolved:
            if (stack, layer) in intervention.where:
                seen = Seen(stack, layer, plain, scored, first_query, first_key, weights is not plain)
                weights = intervention.weigh(seen, weights)
                current.seen.append((intervention, seen))
                self.note_applied(intervention)
        return weights

    def _layer_of(self, module: nn.Module, intervention: Intervention) -> tuple[str, int] | None:
        """Return stack and layer of a call by an intervention's table; None for any other module."""
        turns = self._pass.turns
        if intervention not in turns:
            turns[intervention] = Turns(intervention.table)
        return turns[intervention].of(module)

    def write(self, module: nn.Module, output: Tensor) -> Tensor:  # noqa: ARG002 - `weigh` has stored the layer
        """Apply the interventions to a call's head outputs, in order."""
        current = self._pass.seen
        self._pass.seen = []
        for intervention, seen in current:
            output = intervention.write(seen, output)
        return output

    def _positions(
        self, module: nn.Module, stack: str, weights: Tensor, scored: Scored | None
    ) -> tuple[int, int]:
        """Return the positions of a call's first query and first key in the text."""
        n_queries, n_keys = weights.shape[2:]
        if stack == "cross":
            # The decoder's self-attention of the same layer has run before and set the position.
            return max(0, self._pass.next.get(-1, n_queries) - n_queries), 0
        first_query = first_key = 0
        if n_keys != n_queries:
            last = n_keys - 1
            if scored is None or scored.settings.get("mask") is not None:
                # A cache of fixed size has room for tokens to come.
                read = Seen(stack, 0, weights, scored, 0, 0).readable[..., -1, :].flatten(0, -2).any(0)
                last = int(read.nonzero().max()) if bool(read.any()) else last
            first_query = last + 1 - n_queries
            next_position = self._pass.next.get(id(module), 0)
            if next_position > first_query and last == n_keys - 1:
                # A sliding window has dropped the first keys.
                first_query, first_key = next_position, next_position + n_queries - n_keys
        self._pass.next[id(module)] = first_query + n_queries
        if stack == "decoder":
            self._pass.next[-1] = first_query + n_queries
        return first_query, first_key
