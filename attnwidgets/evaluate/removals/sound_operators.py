"""Spans removed from a sound: frames are silenced in the samples, which the processor then reads again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Bools
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

SoundOperator = Literal["silence"]
SOUND_OPERATORS: tuple[SoundOperator, ...] = ("silence",)
"""silence: the samples of a frame become zeros, from where it begins to where the next one does, before the
feature extractor reads them."""


def refusal_of(trace: Trace, stack: str) -> str:
    """Return why nothing of a stack can be silenced in the sound; "" if it can."""
    if trace.sound is None:
        return "the model reads no sound"
    if stack not in trace.stacks or _frames(trace, stack) is None:
        return f"stack {stack!r} is not made of frames of the sound"
    if "input_features" in trace.inputs and _reader(trace) is None:
        return "no processor could read the silenced sound: trace with aw.trace(model, processor, audio=...)"
    return ""


def silenced_inputs(trace: Trace, stack: str, gone: Bools) -> dict[str, Any]:
    """Return a model's inputs with frames silenced.

    Args:
        trace: The trace.
        stack: The stack whose places are frames.
        gone: Which of them are silenced [variant, frame].
    """
    import torch

    from attnwidgets.tracing.recording.batch import in_copies

    frames = _frames(trace, stack)
    if frames is None or trace.sound is None:
        raise ValueError(refusal_of(trace, stack))
    inputs = in_copies(trace.inputs, len(gone))
    name = "input_features" if "input_features" in inputs else "input_values"
    read = [_read(trace, silenced(trace, frames, one)) for one in gone]
    before: Any = trace.inputs[name]
    return inputs | {name: torch.cat(read).to(device=before.device, dtype=before.dtype)}


def silenced(trace: Trace, frames: Unit, gone: Bools) -> NDArray[np.float32]:
    """Return the samples of a trace's sound with frames [frame] of it silenced."""
    sound = trace.sound
    assert sound is not None  # noqa: S101 - checked by the callers
    wave = np.array(sound.wave, dtype=np.float32)
    times = frames.times or ()
    step = times[1][0] - times[0][0] if len(times) > 1 and times[0] and times[1] else None
    for number in np.flatnonzero(gone):
        span = times[number]
        if span is not None:
            end = span[1] if step is None else span[0] + step
            wave[round(span[0] * sound.rate) : round(end * sound.rate)] = 0
    return wave


def _frames(trace: Trace, stack: str) -> Unit | None:
    unit = trace.axes(stack)[0].units.get("frame")
    return unit if unit is not None and unit.times is not None else None


def _reader(trace: Trace) -> Any:
    reader = getattr(trace.tokenizer, "feature_extractor", trace.tokenizer)
    return reader if callable(reader) and hasattr(reader, "sampling_rate") else None


def _read(trace: Trace, wave: NDArray[np.float32]) -> Any:
    """Return what the model is given of samples, [1, ...]."""
    import torch

    reader = _reader(trace)
    if reader is None:
        return torch.from_numpy(wave)[None]
    read = dict(reader(wave, sampling_rate=trace.sound.rate if trace.sound else None, return_tensors="pt"))
    return read.get("input_features", read.get("input_values"))
