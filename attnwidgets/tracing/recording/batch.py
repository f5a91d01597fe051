"""Collating samples into a batch, and dividing its recorded pass into a trace per sample.

`collate` pads ids on the right. `traces_of` cuts the padding from the maps and logits of every sample, whose
lengths on both axes of a map `_stack` derives from the sample's ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.answer import answer_of, other_heads
from attnwidgets.tracing.anatomy.blocks import caveats
from attnwidgets.tracing.anatomy.forward import can_generate, forward_parameters
from attnwidgets.tracing.anatomy.stack_axes import StackAxes
from attnwidgets.tracing.interventions import added_to, said_of
from attnwidgets.tracing.layers import MAPS, GivenLayer, Layer, Stack
from attnwidgets.tracing.mixers.log import by_number
from attnwidgets.tracing.model_state import state_of
from attnwidgets.tracing.predictions import logits_in, predict
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.trace import Trace
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.recording.calls import Call, FollowedCall
    from attnwidgets.tracing.recording.inputs import Sample
    from attnwidgets.tracing.recording.recorded_pass import Pass


def collate(model: nn.Module, tokenizer: Any, samples: Sequence[Sample]) -> dict[str, Any]:
    """Return model inputs for a batch, padded on the right, on the model's device.

    Padding is on the right whatever the tokenizer's `padding_side`: positions are then those of the text
    alone, also in models that count positions themselves.

    Raises:
        ValueError: If an id is not in the model's vocabulary.
    """
    device = next((p.device for p in model.parameters() if p.device.type != "meta"), torch.device("cpu"))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    parameters = forward_parameters(model)
    config = getattr(model, "config", None)
    size = _vocabulary(model, "input_ids")
    pad = next(
        (
            i
            for owner in (tokenizer, config, getattr(config, "text_config", None))
            if isinstance(i := getattr(owner, "pad_token_id", None), int) and 0 <= i < (size or i + 1)
        ),
        0,
    )
    inputs: dict[str, Any] = {}

    def pack(name: str, rows: list[list[int]], fill: int) -> None:
        width = max(len(row) for row in rows)
        inputs[name] = torch.tensor([row + [fill] * (width - len(row)) for row in rows], device=device)

    for names, rows in (
        (("input_ids", "attention_mask"), [s.ids for s in samples]),
        (("decoder_input_ids", "decoder_attention_mask"), [s.decoder_ids for s in samples]),
    ):
        if all(row is not None for row in rows):
            full = [row for row in rows if row is not None]
            if not samples[0].others:  # ids beyond the vocabulary may stand for parts of an image
                require_known(model, tokenizer, names[0], full)
            pack(names[0], full, pad)
            if names[1] in parameters:
                pack(names[1], [[1] * len(row) for row in full], 0)
    if "token_type_ids" in parameters and all(s.types is not None for s in samples):
        pack("token_type_ids", [s.types or [] for s in samples], 0)
    for name in samples[0].others:
        values = [s.others[name] for s in samples]
        if not all(isinstance(v, torch.Tensor) for v in values):
            inputs[name] = values[0]
            continue
        whole = torch.cat(values).to(device)
        inputs[name] = whole.to(dtype) if whole.is_floating_point() else whole
    return inputs


def in_copies(inputs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return inputs for a batch of copies of a sample.

    Patches and their grids may be listed without a batch axis, picture after picture; then so are the copies.
    """

    def copied(value: Any) -> Any:
        if count == 1 or not isinstance(value, torch.Tensor) or not value.dim():
            return value
        if len(value) == 1:
            # Copied, because models reshape their pictures by `view`.
            return value.expand(count, *value.shape[1:]).contiguous()
        return value.repeat(count, *(1 for _ in value.shape[1:]))

    return {name: copied(value) for name, value in inputs.items()}


