"""A forward pass with its attention calls, checked to be what the model computes when nothing records it.

`record` runs a twin once while a `Recording` observes its attention. A plain pass then has to give the same
output (`compared`), once per architecture. Where attention cannot be recorded, the weights that the model
returns are taken (`_returned`); a model that only mixes tokens otherwise raises a `NoAttentionError`, which
holds its pass.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnwidgets._progress import report
from attnwidgets.tracing.anatomy.block_log import BlockLog, attending, attends, subtracts
from attnwidgets.tracing.anatomy.blocks import with_measured
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.mixers.log import MixerLog
from attnwidgets.tracing.model_state import modules_of, named_modules
from attnwidgets.tracing.recording.attention_function import NAME
from attnwidgets.tracing.recording.calls import Call, FollowedCall, is_even, stacks_of
from attnwidgets.tracing.recording.following import is_on_interface, lost
from attnwidgets.tracing.recording.module_calls import ROOM, WatchedPass, watching
from attnwidgets.tracing.recording.proof import compared, is_changed
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.recording.returned import (
    ELSEWHERE,
    require_repeatable,
    require_room_for_maps,
    returned_weights,
    tolerance,
)
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.anatomy.blocks import Block
    from attnwidgets.tracing.mixers.mix import MixedBlock
    from attnwidgets.tracing.recording.following import Softmax
    from attnwidgets.tracing.recording.recorder import Reader, Recording


@dataclass(frozen=True)
class Pass:
    """A recorded forward pass.

    Args:
        outputs: The model's output.
        stacks: By stack, the call of every layer; or the weights [batch, head, query, key] that it returned.
        blocks: By stack, its blocks; without stacks whose weights the model returned.
        note: A note for readers on how it was recorded; "" if there is none.
        mixing: By path of a block, its runs with mixers other than attention, of the whole batch.
        watched: Its module calls, if they were watched, had room, and can be made again.
    """

    outputs: Any
    stacks: Mapping[str, Sequence[Call | FollowedCall | Tensor]]
    blocks: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    note: str = ""
    mixing: Mapping[str, Sequence[MixedBlock]] = field(default_factory=dict)
    watched: WatchedPass | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether attention was recorded, rather than returned by the model."""
        return bool(self.blocks)


class NoAttentionError(UnsupportedModelError):
    """Raised after a pass of a model whose blocks mix tokens, but not by attention that can be seen.

    Attributes:
        outputs: The model's output.
        blocks: Its blocks.
        mixing: By path of a block, its runs with mixers other than attention.
    """

    def __init__(
        self,
        message: str,
        outputs: Any,
        blocks: tuple[Block, ...],
        mixing: Mapping[str, Sequence[MixedBlock]],
    ) -> None:
        super().__init__(message)
        self.outputs, self.blocks, self.mixing = outputs, blocks, mixing


