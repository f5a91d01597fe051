"""Tokens that a model reads beyond its input: its continuation, or the text of its decoder."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch

from attnwidgets.tracing.anatomy.forward import can_generate, forward_parameters
from attnwidgets.tracing.failed_pass import told_of_pass
from attnwidgets.tracing.recording.batch import collate
from attnwidgets.tracing.recording.borrow import quietly
from attnwidgets.tracing.recording.inputs import text_of_ids
from attnwidgets.tracing.recording.wrappers import is_a
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from attnwidgets.tracing.recording.inputs import Sample
    from attnwidgets.tracing.text.axes import Text

_TWICE = "its decoder reads the text as well, shifted by one; explanations are of what its encoder reads"

# Endings of the options of a model's task: where its texts begin and end, and ids that it never writes.
_OF_THE_MODEL = ("_token_id", "suppress_tokens", "bad_words_ids")


def with_continuation(model: Any, reader: Any, sample: Sample, target: str | None, new: int) -> Sample:
    """Return a sample with its continuation, or with the input of the decoder if the model has both sides."""
    # BLIP-2 takes a decoder's ids for some language models, and passes them over for others.
    passed_over = getattr(getattr(model, "config", None), "use_decoder_only_language_model", False)
    seq2seq = "decoder_input_ids" in forward_parameters(model) and not passed_over
    if target is not None and not seq2seq:
        raise ValueError("target_text is for encoder-decoder models; this model has no decoder of its own")
    if target is not None and not (isinstance(target, str) and reader is not None):
        raise TypeError(
            f"target_text must be a string, which needs the model's tokenizer, not {target!r:.80}"
        )
    if seq2seq and target is None and not new and reads_twice(model):
        # Its decoder reads the text as well, which the model shifts itself.
        ids = _read_by_decoder(model, reader, sample)
        return replace(sample, decoder_text=text_of_ids(reader, ids), warning=_joined(sample.warning, _TWICE))
    if seq2seq:
        boundary = None
        if target is not None:
            ids = _target_ids(model, reader, sample, target)
        elif new:
            ids, boundary = _generate(model, reader, sample, new)
        else:
            ids = [_start_of(model)]
        return replace(sample, decoder_ids=ids, decoder_text=text_of_ids(reader, ids, boundary))
    if not new:
        return sample
    prompt = list(sample.ids or ())
    ids, _ = _generate(model, reader, sample, new)
    if not prompt or len(ids) <= len(prompt):
        return sample
    shown = text_of_ids(reader, ids, len(prompt))
    if sample.text is not None and (sample.text.chat is not None or sample.text.passages):
        shown = _after(sample.text, shown)
    types = None if sample.types is None else sample.types + [sample.types[-1]] * (len(ids) - len(prompt))
    return replace(sample, ids=ids, text=shown, types=types)


def _after(prompt: Text, whole: Text) -> Text:
    """Return the text of a prompt in the user's spelling, messages and passages, with its continuation.

    Args:
        prompt: The prompt.
        whole: The prompt and its continuation, as its tokens spell them.
    """
    boundary = len(prompt.tokens)
    start = whole.spans[boundary][0]
    text = prompt.texts[0]
    spans = [(begin - start + len(text), end - start + len(text)) for begin, end in whole.spans[boundary:]]
    written = text + whole.texts[0][start:]
    return replace(
        prompt,
        tokens=(*prompt.tokens, *whole.tokens[boundary:]),
        spans=(*prompt.spans, *spans),
        special=(*prompt.special, *whole.special[boundary:]),
        segment=(*prompt.segment, *(0 for _ in spans)),
        texts=(written,),
        words=(None,),
        boundary=boundary,
        chat=None if prompt.chat is None else prompt.chat.continued(written, len(text)),
    )


def reads_twice(model: Any) -> bool:
    """Return whether an encoder-decoder classifies a text, or finds an answer in it, that both sides read."""
    return any(is_a(model, f"For{task}") for task in ("SequenceClassification", "QuestionAnswering"))


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _read_by_decoder(model: Any, reader: Any, sample: Sample) -> list[int]:
    """Return the ids that a model gives to its decoder by itself: those of the text, shifted."""
    read: list[list[int]] = []

    def store(_: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if isinstance(ids, torch.Tensor):
            read.append(ids[0].tolist())

    handle = model.get_decoder().register_forward_pre_hook(store, with_kwargs=True)
    inputs = collate(model, reader, [sample])
    try:
        with told_of_pass(model, inputs):
            model(**inputs)
    finally:
        handle.remove()
    return read[0] if read else list(sample.ids or ())


def _start_of(model: Any) -> int:
    """Return the id that the decoder begins with."""
    start = getattr(model.config, "decoder_start_token_id", None)
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", start) or start
    others = (getattr(model.config, f"{name}_token_id", None) for name in ("bos", "pad"))
    return next((i for i in (start, *others) if isinstance(i, int)), 0)


def _target_ids(model: Any, reader: Any, sample: Sample, target: str) -> list[int]:
    """Return the ids of a decoder's text after its start.

    Some tokenizers write the start themselves, and further tokens before a text (Whisper's language, task and
    "no timestamps"); these are not written twice. Where the model generates in several languages and the
    tokenizer names none, the text begins with the tokens that the model generates first.
    """
    start, end = _start_of(model), getattr(reader, "eos_token_id", None)
    ids = [i for i in reader(text_target=well_formed(target))["input_ids"] if i != end]
    if ids[:1] != [start]:
        return [start, *ids]
    options = getattr(model, "generation_config", None)
    languages = set((getattr(options, "lang_to_id", None) or {}).values())
    if not languages or languages & set(ids) or not can_generate(model):
        return ids
    begun, boundary = _generate(model, reader, sample, 1)
    return begun[:boundary] + reader(text_target=well_formed(target), add_special_tokens=False)["input_ids"]


def _generate(model: Any, reader: Any, sample: Sample, new: int) -> tuple[list[int], int]:
    """Return the ids of a greedy generation with its prompt (or decoder start), and where it begins."""
    if not can_generate(model):
        raise ValueError(
            f"max_new_tokens needs a model that generates, and {type(model).__name__} does not; "
            "load it with a language-model head (AutoModelForCausalLM or AutoModelForSeq2SeqLM)"
        )
    prompt = replace(sample, decoder_ids=None)
    inputs = collate(model, reader, [prompt])
    if "input_ids" in inputs:
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    options = greedy(model, new)
    options.return_dict_in_generate = True
    # Logits are returned for new tokens alone; only the model knows how many tokens its decoder starts with.
    options.output_logits = "decoder_input_ids" in forward_parameters(model)
    with quietly(), told_of_pass(model, inputs):
        produced = model.generate(**inputs, generation_config=options)
    ids = [int(i) for i in produced.sequences[0]]
    return ids, len(ids) - len(produced.logits or ())


def greedy(model: Any, new: int) -> Any:
    """Return options for `generate` to take the most probable token `new` times, and nothing else.

    Only those options of the model are copied that say where a text begins and ends and which ids it never
    holds, and those of its family (the languages and tasks of Whisper). Beams, penalties, stop strings and
    leftovers from other work are dropped.
    """
    from transformers import GenerationConfig

    class Alone(GenerationConfig):
        def update(self, *flags: Any, allow_custom_entries: bool = False, **values: Any) -> Any:
            # With this flag, `generate` fills unset options from the model's.
            return values if allow_custom_entries else cast("Any", super()).update(*flags, **values)

    # Whisper's `generate` omits the decoder's first tokens, except in this mode.
    options = cast("Any", Alone)(max_new_tokens=new, force_unique_generate_call=True)
    for name, value in vars(model.generation_config).items():
        if name.endswith(_OF_THE_MODEL) or not hasattr(options, name):
            setattr(options, name, copy.deepcopy(value))
    if options.pad_token_id is None:
        ends = options.eos_token_id
        options.pad_token_id = ends[0] if isinstance(ends, list) else ends if ends is not None else 0
    return options