def _vocabulary(model: Any, name: str) -> int | None:
    """Return the vocabulary size of the side of a model that reads `name`; None if it has no embeddings."""
    try:
        side = model.get_decoder() if name == "decoder_input_ids" else model
        return getattr(side.get_input_embeddings(), "num_embeddings", None)
    except (NotImplementedError, AttributeError):
        return None


def require_known(model: Any, tokenizer: Any, name: str, rows: Sequence[Sequence[int]]) -> None:
    """Raise ValueError for ids outside the vocabulary, at which a model would fail with an index error."""
    size = _vocabulary(model, name)
    wrong = next((i for row in rows for i in row if i < 0 or (size is not None and i >= size)), None)
    if wrong is None:
        return
    vocabulary = "no negative ids" if size is None else f"ids 0 to {size - 1}"
    message = f"{name} hold {wrong}, and the model's vocabulary has {vocabulary}"
    if hasattr(tokenizer, "__len__") and 0 <= wrong < len(tokenizer):
        token = tokenizer.convert_ids_to_tokens(wrong)
        message += (
            f": {wrong} is {token!r} in {type(tokenizer).__name__}, which has {len(tokenizer):,} tokens. "
            "Pass the tokenizer that was saved with the model; after adding tokens to it, call "
            "model.resize_token_embeddings(len(tokenizer))"
        )
    raise ValueError(message)


def traces_of(
    model: nn.Module,
    given_model: Any,
    tokenizer: Any,
    samples: Sequence[Sample],
    inputs: dict[str, Any],
    recorded: Pass,
    memory: int,
) -> list[Trace]:
    """Return a trace per sample; padding is cut from every map."""
    interventions = said_of(given_model)
    state = state_of(unwrap(given_model))
    stacks = recorded.stacks
    added = {name: count for name in stacks if (count := added_to(given_model, name))}
    heads, left = other_heads(recorded.outputs), caveats(recorded.blocks)
    reader = text_tokenizer(tokenizer)
    config: Any = getattr(model, "config", None)
    logits = logits_in(recorded.outputs)
    widths = {
        "batch": len(samples),
        "text": max(len(s.ids or ()) for s in samples),
        "decoder": max(len(s.decoder_ids or ()) for s in samples),
    }
    traces = []
    for number, sample in enumerate(samples):
        axes = StackAxes(model, stacks, sample, inputs)
        table, apart = {}, []
        for name, layers in stacks.items():
            try:
                stack = _stack(axes, name, layers, number, widths, type(model).__name__)
            except UnsupportedModelError:
                # The text is traced without the tower of a picture that is read view by view, or in windows.
                if axes.reads_text(name) or not any(map(axes.reads_text, stacks)):
                    raise
                apart.append(
                    f"the attention of stack {name!r} is not recorded: it reads parts of its input apart"
                )
                continue
            blocks = recorded.blocks.get(name, ())
            mixing = by_number(blocks, recorded.mixing, number, stack.layers[0].shape[1])
            table[name] = replace(stack, blocks=blocks, mixing=mixing)
        ids = sample.ids if sample.decoder_ids is None else sample.decoder_ids
        padded = widths["text" if sample.decoder_ids is None else "decoder"]
        padding = 0 if ids is None else padded - len(ids)
        own_logits = _own_logits(logits, number, len(samples), padding, memory)
        input_ids = None if sample.ids is None else torch.tensor(sample.ids)
        answer = answer_of(
            model,
            own_logits,
            reader,
            input_ids,
            generates=can_generate(model),
            text=sample.text,
            others=sample.others,
        )
        traces.append(
            Trace(
                table,
                model=given_model,
                tokenizer=tokenizer,
                model_id=getattr(config, "_name_or_path", "") or type(model).__name__,
                input_ids=input_ids,
                logits=own_logits,
                inputs=_alone(inputs, number, sample) if len(samples) > 1 else inputs,
                warning="; ".join(
                    filter(None, (sample.warning, recorded.note, *apart, *left, axes.warning(), heads))
                ),
                memory=memory,
                answer=answer,
                state=state,
                predicted=predict(answer, own_logits, reader, input_ids),
                interventions=interventions,
                added={name: count for name, count in added.items() if name in table},
                unrecorded={
                    name: stack_blocks for name, stack_blocks in recorded.blocks.items() if name not in table
                },
                picture=sample.picture,
                sound=sample.sound,
            )
        )
    return traces