def record(model: nn.Module, inputs: Mapping[str, Any], *, watches: bool = False) -> Pass:
    """Run a borrowed model once and return its output with its attention calls.

    With `watches`, the inputs of its blocks are kept as well, if they are small.

    Raises:
        UnsupportedModelError: If the model computes attention outside transformers' interface and does not
            return it either, or if recording would change its output.
        ValueError: If two passes of it on the same input differ.
    """
    options: dict[str, Any] = {"return_dict": True}
    if "use_cache" in forward_parameters(model):
        options["use_cache"] = False
    modules = named_modules(model)
    on_interface = is_on_interface(modules.values())
    if not on_interface and attending(modules.values()):
        require_room_for_maps(model, inputs, "is recorded where it meets the values")
    log, mixers = BlockLog(modules), MixerLog(modules, attention=any(map(subtracts, modules.values())))
    readers = [_progress_of(model), log.attention, mixers.see]

    def done(_: nn.Module, output: Tensor) -> None:
        mixers.done(session.calls[-1], output)

    try:
        with (
            log.watching(),
            mixers.watching(),
            watching(modules.values(), room=ROOM) if watches else nullcontext() as watch,
            recording(
                model,
                listeners=[done],
                readers=[*readers, *([watch.attention] if watch else [])],
                fuses=True,
                keeps=True,
                modules=modules,
            ) as session,
        ):
            outputs = model(**inputs, **options)
    except (UnsupportedModelError, KeyError) as error:
        # A KeyError comes from modules that choose their attention class by the implementation's name.
        unknown = isinstance(error, KeyError)
        if unknown and NAME not in str(error):
            raise
        reason = "it does not know registered attention" if unknown else str(error)
        return _returned(model, inputs, options, reason)
    except TypeError as error:
        _require_taken(model, {**inputs, **options}, error)
        raise
    if not session.calls:
        _require_attention(model, outputs, log, mixers)
        return _returned_or_none(model, inputs, options, outputs, log, _unseen(modules, session))
    refusal, note = compared(model, modules.values(), inputs, options, outputs, session)
    if refusal:
        return _returned(model, inputs, options, refusal, session.calls)
    stacks = stacks_of(model, modules, session.calls)
    gaps = _of_lost(modules, session)
    if not on_interface and (gaps or not is_even(session.calls, stacks)):
        # Weights that the model returns may cover attention that could not be followed.
        with suppress(UnsupportedModelError):
            return _returned(model, inputs, options, _unseen(modules, session))
    gaps = [f"{gap}; its map is missing, and rollout over all layers is refused" for gap in gaps]
    return Pass(
        outputs,
        {stack: [session.calls[index] for index in layers] for stack, layers in stacks.items()},
        {
            stack: with_measured(blocks, mixers.measured)
            for stack, blocks in log.blocks(stacks, session.calls).items()
        },
        "; ".join(filter(None, (note, _of_followed(modules, session), *gaps))),
        mixers.blocks,
        # Blocks that ran without their causal mask, or were changed, cannot be called again by themselves.
        WatchedPass(model, tuple(session.calls), watch)
        if watch and watch.is_whole and not (session.hides_later or is_changed(model))
        else None,
    )


def _require_attention(model: nn.Module, outputs: Any, log: BlockLog, mixers: MixerLog) -> None:
    """Raise a NoAttentionError after a pass in which a model mixed tokens without attention."""
    blocks = log.without_attention()
    if blocks and not is_changed(model):
        kinds = dict.fromkeys(mixer.kind for block in blocks for mixer in block.mixers)
        message = f"{type(model).__name__} mixes tokens by {' and '.join(kinds)}"
        raise NoAttentionError(message, outputs, with_measured(blocks, mixers.measured), mixers.blocks)


def _returned_or_none(
    model: nn.Module,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    outputs: Any,
    log: BlockLog,
    reason: str,
) -> Pass:
    """Return `_returned` after a pass that met no attention, or raise a NoAttentionError with that pass."""
    try:
        return _returned(model, inputs, options, reason)
    except UnsupportedModelError as error:
        blocks = log.mixing()
        if not blocks or is_changed(model):
            raise
        require_repeatable(model, inputs, options)
        if _adds_nothing(model, inputs, options):
            raise UnsupportedModelError(
                f"The attention of {type(model).__name__} cannot be traced: its attention modules return "
                "zeros, so that no token reads another; the kernels that they need, such as those of a GPU, "
                "are missing."
            ) from error
        raise NoAttentionError(str(error), outputs, blocks, {}) from error


