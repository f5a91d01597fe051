"""Samples to one batch, and one recorded pass back to a trace per sample."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from attnwidgets.tracing.predictions import predict
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.recorder import Pass, can_generate, forward_parameters, unpeft
from attnwidgets.tracing.text.axes import frame_axis, numbered, patch_axis, prefixed
from attnwidgets.tracing.trace import MAPS, GivenLayer, Layer, RecordedLayer, Stack, Trace, tower_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.recording.inputs import Sample
    from attnwidgets.tracing.recording.recorder import Call
    from attnwidgets.tracing.text.units import TokenAxis

# How cross-attention modules are called: encoder_attn, EncDecAttention, crossattention, cross_attn,
# multihead_attn2
_CROSS = re.compile(r"enc_?dec|encoder_att|cross", re.IGNORECASE)


def collate(model: nn.Module, tokenizer: Any, samples: Sequence[Sample]) -> dict[str, Any]:
    """Return model inputs for a batch, padded on the right on the model's device.

    The right side is taken whatever the tokenizer's `padding_side`: positions then are those of the text
    alone, in models that count positions themselves as well.

    Raises:
        ValueError: If the model's vocabulary has not all of the ids.
    """
    device = next((p.device for p in model.parameters() if p.device.type != "meta"), torch.device("cpu"))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    known = forward_parameters(model)
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
            if not samples[0].others:  # ids beyond the vocabulary may stand for parts of a picture
                require_known(model, tokenizer, names[0], full)
            pack(names[0], full, pad)
            if names[1] in known:
                pack(names[1], [[1] * len(row) for row in full], 0)
    if "token_type_ids" in known and all(s.types is not None for s in samples):
        pack("token_type_ids", [s.types or [] for s in samples], 0)
    for name in samples[0].others:
        values = [s.others[name] for s in samples]
        if not all(isinstance(v, torch.Tensor) for v in values):
            inputs[name] = values[0]
            continue
        whole = torch.cat(values).to(device)
        inputs[name] = whole.to(dtype) if whole.is_floating_point() else whole
    return inputs


def _vocabulary(model: Any, name: str) -> int | None:
    """Return how many token ids the side of a model that reads `name` knows; None where it has no table."""
    try:
        side = model.get_decoder() if name == "decoder_input_ids" else model
        return getattr(side.get_input_embeddings(), "num_embeddings", None)
    except (NotImplementedError, AttributeError):
        return None


def require_known(model: Any, tokenizer: Any, name: str, rows: Sequence[Sequence[int]]) -> None:
    """Refuse ids outside of the vocabulary, which a model would meet with an index error or worse."""
    size = _vocabulary(model, name)
    wrong = next((i for row in rows for i in row if i < 0 or (size is not None and i >= size)), None)
    if wrong is None:
        return
    known = "no negative ids" if size is None else f"ids 0 to {size - 1}"
    message = f"{name} hold {wrong}, and the model's vocabulary has {known}"
    if hasattr(tokenizer, "__len__") and 0 <= wrong < len(tokenizer):
        token = tokenizer.convert_ids_to_tokens(wrong)
        message += (
            f": {wrong} is {token!r} in {type(tokenizer).__name__}, which has {len(tokenizer):,} tokens. "
            "Pass the tokenizer that was saved with the model; after adding tokens to it, call "
            "model.resize_token_embeddings(len(tokenizer))"
        )
    raise ValueError(message)


def _tower(name: str) -> str:
    """Return the path of the list of layers a module lies in: its name up to the first number."""
    return re.split(r"\.\d+(?:\.|$)", name)[0]


class Named(Protocol):
    """Something that stands for a module of a model: an attention call, or the module itself."""

    @property
    def name(self) -> str:
        """The module's name in the model."""


AnyNamed = TypeVar("AnyNamed", bound=Named)