def _alone(inputs: Mapping[str, Any], number: int, sample: Sample) -> dict[str, Any]:
    """Return the inputs of a text of a batch, without its padding; copies, which do not hold the batch."""
    lengths = {name: sample.decoder_ids if name.startswith("decoder") else sample.ids for name in inputs}
    return {
        name: rows[number : number + 1, : len(lengths[name] or ())].clone() for name, rows in inputs.items()
    }


def _own_logits(logits: Any, number: int, batch: int, padding: int, memory: int) -> Tensor | None:
    """Return a sample's logits on the CPU; only the last position's if all exceed the byte budget."""
    if not isinstance(logits, torch.Tensor) or logits.shape[0] != batch:
        return None
    sample_logits = logits[number]
    if sample_logits.dim() > 1:
        # Padding is on the right; soft prompts and pictures stand before the tokens.
        sample_logits = sample_logits[: len(sample_logits) - padding]
    if sample_logits.dim() > 1 and sample_logits.nbytes > memory:
        sample_logits = sample_logits[-1:]
    # A copy, so that a sample does not hold the whole batch.
    return sample_logits.detach().to("cpu", copy=True)


def _stack(
    axes: StackAxes,
    stack: str,
    layers: Sequence[Call | FollowedCall | Tensor],
    number: int,
    widths: Mapping[str, int],
    model: str,
) -> Stack:
    """Return a stack of a sample, without its padding.

    Args:
        axes: The sample's axes.
        stack: Name of the stack.
        layers: Its calls, or its weights [batch, head, query, key].
        number: Index of the sample.
        widths: Padded length of "text" and "decoder", and the "batch" size.
        model: For messages.
    """
    sides = axes.sides(stack)
    own_ids = {"decoder": axes.sample.decoder_ids or axes.sample.ids}
    own_ids |= {side: None for side in sides if not axes.reads_text(side)}
    own_layers: list[Layer] = []
    for layer in layers:
        batch, *lengths = _size(layer)
        real_lengths = []
        for side, length in zip(sides, lengths, strict=True):
            ids = own_ids.get(side, axes.sample.ids)
            width = widths["decoder" if side == "decoder" and axes.sample.decoder_ids else "text"]
            if batch != widths["batch"] or (ids is not None and length < width):
                raise UnsupportedModelError(
                    f"The attention of {model} cannot be traced: it attends in windows or "
                    f"blocks (a call for {batch} inputs with {lengths[0]} queries and {lengths[1]} keys), "
                    "not from every token to every token."
                )
            real_lengths.append(length if ids is None else length - (width - len(ids)))
        if isinstance(layer, torch.Tensor):
            own_layers.append(GivenLayer(layer[number, :, : real_lengths[0], : real_lengths[1]]))
        else:
            own_layers.append(layer.layer(number, real_lengths[0], real_lengths[1]))
    sizes = {layer.shape[1:] for layer in own_layers}
    if len(sizes) > 1:
        raise UnsupportedModelError(
            f"The attention of {model} cannot be traced: its layers differ in size ({sorted(sizes)})."
        )
    queries, keys = sizes.pop()
    return Stack(tuple(own_layers), axes.of(sides[0], queries), axes.of(sides[1], keys))


def _size(layer: Call | FollowedCall | Tensor) -> tuple[int, int, int]:
    """Return batch, queries and keys of a call or of given weights; zeros for any other shape."""
    if isinstance(layer, torch.Tensor):
        return (layer.shape[0], layer.shape[2], layer.shape[3]) if layer.dim() == MAPS else (0, 0, 0)
    batch, _, queries, keys = layer.shape
    return batch, queries, keys