def _adds_nothing(model: nn.Module, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether every attention module of a model that runs returns zeros."""
    sizes: list[float] = []

    def look(_: nn.Module, __: Any, output: Any) -> None:
        first = output[0] if isinstance(output, (tuple, list)) else output
        sizes.append(float(first.abs().max()))

    with ExitStack() as exits:
        for module in filter(attends, modules_of(model)):
            exits.callback(module.register_forward_hook(look).remove)
        model(**inputs, **options)
    return bool(sizes) and not any(sizes)


def _require_taken(model: nn.Module, arguments: Collection[str], error: TypeError) -> None:
    """Raise an UnsupportedModelError if an error says that a forward does not take an argument."""
    refused = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if refused is not None and refused[1] in arguments:
        raise UnsupportedModelError(
            f"The attention of {type(model).__name__} cannot be traced: its forward() does not take "
            f"{refused[1]!r}, which transformers models do. {_inside(model)}aw.trace_module(module, numbers) "
            f"traces any module on numbers. {ELSEWHERE}"
        ) from error


def _inside(model: nn.Module) -> str:
    """Return advice on the transformers model inside a user's module; "" if it contains none."""
    paths = [
        name for name, part in named_modules(model).items() if name and hasattr(part, "get_input_embeddings")
    ]
    if not paths:
        return ""
    return (
        f"The transformers model in it can be traced: aw.trace(model.{paths[0]}, ...); so can all of it, if "
        "its forward() takes return_dict and returns an output object with logits. "
    )


def _unseen(modules: Mapping[str, nn.Module], session: Recording) -> str:
    """Return why the attention of a model outside the interface was not recorded."""
    return "; ".join(
        ["it computes attention outside transformers' attention interface", *_of_lost(modules, session)]
    )


def _of_followed(modules: Mapping[str, nn.Module], session: Recording) -> str:
    """Return a note on the modules whose attention was followed; "" if the interface has recorded all."""
    names = [call.name for call in session.calls if isinstance(call, FollowedCall)]
    if not names:
        return ""
    kinds = dict.fromkeys(type(modules[name]).__name__ for name in names)
    return (
        f"the attention of {' and '.join(kinds)}, outside transformers' attention interface, was recorded "
        "where its softmax meets the values, so methods that need queries and keys are not available"
    )


def _of_lost(modules: Mapping[str, nn.Module], session: Recording) -> list[str]:
    """Return clauses on attention whose softmax met no values: of every class, the first layer."""
    first: dict[str, Softmax] = {}
    for softmax in lost(session.softmaxes, [call.name for call in session.calls], modules):
        first.setdefault(type(modules[softmax.name]).__name__, softmax)
    return [
        f"{_layer_named(softmax.name)} ({kind}) has a softmax of {list(softmax.shape)} that this version "
        "cannot follow to its values"
        for kind, softmax in first.items()
    ]


def _layer_named(name: str) -> str:
    number = re.search(r"\.(\d+)(?:\.|$)", name)
    return f"layer {number[1]}" if number else name


def _progress_of(model: nn.Module) -> Reader:
    """Return a reader that reports the layers of a pass to a view, which may cancel it."""
    config: Any = getattr(model, "config", None)
    text = getattr(config, "text_config", None) or config
    total = None if getattr(config, "is_encoder_decoder", False) else getattr(text, "num_hidden_layers", None)
    return lambda number, _: report(number, total, "tracing, by layers")


def _returned(
    model: nn.Module,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    reason: str,
    calls: Sequence[Call | FollowedCall] = (),
) -> Pass:
    """Return a pass whose weights are those that the model returns itself.

    `calls` are those of the refused recording. If they have sinks, returned rows that sum to 1 leave out the
    share of the sinks and are refused.
    """
    if is_changed(model):
        raise UnsupportedModelError(
            f"Interventions do not reach the attention of {type(model).__name__}: {reason}."
        )
    outputs, weights, note = returned_weights(model, inputs, options, reason)
    without = sum(isinstance(call, FollowedCall) or call.settings["sink"] is None for call in calls)
    layers = [layer for stack in weights.values() for layer in stack]
    whole = sum(bool(((layer.sum(-1) - 1).abs() < tolerance(layer)).all()) for layer in layers)
    if without < len(calls) and whole > without:
        raise UnsupportedModelError(
            f"The attention of {type(model).__name__} cannot be traced: {reason}, and the rows that it "
            f"returns leave out the share of its sink. {ELSEWHERE}"
        )
    return Pass(outputs, weights, note=note)
