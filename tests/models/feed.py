"""The inputs of a tiny model: token ids, and a picture or sound where its type needs them."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import torch

from tests.models.shrink import FEATURES, MEDIA_IDS, SIDE, configs_in
from tests.models.single_types import BY_HAND
from tests.tracing.families import noise
from tests.tracing.pictures import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.models.build import Kind

IDS = [21, 58, 33, 97, 64, 45, 72]
_WRITTEN = 3  # tokens that encoder-decoders write
_WAVE, _FRAMES = 1600, 40
_FEWEST = (1, 4, 9, 16, 17, 2, 8, 32, 64)
"""Numbers of tokens that a picture may take, where a model does not say."""


class Listener(Reader):
    """A processor of sound that hands on given features."""

    def feature_extractor(self, *_: Any, **__: Any) -> dict[str, Any]:
        return dict(self.inputs)


class NotFedError(Exception):
    """There is no input that a type's model reads."""


def feed(model: Any, kind: Kind) -> dict[str, Any]:
    """Return the arguments of `aw.trace`, by keyword, such that the model itself can read them.

    Raises:
        NotFedError: The model fails at every input that was tried; the message is the first error.
    """
    if kind.name in BY_HAND:
        return dict(BY_HAND[kind.name].given)
    faults: dict[str, None] = {}
    for inputs in _candidates(model, kind):
        if not (problem := _problem(model, kind, inputs)):
            return _as_given(inputs) | _continued(model, inputs)
        faults[problem] = None
    raise NotFedError(next(iter(faults), f"it reads {', '.join(_required(model))}"))


def _problem(model: Any, kind: Kind, inputs: dict[str, Any]) -> str:
    """Return why a model cannot be traced on inputs; "" if it can."""
    try:
        with torch.no_grad():
            if not next(tensors_of(plain(model, inputs))).isfinite().all():
                return "its output is NaN or infinite"
            if kind.picture and not _reads_picture(model, inputs):
                return "no change of the picture changes its output"
    except Exception as error:  # noqa: BLE001 - whatever a model raises at an input that is not its kind
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    read = {"input_ids", "input_values", "input_features", "pixel_values"} & inputs.keys()
    return "" if read else f"it reads {', '.join(inputs)}"


def plain(model: Any, inputs: dict[str, Any]) -> Any:
    """Return a model's outputs for inputs; a decoder reads a start token where inputs name none."""
    starts = "decoder_input_ids" in parameters_of(model) and "decoder_input_ids" not in inputs
    return model(**inputs, **({"decoder_input_ids": torch.tensor([[1]])} if starts else {}))


def _continued(model: Any, inputs: dict[str, Any]) -> dict[str, int]:
    """Return how many tokens an encoder-decoder writes: none, where it cannot generate."""
    if "decoder_input_ids" not in parameters_of(model):
        return {}
    try:
        model.generate(**inputs, max_new_tokens=_WRITTEN, do_sample=False)
    except Exception:  # noqa: BLE001 - see above
        return {}
    return {"max_new_tokens": _WRITTEN}


def _as_given(inputs: dict[str, Any]) -> dict[str, Any]:
    pixels = inputs.get("pixel_values")
    if set(inputs) == {"input_ids"}:
        return {"input_ids": inputs["input_ids"][0].tolist()}
    if {"input_values", "input_features"} & inputs.keys():
        return {"tokenizer": Listener(inputs, None), "audio": noise(_WAVE)}
    picture = noise(3, SIDE, SIDE)
    if set(inputs) == {"pixel_values"} and pixels.dim() == len("bchw"):
        return {"image": pixels[0]}
    others = dict(inputs)
    ids = others.pop("input_ids", None)
    reader = Reader(others, None if ids is None else ids[0].tolist())
    return {"tokenizer": reader, "text": None if ids is None else "the cat", "image": picture}


def _reads_picture(model: Any, inputs: dict[str, Any]) -> bool:
    first = next(tensors_of(plain(model, inputs)))
    changed = next(tensors_of(plain(model, inputs | {"pixel_values": inputs["pixel_values"].flip(-1) + 1})))
    return first.shape == changed.shape and not torch.allclose(first, changed)


def tensors_of(outputs: Any) -> Iterator[torch.Tensor]:
    """Yield the numbers that a model returns."""
    for value in outputs.values() if hasattr(outputs, "values") else outputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield value


def _required(model: Any) -> list[str]:
    parameters = inspect.signature(model.forward).parameters.values()
    names = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return names or [model.main_input_name]


def parameters_of(model: Any) -> tuple[str, ...]:
    """Return the names of a model's arguments."""
    return tuple(inspect.signature(model.forward).parameters)


