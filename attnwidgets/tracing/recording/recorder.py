"""Observe every attention call of a model: its queries, keys and values are stored, and edits are applied.

Inside `recording`, the attention function (`attention_function.py`) passes each call to a `Recording`.
Modules that compute attention themselves are followed (`following.py`). A whole pass is in
`recorded_pass.py`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.causal_mask import supports_sdpa
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.attention_function import (
    FUSED_BYTES,
    NAME,
    attention,
    mask_of,
    observer,
)
from attnwidgets.tracing.recording.borrow import implementation
from attnwidgets.tracing.recording.calls import Call, FollowedCall
from attnwidgets.tracing.recording.following import following, is_on_interface, is_outside
from attnwidgets.tracing.recording.returned import functions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from attnwidgets.tracing.recording.following import Softmax

    # (index of the call, module, weights, values) -> (weights, values)
    Edit = Callable[[int, nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
    # (index of the call, values [batch, kv head, key, dim])
    Reader = Callable[[int, Tensor], None]
    # (module, outputs of its heads [batch, head, query, dim])
    Listener = Callable[[nn.Module, Tensor], None]


@dataclass
class Recording:
    """The calls of a pass, in the order they were made; an observer of the attention function.

    `fuses` says that the model supports transformers' sdpa attention, and `hides_later` that the pass has
    left out a causal mask as sdpa does. `keeps_bits` says that the model is set to eager attention.
    `softmaxes` are those of modules that compute attention themselves, whose weights are stored if `keeps` is
    True. `again` returns the context in which a gradient may compute a long text's weights again; None if
    they are kept.
    """

    names: Mapping[int, str]  # by the id of a module
    edits: Sequence[Edit] = ()
    listeners: Sequence[Listener] = ()
    readers: Sequence[Reader] = ()
    calls: list[Call | FollowedCall] = field(default_factory=list)
    softmaxes: list[Softmax] = field(default_factory=list)
    fuses: bool = False
    keeps: bool = False
    hides_later: bool = False
    keeps_bits: bool = False
    again: Callable[[], AbstractContextManager[Any]] | None = None

    def fuses_weights(self, n_bytes: int) -> bool:
        """Return whether fused attention computes weights of so many bytes, if nobody reads them."""
        return not self.keeps_bits or n_bytes > FUSED_BYTES

    def see(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        weights: Tensor,
        settings: dict[str, Any],
        *,
        changed: bool,
    ) -> tuple[Tensor, Tensor]:
        """Store a call's inputs (its weights only if edited) and apply the edits.

        `changed` says that the weights differ from those that follow from queries and keys.

        Returns:
            The weights [batch, head, query, key] and values [batch, kv head, key, dim] to continue with.
        """
        unedited = weights
        weights, value = self._edited(module, weights, value)
        edited = weights.detach() if changed or weights is not unedited else None
        self._keep(module, query, key, settings, edited)
        return weights, value

    def follow(self, module: nn.Module, weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the edits to a call outside the attention function, and store its weights and values."""
        weights, value = self._edited(module, weights, value)
        # Weights that nobody reads are views of a single NaN, which take no memory.
        stored = weights.detach() if self.keeps else weights.new_full((1,), torch.nan).expand(weights.shape)
        self.calls.append(FollowedCall(self.name_of(module), stored, value.detach()))
        return weights, value

    def _edited(self, module: nn.Module, weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Pass a call's values to the readers, and return weights and values after the edits."""
        for reader in self.readers:
            reader(len(self.calls), value)
        for edit in self.edits:
            weights, value = edit(len(self.calls), module, weights, value)
        return weights, value

    def name_of(self, module: nn.Module) -> str:
        """Return a module's name in the model; the name of its class if it is not part of the model."""
        return self.names.get(id(module), type(module).__name__)

    def keep_unread(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, settings: dict[str, Any]
    ) -> bool:
        """Store a call's inputs without its weights; store nothing and return False if edits need weights."""
        if self.edits:
            return False
        for reader in self.readers:
            reader(len(self.calls), value)
        self._keep(module, query, key, settings, None)
        return True

    def _keep(
        self, module: nn.Module, query: Tensor, key: Tensor, settings: dict[str, Any], weights: Tensor | None
    ) -> None:
        detached = {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in settings.items()}
        self.calls.append(Call(self.name_of(module), query.detach(), key.detach(), detached, weights))

    def done(self, module: nn.Module, output: Tensor) -> None:
        """Pass a call's head outputs [batch, head, query, dim] to the listeners."""
        for listener in self.listeners:
            listener(module, output)


def register() -> None:
    """Register the attention function and its mask with transformers."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask_of)


@contextmanager
def recording(
    model: nn.Module,
    edits: Sequence[Edit] = (),
    listeners: Sequence[Listener] = (),
    readers: Sequence[Reader] = (),
    *,
    fuses: bool = False,
    keeps: bool = False,
    modules: Mapping[str, nn.Module] | None = None,
    again: Callable[[], AbstractContextManager[Any]] | None = None,
) -> Iterator[Recording]:
    """Switch a model to the recording attention function for the duration.

    Modules that compute attention themselves are followed; if all do, the model keeps its implementation.

    Args:
        model: A twin that `borrowed` yields.
        edits: Called at every attention call, in order; each may replace weights and values.
        listeners: Called after every attention call with its head outputs.
        readers: Called at every attention call with its values. Unlike edits, they do not require all weights
            of a long text at once.
        fuses: Whether a long text's causal mask may be left out, as for sdpa. Not where blocks are to run
            again by themselves: they are given the mask.
        keeps: Whether the weights of modules that compute attention themselves are stored. Other weights
            follow from queries and keys, which every call stores.
        modules: Those of the model, by name, if they are listed already.
        again: Returns the context in which a gradient may compute a long text's weights again, instead of
            keeping those of all layers.
    """
    register()
    modules = named_modules(model) if modules is None else modules
    session = Recording(
        {id(module): name for name, module in modules.items()},
        edits,
        listeners,
        readers,
        fuses=fuses and supports_sdpa(model),
        keeps=keeps,
        keeps_bits=None in functions_of(modules.values()).values(),
        again=again,
    )
    token = observer.set(session)
    try:
        with ExitStack() as exits:
            if is_on_interface(modules.values()):
                exits.enter_context(implementation(model, NAME, modules.values()))
            if is_outside(modules.values()):
                exits.enter_context(following([model]))
            yield session
    finally:
        observer.reset(token)
        # They may refer to the session: the twin would live until the garbage collector runs.
        session.edits = session.listeners = session.readers = ()
