"""Images and audio as samples."""

from __future__ import annotations

from typing import Any

import torch

from attnwidgets.tracing.recording.inputs import Sample, text_of_ids, text_tokenizer

_RATE = 16_000


def image_sample(processor: Any, image: Any, text: str | None) -> Sample:
    """Return one image, with the text that a two-tower or vision-language processor reads with it.

    Without a processor `image` is the model's input: a float tensor [channel, height, width].
    """
    if processor is None:
        pixels = torch.as_tensor(image)
        if pixels.dim() not in (3, 4) or not pixels.is_floating_point():
            raise ValueError(
                "image without a processor must be a float tensor [channel, height, width], "
                f"not {pixels.dtype} {tuple(pixels.shape)}; pass the model's processor to read other images"
            )
        return Sample(others={"pixel_values": pixels.reshape(1, *pixels.shape[-3:])})
    _require_reader(processor, "image", "image_processor")
    if text is not None and text_tokenizer(processor) is None:
        raise ValueError(f"text was given with image, but {type(processor).__name__} reads images only")
    if text is None:
        reader = getattr(processor, "image_processor", processor)
        return Sample(others=dict(reader(images=image, return_tensors="pt")))
    read = dict(processor(text=[text], images=image, return_tensors="pt"))
    read.pop("attention_mask", None)
    ids = read.pop("input_ids")[0].tolist()
    return Sample(ids, text_of_ids(text_tokenizer(processor), ids), others=read)


def audio_sample(processor: Any, audio: Any, rate: int | None) -> Sample:
    """Return one recording: samples [time] at `rate` hertz (by default the processor's own rate).

    Without a processor `audio` is the model's input (wav2vec2's normalised samples).
    """
    wave = torch.as_tensor(audio)
    if processor is None:
        if wave.dim() == 1:
            wave = wave.float()
            return Sample(others={"input_values": wave.reshape(1, -1)}, seconds=len(wave) / (rate or _RATE))
        features = wave.reshape(1, *wave.shape[-2:])  # [batch, feature, frame]
        return Sample(others={"input_features": features})
    _require_reader(processor, "audio", "feature_extractor")
    if wave.dim() != 1:
        raise ValueError(f"audio must be one channel of samples [time], not {tuple(wave.shape)}")
    reader = getattr(processor, "feature_extractor", processor)
    hertz = int(rate or getattr(reader, "sampling_rate", None) or _RATE)
    read = dict(reader(wave.numpy(), sampling_rate=hertz, return_tensors="pt"))
    read.pop("attention_mask", None)
    seconds = len(wave) / hertz
    if "input_features" in read and getattr(reader, "chunk_length", None):
        # Whisper pads every recording to one chunk.
        seconds = float(reader.chunk_length)
    return Sample(others=read, seconds=seconds)


def _require_reader(processor: Any, kind: str, part: str) -> None:
    """Raise a ValueError for a tokenizer in place of a processor that reads images or audio."""
    if text_tokenizer(processor) is processor and not hasattr(processor, part):
        raise ValueError(
            f"{kind} needs a processor, and {type(processor).__name__} reads text only; pass the model's "
            "processor (transformers.AutoProcessor)"
        )