def _candidates(model: Any, kind: Kind) -> Iterator[dict[str, Any]]:
    names = parameters_of(model)
    text = {"input_ids": torch.tensor([IDS])}
    if kind.picture:
        for pixels in _pictures(model):
            yield from _with_tokens(model, pixels)
        return
    if "input_ids" in names:
        yield text
    yield from _sounds(model)
    if "pixel_values" in names:
        for pixels in _pictures(model):
            yield pixels
            if "input_ids" in names:
                yield {**pixels, **text}


def _sounds(model: Any) -> Iterator[dict[str, Any]]:
    """Yield sound in the forms in which models read it: samples, or bands of a spectrogram."""
    names = parameters_of(model)
    if "input_values" in names:
        yield {"input_values": noise(1, _WAVE)}
        yield {"input_values": noise(1, 1, _WAVE)}
        yield {"input_values": noise(1, 64, _bands(model))}
    if "input_features" in names:
        marked = [name for name in ("input_features_mask", "feature_attention_mask") if name in names]
        for bands in dict.fromkeys((_bands(model), FEATURES, 80, 128)):
            for shape in ((1, bands, _FRAMES), (1, _FRAMES, bands)):
                features = {"input_features": noise(*shape)}
                yield features
                yield from (features | {name: torch.ones(1, _FRAMES, dtype=torch.long)} for name in marked)


def _bands(model: Any) -> int:
    result = (getattr(part, "num_mel_bins", None) for part in configs_in(model.config))
    return next((bands for bands in result if isinstance(bands, int)), FEATURES)


def _pictures(model: Any) -> Iterator[dict[str, Any]]:
    """Yield a picture in the forms in which models read them."""
    names = parameters_of(model)
    parts = list(configs_in(model.config))
    sizes = [getattr(part, "image_size", None) for part in reversed(parts)]
    sizes = [size[0] if isinstance(size, (list, tuple)) else size for size in sizes]
    side = next((size for size in sizes if isinstance(size, int) and size > 0), SIDE)
    channels = next((n for part in parts if isinstance(n := getattr(part, "num_channels", None), int)), 3)
    single = [noise(1, channels, size, size) for size in dict.fromkeys((side, 2 * SIDE, 224))]
    for shaped in (*single, single[0][None], noise(1, 2, channels, side, side)):
        if "image_sizes" in names:
            yield {"pixel_values": shaped, "image_sizes": torch.tensor([[side, side]])}
        yield {"pixel_values": shaped}
    patch = next((n for part in parts if isinstance(n := getattr(part, "patch_size", None), int)), 7)
    for grid_name in ("image_grid_thw", "grid_thw", "image_grid_hws", "target_sizes"):
        if grid_name in names:
            grid = [[4, 4]] if grid_name in ("image_grid_hws", "target_sizes") else [[1, 4, 4]]
            for frames in (1, 2):
                row = noise(16, channels * frames * patch**2)
                yield {"pixel_values": row, grid_name: torch.tensor(grid)}
    if "image_position_ids" in names:
        positions = torch.tensor([[[row, column] for row in range(4) for column in range(4)]])
        yield {"pixel_values": noise(1, 16, channels * patch**2), "image_position_ids": positions}
    if "image_token_pooling" in names:  # the whole picture and a crop, patches in fours
        fours = [
            [n, n + 1, n + 4, n + 5] for start in (0, 16) for n in (start, start + 2, start + 8, start + 10)
        ]
        yield {
            "pixel_values": noise(2, 16, channels * patch**2),
            "image_token_pooling": torch.tensor(fours),
            "image_grids": torch.tensor([[2, 2, 2, 2]]),
        }
    if "spatial_shapes" in names:
        for count in (16, 256):
            packed = torch.nn.functional.pad(noise(1, 16, channels * patch**2), (0, 0, 0, count - 16))
            mask = torch.tensor([[1] * 16 + [0] * (count - 16)])
            yield {
                "pixel_values": packed,
                "pixel_attention_mask": mask,
                "spatial_shapes": torch.tensor([[4, 4]]),
            }


def _with_tokens(model: Any, pixels: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a picture with a text that holds as many tokens for it as the model makes of it."""
    names = parameters_of(model)
    numbers = (getattr(model.config, name, None) for name in ("image_token_id", "image_token_index"))
    token = next((number for number in numbers if isinstance(number, int)), MEDIA_IDS["image"])

    def inputs(count: int) -> dict[str, Any]:
        ids = [*IDS[:2], *[token] * count, *IDS[2:]]
        given = {**pixels, "input_ids": torch.tensor([ids])}
        if "mm_token_type_ids" in names:
            given["mm_token_type_ids"] = torch.tensor([[int(number == token) for number in ids]])
        return given

    counts = list(_FEWEST)
    try:
        with torch.no_grad():
            plain(model, inputs(1))
    except Exception as error:  # noqa: BLE001 - it says how many tokens there should be
        counts = [*(n for n in map(int, re.findall(r"\b\d{1,3}\b", str(error))) if n > 1), *counts]
    yield from (inputs(count) for count in dict.fromkeys([*counts, 0]) if count < 300)
