"""Images and audio as samples."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from math import gcd
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._selecting import listed
from attnwidgets.tracing.media.picture import as_given, seen_by, seen_pixels
from attnwidgets.tracing.media.sound import Sound, convolutions_of
from attnwidgets.tracing.recording.inputs import Sample, text_of_ids, text_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RATE = 16_000
_SOUNDS = ("input_features", "input_values")  # input names of models for a spectrogram, and for samples
_CHANNELS = 2  # dimensions of samples by channel
_FRAMES = 100  # in a second of a spectrogram, where a feature extractor does not say


def image_sample(processor: Any, image: Any, text: str | None) -> Sample:
    """Return the sample of an image, and of the text that a processor of both reads with it.

    Without a processor `image` is the model's input: a float tensor [channel, height, width].
    """
    if processor is None:
        pixels = torch.as_tensor(image)
        if pixels.dim() not in (3, 4) or not pixels.is_floating_point():
            raise ValueError(
                "image without a processor must be a float tensor [channel, height, width], "
                f"not {pixels.dtype} {tuple(pixels.shape)}; pass the model's processor to read other images"
            )
        if not bool(pixels.isfinite().all()):
            raise ValueError("image holds NaN or infinity: its pixels must be numbers")
        pixels = pixels.reshape(1, *pixels.shape[-3:])
        return Sample(
            others={"pixel_values": pixels}, picture=seen_pixels(pixels[0].detach().float().numpy())
        )
    _require_reader(processor, "image", "image_processor")
    if text is not None and text_tokenizer(processor) is None:
        raise ValueError(f"text was given with image, but {type(processor).__name__} reads images only")
    image = _opened(image)
    if text is None and _are_several(image):
        raise ValueError(
            f"image must be one picture, not {len(image)}; a trace of each is "
            "[aw.trace(model, processor, image=one) for one in pictures]"
        )
    original, warning = as_given(image)
    reader = getattr(processor, "image_processor", processor)
    image = image if original is None else _for_reader(original)
    if text is None:
        read, ids, shown = dict(reader(images=image, return_tensors="pt")), None, None
    else:
        read = dict(processor(text=[text], images=image, return_tensors="pt"))
        read.pop("attention_mask", None)
        ids = read.pop("input_ids")[0].tolist()
        shown = text_of_ids(text_tokenizer(processor), ids)

    def reads(pixels: NDArray[np.uint8]) -> dict[str, Any]:
        return dict(reader(images=_for_reader(pixels), return_tensors="pt"))

    picture = None if original is None else seen_by(reads, original, read)
    return Sample(ids, shown, others=read, warning=warning, picture=picture)


def _are_several(image: Any) -> bool:
    """Return whether an argument is a list of pictures, not a picture as nested lists of numbers."""
    first = image[0] if isinstance(image, (list, tuple)) and image else None
    is_picture = hasattr(first, "getbands") or getattr(first, "ndim", 0) > 1
    return is_picture or isinstance(first, (str, PathLike))


def _opened(image: Any) -> Any:
    """Return the picture that a file holds, if it is a path; an address is left to the processor.

    Raises:
        ValueError: If the file does not exist or is not a picture.
    """
    if not isinstance(image, (str, PathLike)) or str(image).startswith(("http:", "https:", "data:")):
        return image
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(image) as opened:
            return ImageOps.exif_transpose(opened)  # upright, as its metadata says
    except UnidentifiedImageError:
        raise ValueError(f"image={str(image)!r} is a file that holds no picture") from None
    except OSError as error:
        raise ValueError(f"image={str(image)!r} cannot be read: {error.strerror or error}") from None


def _for_reader(pixels: NDArray[np.uint8]) -> Any:
    """Return pixels [row, column, channel] as a picture, of which no processor must guess the axes."""
    from PIL import Image

    return Image.fromarray(pixels)


def audio_sample(model: Any, processor: Any, audio: Any, rate: int | None) -> Sample:
    """Return the sample of a recording: samples [time] at `rate` hertz (by default the processor's rate).

    Without a processor `audio` is the model's input (wav2vec2's normalised samples, or a spectrogram
    [feature, frame], the times of whose frames are unknown).

    Raises:
        ValueError: If samples are empty, not one channel of numbers, or at another rate than the
            processor's, or fewer than the model needs for one frame; the message says how to change them.
    """
    audio, rate = _samples_of(audio, rate)
    wave = torch.as_tensor(audio)
    wave = wave[0] if processor is not None and wave.dim() == _CHANNELS and len(wave) == 1 else wave
    if processor is None and wave.dim() > 1:
        return Sample(others={"input_features": wave.reshape(1, *wave.shape[-2:])})  # [batch, feature, frame]
    if processor is not None:
        _require_reader(processor, "audio", "feature_extractor")
    reader = getattr(processor, "feature_extractor", processor)
    reader_rate = getattr(reader, "sampling_rate", None)
    hertz = int(rate or reader_rate or _RATE)
    _require_wave(wave, hertz)
    wave = wave.detach().float().cpu()
    _require_enough(model, wave, hertz)
    seconds = len(wave) / hertz
    if processor is None:
        return Sample(others={"input_values": wave.reshape(1, -1)}, sound=Sound(wave.numpy(), hertz, seconds))
    if reader_rate and int(reader_rate) != hertz:
        up, down = (number // gcd(int(reader_rate), hertz) for number in (int(reader_rate), hertz))
        raise ValueError(
            f"audio is at {hertz:,} Hz, and {type(reader).__name__} reads {reader_rate:,} Hz: pass "
            f"audio=scipy.signal.resample_poly(audio, {up}, {down}), sampling_rate={reader_rate}"
        )
    read = dict(reader(wave.numpy(), sampling_rate=hertz, return_tensors="pt"))
    read.pop("attention_mask", None)
    _require_fit(model, reader, read)
    hop = chunk = None
    if "input_features" in read:
        hop = int(getattr(reader, "hop_length", None) or hertz // _FRAMES)
        chunk = getattr(reader, "chunk_length", None)
    heard = seconds if chunk is None else min(seconds, float(chunk))
    warning = "" if heard == seconds else f"sound cut from {seconds:,.1f} to {heard:g} seconds"
    return Sample(others=read, sound=Sound(wave.numpy(), hertz, heard, hop), warning=warning)


def _samples_of(audio: Any, rate: int | None) -> tuple[Any, int | None]:
    """Return the samples and the rate of a file, or of a data set's entry or decoder; others unchanged.

    Raises:
        ValueError: If a file cannot be read, or its rate differs from `rate`.
    """
    stored_rate: int | None = None
    if isinstance(audio, (str, PathLike)):
        audio, stored_rate = _sound_in(str(audio))
    elif isinstance(audio, Mapping):
        samples = next((audio[name] for name in ("array", "raw") if name in audio), None)
        if samples is None:
            raise ValueError(
                f"audio is a mapping with {listed(audio)}; one of a data set has 'array' and 'sampling_rate'"
            )
        audio, stored_rate = samples, audio.get("sampling_rate")
    elif callable(getattr(audio, "get_all_samples", None)):  # torchcodec's, of data sets
        decoded = audio.get_all_samples()
        audio, stored_rate = decoded.data, decoded.sample_rate
    if stored_rate is not None and rate is not None and int(stored_rate) != int(rate):
        raise ValueError(
            f"audio is at {int(stored_rate):,} Hz, and sampling_rate says {int(rate):,}: leave it out"
        )
    return audio, rate if stored_rate is None else int(stored_rate)


def _sound_in(path: str) -> tuple[Any, int]:
    """Return samples [channel, time] and the rate of a sound file: any that soundfile reads, or WAV."""
    import numpy as np

    try:
        if find_spec("soundfile") is not None:
            import soundfile

            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        else:
            from scipy.io import wavfile

            rate, samples = wavfile.read(path)
            if samples.dtype.kind in "iu":
                low = np.iinfo(samples.dtype)
                middle = 0 if samples.dtype.kind == "i" else (low.max + 1) // 2
                samples = (samples.astype(np.float32) - middle) / (low.max - middle + 1)
    except OSError as error:
        raise ValueError(f"audio={path!r} cannot be read: {error.strerror or error}") from None
    except (ValueError, RuntimeError) as error:
        more = "" if find_spec("soundfile") else " (WAV only; pip install soundfile reads others)"
        raise ValueError(f"audio={path!r} holds no sound that can be read{more}: {error}") from None
    return np.atleast_2d(samples.astype(np.float32, copy=False).T), int(rate)


def _require_wave(wave: torch.Tensor, hertz: int) -> None:
    """Raise a ValueError unless these are samples of a single channel."""
    if hertz <= 0:
        raise ValueError(f"sampling_rate must be above 0, the samples in a second, not {hertz}")
    if wave.dim() != 1:
        channels = " Of several channels, take the mean: audio.mean(axis=...)" if wave.dim() == 2 else ""  # noqa: PLR2004
        raise ValueError(f"audio must be one channel of samples [time], not {tuple(wave.shape)}.{channels}")
    if not wave.numel():
        raise ValueError("audio is empty: give at least one sample")
    if not wave.is_floating_point():
        raise ValueError(
            f"audio must be floats between -1 and 1, not {wave.dtype}; 16-bit samples are audio / 32768"
        )
    wrong = (~wave.isfinite()).nonzero()
    if len(wrong):
        raise ValueError(f"audio[{int(wrong[0])}] is {float(wave[wrong[0]])}: samples must be finite numbers")


def _require_enough(model: Any, wave: torch.Tensor, hertz: int) -> None:
    """Raise a ValueError if a sound is shorter than a frame of a model that reads samples."""
    config = getattr(model, "config", None)
    result = convolutions_of(getattr(config, "encoder", config))
    if result is not None and len(wave) < result[1]:
        raise ValueError(
            f"audio has {len(wave)} samples ({len(wave) / hertz:.3f} s), and one frame of the model reads "
            f"{result[1]} ({result[1] / hertz:.3f} s)"
        )


def _require_fit(model: Any, reader: Any, read: Mapping[str, Any]) -> None:
    """Raise a ValueError if a processor returns other inputs for a sound than the model reads."""
    input_name = getattr(model, "main_input_name", None)
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    features = read.get("input_features")
    if input_name in _SOUNDS and input_name not in read:
        fault = (
            f"{type(model).__name__} reads {input_name}, and {type(reader).__name__} makes {', '.join(read)}"
        )
    elif input_name == "input_features" and bins and int(bins) not in features.shape[1:]:  # type: ignore[union-attr]
        count = getattr(reader, "feature_size", "others")
        fault = f"{type(model).__name__} reads {bins} bands, and {type(reader).__name__} makes {count}"
    else:
        return
    raise ValueError(f"audio cannot be read: {fault}. Pass the processor that was saved with the model")


def _require_reader(processor: Any, kind: str, part: str) -> None:
    """Raise a ValueError unless a processor reads `kind`: it reads text only, or the other medium."""
    media = ("pictures", "sound") if kind == "image" else ("sound", "pictures")
    reader = getattr(processor, "feature_extractor", processor)
    sounds = hasattr(reader, "sampling_rate")
    pictures = not sounds and "pixel_values" in (getattr(reader, "model_input_names", None) or ())
    if not hasattr(processor, part) and (sounds if kind == "image" else pictures):
        raise ValueError(
            f"{kind} needs a processor of {media[0]}, and {type(processor).__name__} reads {media[1]}; pass "
            "the model's processor (transformers.AutoProcessor)"
        )
    if text_tokenizer(processor) is processor and not hasattr(processor, part):
        raise ValueError(
            f"{kind} needs a processor, and {type(processor).__name__} reads text only; pass the model's "
            "processor (transformers.AutoProcessor)"
        )
