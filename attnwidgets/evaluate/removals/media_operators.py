"""Parts removed from a picture or a sound: patches by blur, colour or neighbours; frames silenced.

Patches are replaced in the pixels that the model reads, after the processor, so that nothing is resized again
(`PictureRemoval`). Frames are silenced in the samples, which the feature extractor then reads again, since
its features overlap (`silenced_inputs`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.evaluate.arrays import Bools
    from attnwidgets.explanations.attribution.input_planes import InputPlane
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

PictureOperator = Literal["blur", "mean_image", "zero_image", "neighbours"]
PICTURE_OPERATORS: tuple[PictureOperator, ...] = ("blur", "mean_image", "zero_image", "neighbours")
"""blur: replaces the patch by the picture blurred with a Gaussian whose sigma is the longer side of a patch.
mean_image: by the mean colour of the picture. zero_image: by black, as the processor makes it; without a
processor, by zeros of the model's input. neighbours: every removed pixel becomes a weighted mean of its
neighbours, with a little noise; other pixels do not change."""

PAPERS = {
    "neighbours": "Rong et al. 2022, A Consistent and Efficient Evaluation Strategy for Attribution Methods"
}
_REACH = 3  # sigmas of the blur's kernel on each side
_NOISE = 0.01  # of the authors, in units of the model's normalised input
_DIRECT, _DIAGONAL = 1 / 6, 1 / 12  # weights of the authors

SoundOperator = Literal["silence"]
SOUND_OPERATORS: tuple[SoundOperator, ...] = ("silence",)
"""silence: the samples of a frame become zeros, from its beginning to that of the next frame, before the
feature extractor reads them."""


def refusal_of_pictures(trace: Trace, stack: str) -> str:
    """Return why no patch of a stack can be removed from the picture, or ""."""
    plane = _plane(trace)
    if plane is None:
        return "the model reads no picture by patches"
    return "" if plane.stack == stack else f"the picture's patches are in stack {plane.stack!r}"


def _plane(trace: Trace) -> InputPlane | None:
    from attnwidgets.explanations.attribution.input_planes import input_plane

    plane = input_plane(trace)
    return plane if plane is not None and plane.unit == "pixel" else None


@dataclass(frozen=True)
class PictureRemoval:
    """Removes patches from the picture of a trace by an operator.

    Args:
        trace: The trace.
        operator: The operator.
    """

    trace: Trace
    operator: PictureOperator

    def inputs(self, gone: Bools) -> dict[str, Any]:
        """Return the model's inputs with patches removed.

        Args:
            gone: Mask of the removed tokens [variant, token]; class and register tokens have no pixels, and
                stay.
        """
        import torch

        from attnwidgets.tracing.recording.batch import in_copies

        plane = _plane(self.trace)
        if plane is None:
            raise ValueError("the model reads no picture by patches")
        inputs = in_copies(self.trace.inputs, len(gone))
        pixels: Tensor = self.trace.inputs[plane.name]
        in_patch = plane.part >= 0
        without = gone[:, plane.part] & in_patch  # [variant, row, column]
        if self.operator == "neighbours":
            filled = [imputed(pixels[0].detach().float().cpu().numpy(), mask) for mask in without]
            return inputs | {plane.name: torch.from_numpy(np.stack(filled)).to(pixels)}
        replacement = self._replacement(pixels, plane)
        where = torch.from_numpy(without).to(pixels.device)[:, None]
        return inputs | {plane.name: torch.where(where, replacement, pixels)}

    def _replacement(self, pixels: Tensor, plane: InputPlane) -> Tensor:
        """Return the values of removed pixels [batch, channel, row or 1, column or 1]."""
        import torch

        if self.operator == "mean_image":
            return pixels.mean((2, 3), keepdim=True)
        if self.operator == "zero_image":
            black = black_of(self.trace)
            return torch.zeros_like(pixels) if black is None else black.to(pixels)[None, :, None, None]
        rows, columns = self.trace.axes(plane.stack)[0].units["patch"].grid or (1, 1)
        high, wide = plane.shape
        return blurred(pixels, max(high / rows, wide / columns))


def blurred(pixels: Tensor, sigma: float) -> Tensor:
    """Return pixels [batch, channel, row, column] under a Gaussian; outside, the edge is repeated."""
    import torch
    from torch.nn import functional

    reach = max(1, round(_REACH * sigma))
    steps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    kernel = torch.exp(-(steps**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).to(pixels)
    channels = pixels.shape[1]
    padded = functional.pad(pixels, (reach, reach, 0, 0), mode="replicate")
    across = functional.conv2d(padded, kernel.expand(channels, 1, 1, -1), groups=channels)
    padded = functional.pad(across, (0, 0, reach, reach), mode="replicate")
    return functional.conv2d(padded, kernel[:, None].expand(channels, 1, -1, 1), groups=channels)


def black_of(trace: Trace) -> Tensor | None:
    """Return black as a trace's processor normalises it [channel]; None without a processor of pictures."""
    import torch

    reader = getattr(trace.tokenizer, "image_processor", trace.tokenizer)
    if not callable(reader):
        return None
    from PIL import Image

    read = reader(images=Image.fromarray(np.zeros((32, 32, 3), np.uint8)), return_tensors="pt")
    pixels = dict(read).get("pixel_values")
    if not isinstance(pixels, torch.Tensor):
        return None
    plain = pixels.reshape(pixels.shape[-3:])
    # In the middle, as there may be padding around it.
    return plain[:, plain.shape[1] // 2, plain.shape[2] // 2]


def imputed(pixels: NDArray[np.floating], gone: Bools) -> NDArray[np.floating]:
    """Return a picture whose removed pixels are filled in by their neighbours: noisy linear imputation.

    Every removed pixel equals the mean of its eight neighbours, direct neighbours with weight 1/6
    and diagonal neighbours with 1/12 (divided by the sum over neighbours in the picture): a system of linear
    equations. Then normal noise of 0.01 is added. If no pixel is left, the picture is the noise alone.

    Args:
        pixels: [channel, row, column].
        gone: Mask of the removed pixels [row, column].
    """
    from scipy import sparse
    from scipy.sparse.linalg import spsolve

    filled = np.array(pixels, dtype=np.float64)
    if not gone.any():
        return filled.astype(pixels.dtype)
    high, wide = gone.shape
    count = int(gone.sum())
    number = np.full(gone.shape, -1)
    number[gone] = np.arange(count)
    rows, columns = np.nonzero(gone)
    totals, right_side = np.zeros(count), np.zeros((count, len(filled)))
    entries: list[tuple[NDArray[np.intp], NDArray[np.intp], float]] = []
    for down in (-1, 0, 1):
        for across in (-1, 0, 1):
            if not (down or across):
                continue
            weight = _DIRECT if not (down and across) else _DIAGONAL
            near_rows, near_columns = rows + down, columns + across
            inside = np.flatnonzero(
                (near_rows >= 0) & (near_rows < high) & (near_columns >= 0) & (near_columns < wide)
            )
            totals[inside] += weight
            other = number[near_rows[inside], near_columns[inside]]
            also = other >= 0
            entries.append((inside[also], other[also], weight))
            present = inside[~also]  # with a neighbour that was not removed
            right_side[present] += weight * filled[:, near_rows[present], near_columns[present]].T
    if gone.all():
        result = np.zeros((count, len(filled)))
    else:
        indices = [np.concatenate([entry[side] for entry in entries]) for side in (0, 1)]
        weights = np.concatenate([np.full(len(entry[0]), -entry[2]) for entry in entries])
        system = sparse.csc_matrix((weights, (indices[0], indices[1])), shape=(count, count))
        result = np.asarray(spsolve(system + sparse.diags(totals, format="csc"), right_side)).reshape(
            count, -1
        )
    # The same noise whenever the same pixels are removed.
    noise = np.random.default_rng(zlib.crc32(np.packbits(gone).tobytes()))
    filled[:, rows, columns] = (result + _NOISE * noise.standard_normal(result.shape)).T
    return filled.astype(pixels.dtype)


def refusal_of_sound(trace: Trace, stack: str) -> str:
    """Return why nothing of a stack can be silenced in the sound, or ""."""
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
        stack: The stack whose elements are frames.
        gone: Mask of the silenced frames [variant, frame].
    """
    import torch

    from attnwidgets.tracing.recording.batch import in_copies

    frames = _frames(trace, stack)
    if frames is None or trace.sound is None:
        raise ValueError(refusal_of_sound(trace, stack))
    inputs = in_copies(trace.inputs, len(gone))
    name = "input_features" if "input_features" in inputs else "input_values"
    read = [_read(trace, silenced(trace, frames, item)) for item in gone]
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
    """Return the model's input for samples [1, ...]."""
    import torch

    reader = _reader(trace)
    if reader is None:
        return torch.from_numpy(wave)[None]
    read = dict(reader(wave, sampling_rate=trace.sound.rate if trace.sound else None, return_tensors="pt"))
    return read.get("input_features", read.get("input_values"))
