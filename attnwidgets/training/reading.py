"""Checkpoints: models, folders of transformers, files of the zoo, and functions that load any of them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_module
from attnwidgets.zoo.trained_models import make_tokenizer, model_of, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    State = dict[str, Any]

_STEP = re.compile(r"(?:checkpoint|step)-(\d+)(?:\.safetensors)?")
_FORMS = (
    "a model, a folder of transformers (config.json and model.safetensors), a file of "
    "aw.zoo.train.run, or a function without arguments that returns a model or its state_dict"
)
ENDED = "training.json"
"""The file in which the callback of aw.zoo.train says how far training went."""


@dataclass(frozen=True)
class Checkpoint:
    """The weights after a number of steps.

    Attributes:
        step: The number of steps.
        state: Returns the weights by name.
        build: Returns a new model of the architecture, which the run may change.
        tokenizer: Returns the tokenizer that is stored with the weights, or None.
        sizes: Shapes by name without reading the weights; None where only loading tells.
        vocabulary: The content of the tokenizer's file; b"" without such a file.
    """

    step: int
    state: Callable[[], State]
    build: Callable[[], Any]
    tokenizer: Callable[[], Any] = lambda: None
    sizes: dict[str, tuple[int, ...]] | None = None
    vocabulary: bytes = b""


def listed(given: Any) -> list[tuple[int, Any]]:
    """Return checkpoints as pairs (step, item), in the order in which they were given.

    Args:
        given: A mapping of steps to items, or a folder whose entries are called checkpoint-500 or
            step-0500.safetensors.

    Raises:
        TypeError: For anything else, or a step that is not a whole number.
        ValueError: If there are no checkpoints, or steps are not distinct and ascending.
        FileNotFoundError: If the folder does not exist.
    """
    if isinstance(given, (str, Path)):
        pairs = sorted(_in_folder(Path(given)), key=lambda pair: pair[0])
    elif isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        raise TypeError(
            f"checkpoints must be a mapping of steps to models, or a folder, not {type(given).__name__}."
        )
    if not pairs:
        raise ValueError("checkpoints is empty: pass {step: model}, or a folder with checkpoint-500, ...")
    before = -1
    for step, _ in pairs:
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise TypeError(f"a step of checkpoints is {step!r}; steps are whole numbers from 0.")
        if step == before:
            raise ValueError(f"steps of checkpoints must be distinct: {step} is there twice.")
        if step < before:
            raise ValueError(f"steps of checkpoints must ascend: {step} comes after {before}.")
        before = step
    return pairs


def _in_folder(folder: Path) -> Iterator[tuple[int, Path]]:
    if not folder.is_dir():
        raise FileNotFoundError(f"folder {folder} does not exist.")
    for path in folder.iterdir():
        if match := _STEP.fullmatch(path.name):
            yield int(match[1]), path


def ended_of(folder: Any) -> str:
    """Return where training ended before its last step, as the callback's file says; "" if it did not."""
    path = Path(folder) / ENDED if isinstance(folder, (str, Path)) else None
    if path is None or not path.is_file():
        return ""
    said = json.loads(path.read_text(encoding="utf-8"))
    if said["step"] >= said["of"]:
        return ""
    return f"training ended at step {said['step']:,} of {said['of']:,}"


def checkpoint_of(step: int, item: Any) -> Checkpoint:
    """Return a checkpoint from whatever holds it.

    Raises:
        TypeError: If it is in another form.
        FileNotFoundError, ValueError: If a file is missing, or not in the safetensors format.
    """
    if is_module(item):
        return _of_model(step, item)
    if callable(item):
        return _of_function(step, item)
    if not isinstance(item, (str, Path)):
        raise TypeError(f"the checkpoint of step {step} is a {type(item).__name__}; it must be {_FORMS}.")
    path = Path(item)
    if not path.exists():
        raise FileNotFoundError(f"the checkpoint of step {step}, {path}, does not exist.")
    return _of_folder(step, path) if path.is_dir() else _of_zoo(step, path)


def _of_model(step: int, model: Any) -> Checkpoint:
    sizes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    return Checkpoint(step, model.state_dict, lambda: copy.deepcopy(model).eval(), sizes=sizes)