def by_stack(model: nn.Module, calls: Sequence[AnyNamed]) -> dict[str, list[AnyNamed]]:
    """Return attention calls, or what is named like them, by the stack that they belong to, in order."""
    ids = {id(module): name for name, module in model.named_modules()}
    encoder = _encoder_of(unpeft(model))
    inside = (
        {ids[id(module)] for module in encoder.modules() if id(module) in ids}
        if encoder is not None
        else set()
    )
    stacks: dict[str, list[AnyNamed]] = {}
    outside = [call for call in calls if call.name not in inside]
    if encoder is not None and outside and len(outside) < len(calls):
        stacks = {"encoder": [], "decoder": [], "cross": []}
        for call in calls:
            tail = ".".join(call.name.split(".")[-3:])
            cross = call.name not in inside and bool(_CROSS.search(tail))
            stacks["encoder" if call.name in inside else "cross" if cross else "decoder"].append(call)
        return {name: found for name, found in stacks.items() if found}
    crossing = [
        call for call in calls if _CROSS.search(call.name.split(".")[-1]) or "crossattention" in call.name
    ]
    if outside and len(outside) == len(calls) and crossing and len(crossing) < len(calls):
        return {"decoder": [c for c in calls if c not in crossing], "cross": crossing}
    towers = list(dict.fromkeys(_tower(call.name) for call in calls))
    names = dict(zip(towers, tower_names(towers), strict=True))
    for call in calls:
        stacks.setdefault(names[_tower(call.name)], []).append(call)
    # Text first, in whatever order the towers run.
    return dict(sorted(stacks.items(), key=lambda item: item[0] != "text"))


def _encoder_of(model: Any) -> nn.Module | None:
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    inner = getattr(model, "model", model)
    for owner in (model, inner):
        found = getattr(owner, "encoder", None)
        if isinstance(found, torch.nn.Module):
            return found
    found = model.get_encoder() if hasattr(model, "get_encoder") else None
    return found if isinstance(found, torch.nn.Module) else None


def traces_of(
    model: nn.Module,
    given_model: Any,
    tokenizer: Any,
    samples: Sequence[Sample],
    inputs: dict[str, Any],
    done: Pass,
    memory: int,
) -> list[Trace]:
    """Return one trace per sample; padding is cut from every map."""
    from attnwidgets.tracing.interventions import said_of

    said = said_of(given_model)
    if done.calls:
        stacks: dict[str, list[Call]] | dict[str, tuple[Tensor, ...]] = by_stack(model, done.calls)
    else:
        stacks = dict(done.given)
    reader = text_tokenizer(tokenizer)
    config: Any = getattr(model, "config", None)
    logits = getattr(done.outputs, "logits", None)
    widths = {
        "batch": len(samples),
        "text": max(len(s.ids or ()) for s in samples),
        "decoder": max(len(s.decoder_ids or ()) for s in samples),
    }
    found = []
    for number, sample in enumerate(samples):
        axes = _Axes(config, sample, inputs)
        table = {
            name: _stack(axes, name, layers, number, widths, type(model).__name__)
            for name, layers in stacks.items()
        }
        ids = sample.ids if sample.decoder_ids is None else sample.decoder_ids
        own = _own_logits(logits, number, len(samples), None if ids is None else len(ids), memory)
        tensor = None if sample.ids is None else torch.tensor(sample.ids)
        notes = [note for note in (sample.warning, done.note) if note]
        found.append(
            Trace(
                table,
                model=given_model,
                tokenizer=tokenizer,
                model_id=getattr(config, "_name_or_path", "") or type(model).__name__,
                input_ids=tensor,
                logits=own,
                inputs=collate(model, reader, [sample]) if len(samples) > 1 else inputs,
                warning="; ".join(notes),
                memory=memory,
                predicted=predict(own, config, reader, tensor, generates=can_generate(model)),
                interventions=said,
            )
        )
    return found


