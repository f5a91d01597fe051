"""A user's sound, how much of it the model heard, and the axes of its frames with their times.

As in `patches`, a family is identified by the `model_type` of the config that its attention modules hold, and
frames of other families are numbered. Every line is tested by changing the sound in one frame and finding its
index (tests/tracing/test_frames.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from attnwidgets.tracing.media.patches import Inputs
    from attnwidgets.tracing.text.units import TokenAxis

PADDING = "[PAD]"
# Families whose convolutions over the samples stand in their config.
_CONVOLUTIONS = "wav2vec2 hubert wavlm sew sew-d unispeech unispeech-sat data2vec-audio wav2vec2-conformer"
# Kernels and strides of those that have them in their code.
_IN_CODE = {"moonshine": ((127, 7, 3), (64, 3, 2))}
_SPECTROGRAMS = "whisper speech_to_text"


@dataclass(frozen=True, eq=False)
class Sound:
    """A user's recording.

    Args:
        wave: Samples [time], float32; sound is between -1 and 1.
        rate: Samples in a second.
        heard: Seconds from the beginning that the model read; the rest was cut off.
        hop: Samples from one frame of the model's spectrogram to the next; None if it reads the samples.
    """

    wave: NDArray[np.float32]
    rate: int
    heard: float
    hop: int | None = None

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return len(self.wave) / self.rate

    def __repr__(self) -> str:
        cut = f", of which the model read {self.heard:.2f} s" if self.heard < self.seconds else ""
        return f"<Sound of {self.seconds:.2f} s at {self.rate:,} Hz{cut}>"


def convolutions_of(config: Any) -> tuple[int, int] | None:
    """Return samples from frame to frame and samples that a frame reads, of a family that reads samples.

    None for another family. The hop is the product of the strides, the width the receptive field.
    """
    family = str(getattr(config, "model_type", ""))
    kernels: Sequence[int]
    strides: Sequence[int]
    if family in _CONVOLUTIONS.split():
        kernels, strides = config.conv_kernel, config.conv_stride
    elif family in _IN_CODE:
        kernels, strides = _IN_CODE[family]
    else:
        return None
    width = 1 + sum((kernel - 1) * prod(strides[:i]) for i, kernel in enumerate(kernels))
    # SEW's encoder reads the mean of so many frames.
    merged = int(getattr(config, "squeeze_factor", None) or 1)
    hop = prod(strides)
    return hop * merged, width + hop * (merged - 1)


def frame_axis(config: Any, sound: Sound, inputs: Inputs, n: int) -> TokenAxis | None:
    """Return the axis of `n` frames of a sound; None if their times are unknown.

    Frames that begin after the sound are padding: they are special, and named so.

    Args:
        config: Of the stack that reads the sound.
        sound: The sound that it reads.
        inputs: The model's inputs.
        n: Length of the axis.
    """
    result = convolutions_of(config)
    if result is None:
        shape = tuple(getattr(inputs.get("input_features"), "shape", ()))
        is_spectrogram = str(getattr(config, "model_type", "")) in _SPECTROGRAMS.split()
        if not is_spectrogram or sound.hop is None or not shape:
            return None
        # Whisper's features are [batch, bin, frame], Speech2Text's [batch, frame, bin].
        frames = max(shape[-2:], key=lambda count: (count != getattr(config, "num_mel_bins", None), count))
        result = (sound.hop * round(frames / n),) * 2
    step, width = (samples / sound.rate for samples in result)
    times = tuple((i * step, i * step + width) for i in range(n))
    padding = tuple(begin >= sound.heard for begin, _ in times)
    labels = tuple(
        PADDING if after else f"{begin:.2f}s" for (begin, _), after in zip(times, padding, strict=True)
    )
    return media_axis(Unit("frame", labels, tuple((i,) for i in range(n)), padding, times=times))