def _of_function(step: int, load: Callable[[], Any]) -> Checkpoint:
    def state() -> State:
        loaded = load()
        if is_module(loaded):
            return dict(loaded.state_dict())
        if not isinstance(loaded, Mapping):
            raise TypeError(
                f"the function of step {step} returned a {type(loaded).__name__}; return a model, or its "
                "state_dict."
            )
        return dict(loaded)

    def build() -> Any:
        loaded = load()
        if not is_module(loaded):
            raise TypeError(
                f"the function of the first step, {step}, returned a {type(loaded).__name__}; the first "
                "checkpoint must be a model, which says how to run the others."
            )
        return copy.deepcopy(loaded).eval()

    return Checkpoint(step, state, build)


def _of_zoo(step: int, path: Path) -> Checkpoint:
    metadata, tensors = read_file(path)
    sizes = {name: tuple(value.shape) for name, value in tensors.items()}
    return Checkpoint(
        step,
        lambda: read_file(path)[1],
        lambda: model_of(*read_file(path), path),
        lambda: make_tokenizer(metadata["tokenizer"]),
        sizes,
        json.dumps(metadata["tokenizer"], sort_keys=True).encode(),
    )


def _of_folder(step: int, folder: Path) -> Checkpoint:
    files = _weights_in(step, folder)
    vocabulary = folder / "tokenizer.json"
    return Checkpoint(
        step,
        lambda: _state_in(files),
        lambda: _built(folder),
        lambda: _tokenizer_in(folder),
        dict(_sizes_in(files)),
        vocabulary.read_bytes() if vocabulary.is_file() else b"",
    )


def _weights_in(step: int, folder: Path) -> list[Path]:
    """Return the files of a folder's weights: a single one, or shards."""
    if not (folder / "config.json").is_file():
        adapter = (folder / "adapter_config.json").is_file()
        why = "holds an adapter; merge it first" if adapter else "has no config.json"
        raise ValueError(f"the checkpoint of step {step}, {folder}, {why}.")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    if not (folder / "model.safetensors").is_file():
        raise ValueError(
            f"the checkpoint of step {step}, {folder}, holds no model.safetensors; pickled weights are not "
            "read: save it again with safetensors."
        )
    return [folder / "model.safetensors"]


def _sizes_in(files: Iterable[Path]) -> Iterator[tuple[str, tuple[int, ...]]]:
    from safetensors import safe_open

    for path in files:
        with safe_open(path, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no mapping
                yield name, tuple(opened.get_slice(name).get_shape())


def _state_in(files: Iterable[Path]) -> State:
    from safetensors.torch import load_file

    return {name: value for path in files for name, value in load_file(path).items()}


def _built(folder: Path) -> Any:
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    names = config.architectures or ["AutoModel"]
    kind = getattr(transformers, names[0], None)
    if kind is None:
        raise ValueError(f"{folder} names the class {names[0]!r}, which transformers does not have.")
    return kind.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()


def _tokenizer_in(folder: Path) -> Any:
    from transformers import AutoTokenizer

    if not (folder / "tokenizer_config.json").is_file():
        return None
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def require_alike(first: Checkpoint, other: Checkpoint) -> None:
    """Raise a ValueError that names the first parameter in which two checkpoints differ."""
    if first.sizes is not None and other.sizes is not None:
        require_sizes(first.step, first.sizes, other.step, other.sizes)
    if first.vocabulary and other.vocabulary and first.vocabulary != other.vocabulary:
        raise ValueError(
            f"the tokenizer of step {other.step} differs from that of step {first.step}: a run has a single "
            "vocabulary."
        )


def require_sizes(
    first: int, sizes: Mapping[str, tuple[int, ...]], step: int, others: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise a ValueError that names the first parameter whose shape differs at another step."""
    for name in dict.fromkeys((*sizes, *others)):
        here, there = sizes.get(name), others.get(name)
        if here != there:
            said = ["absent" if size is None else f"of shape {list(size)}" for size in (there, here)]
            raise ValueError(
                f"checkpoints are of different models: parameter {name!r} is {said[0]} at step {step}, and "
                f"{said[1]} at step {first}."
            )