def _own_logits(logits: Any, number: int, batch: int, length: int | None, memory: int) -> Tensor | None:
    """Return one sample's logits on the CPU; the last position only where all exceed the byte budget."""
    if not isinstance(logits, torch.Tensor) or logits.shape[0] != batch:
        return None
    own = logits[number]
    if own.dim() > 1 and length is not None:
        own = own[:length]
    if own.dim() > 1 and own.nbytes > memory:
        own = own[-1:]
    # A copy, so that a sample does not hold the whole batch.
    return own.detach().to("cpu", copy=True)


class _Axes:
    """The axes of one sample, by stack and length."""

    def __init__(self, config: Any, sample: Sample, inputs: dict[str, Any]) -> None:
        self.config, self.sample = config, sample
        self.pixels = inputs.get("pixel_values")
        self.text = None if sample.text is None else sample.text.axis(sample.rule)
        self.decoder = None if sample.decoder_text is None else sample.decoder_text.axis(sample.rule)

    def of(self, stack: str, n: int) -> TokenAxis:
        """Return the axis of `n` positions of a stack."""
        written = self.decoder if stack == "decoder" else self.text
        if stack != "vision" and written is not None and n >= len(written):
            return written if n == len(written) else prefixed(written, n - len(written))
        if self.pixels is not None and stack != "decoder":
            config = getattr(self.config, "vision_config", None) or self.config
            return patch_axis(n, config, *self.pixels.shape[-2:])
        if self.sample.seconds is not None and stack != "decoder":
            hop = getattr(self.config, "inputs_to_logits_ratio", None)
            return frame_axis(n, hop / _rate(self.sample) if hop else self.sample.seconds / n)
        return numbered(n)


def _rate(sample: Sample) -> float:
    wave = sample.others.get("input_values")
    return wave.shape[-1] / sample.seconds if isinstance(wave, torch.Tensor) and sample.seconds else 16_000.0


def _stack(
    axes: _Axes,
    stack: str,
    layers: Sequence[Call] | Sequence[Tensor],
    number: int,
    widths: Mapping[str, int],
    model: str,
) -> Stack:
    """Return one stack of one sample, without its padding.

    Args:
        axes: The sample's axes.
        stack: Name of the stack.
        layers: Its calls, or its weights [batch, head, query, key].
        number: Index of the sample.
        widths: Padded length of "text" and "decoder", and the "batch" size.
        model: For messages.
    """
    sides = {"decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}.get(stack, (stack, stack))
    own = {"decoder": axes.sample.decoder_ids or axes.sample.ids, "vision": None, "audio": None}
    found: list[Layer] = []
    for layer in layers:
        got = _size(layer)
        kept = []
        for side, length in zip(sides, got[1:], strict=True):
            ids = own.get(side, axes.sample.ids)
            width = widths["decoder" if side == "decoder" and axes.sample.decoder_ids else "text"]
            if got[0] != widths["batch"] or (ids is not None and length < width):
                raise UnsupportedModelError(
                    f"The attention of {model} cannot be traced: it attends in windows or "
                    f"blocks (a call for {got[0]} inputs with {got[1]} queries and {got[2]} keys), not from "
                    "every token to every token."
                )
            kept.append(length if ids is None else length - (width - len(ids)))
        if isinstance(layer, torch.Tensor):
            found.append(GivenLayer(layer[number, :, : kept[0], : kept[1]]))
        else:
            found.append(RecordedLayer(layer, number, kept[0], kept[1]))
    sizes = {layer.shape[1:] for layer in found}
    if len(sizes) > 1:
        raise UnsupportedModelError(
            f"The attention of {model} cannot be traced: its layers differ in size ({sorted(sizes)})."
        )
    queries, keys = sizes.pop()
    return Stack(tuple(found), axes.of(sides[0], queries), axes.of(sides[1], keys))


def _size(layer: Call | Tensor) -> tuple[int, int, int]:
    """Return batch, queries and keys of a call or of given weights; zeros where the shape is another."""
    if isinstance(layer, torch.Tensor):
        return (layer.shape[0], layer.shape[2], layer.shape[3]) if layer.dim() == MAPS else (0, 0, 0)
    return layer.query.shape[0], layer.query.shape[2], layer.key.shape[2]
