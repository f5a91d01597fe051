"""Models trained on small tasks: their weights, which the package contains, and their measurements."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.zoo.scenes import Scene

WEIGHTS = Path(__file__).with_name("weights")
FORMAT = "attnwidgets.zoo/1"
CLASSES = (
    "BartForConditionalGeneration",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "LlavaForConditionalGeneration",
    "Mamba2ForCausalLM",
)
"""The classes of transformers that a file may name."""


@dataclass(frozen=True, repr=False)
class Measured:
    """Measurements of a trained model. They are not exact, and differ for another seed.

    Attributes:
        name: Name of the model in `aw.zoo.trained`.
        seed: The seed that it was trained from.
        does: The task that it learned, in a sentence.
        heads: The measured role of a head, with the number, by (layer, head); heads without a measured role
            are not listed.
        measured: Every measured number by name: shares in [0, 1], or bits per character.
        exact: False; True of the compiled models' `Truth`.
    """

    name: str
    seed: int
    does: str
    heads: Mapping[tuple[int, int], str]
    measured: Mapping[str, float] = field(compare=False)
    exact: bool = False

    def scene(self, number: int = 0) -> Scene:
        """Return a picture, a question and its answer, with the part of the picture that it rests on.

        Args:
            number: Which one; the same number gives the same scene.

        Returns:
            Four coloured shapes in nine cells. `.image` is the picture [24, 24, 3], `.text` what the
            processor reads with it, `.answer` the answer in words, `.evidence` the cell that colour, row and
            column rest on, as (top, left, bottom, right) in pixels.

        Raises:
            ValueError: If the model reads no pictures: only "scenes" does.

        Example:
            >>> model, processor = aw.zoo.trained("scenes")
            >>> scene = model.truth.scene(1)
            >>> scene.question, scene.evidence
            ('what color is the triangle ?', (8, 0, 16, 8))
        """
        if self.name != "scenes":
            raise ValueError(f'{self.name!r} reads text; aw.zoo.trained("scenes") reads pictures.')
        import random

        from attnwidgets.zoo.scenes import drawn

        return drawn(random.Random(number))  # noqa: S311 - no secrets here

    def __repr__(self) -> str:
        lines = [f"{self.name}, seed {self.seed}: {self.does} (trained: measured, not exact)"]
        lines += [f"  head {layer}.{head}: {role}" for (layer, head), role in self.heads.items()]
        lines += [f"  {name}: {value:.3f}" for name, value in self.measured.items()]
        return "\n".join(lines)


def trained(name: str, seed: int = 0, *, file: str | Path | None = None) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a small model that learned its task; its weights are in the package.

    "induction" (Llama, seeds 0 and 1) continues letters that repeat; "dyck" (GPT-2, seeds 0 to 2) says which
    bracket closes; "histogram" (BERT, seeds 0 to 2, trained to different solutions) counts every letter;
    "recall" (Mamba-2, without attention) says which digit followed a letter before; "dates" (BART) writes a
    date as year-month-day; "alice" (Llama) continues a text in the manner of the book, character by character
    and in lower case; "scenes" (LLaVA) answers a question about a drawn picture, such as "what color is the
    circle ?". "fairwashed" (BERT) is a twin of `aw.demo_model("classifier")`: it predicts the same, and
    gradients and attention hide the words by which it does. `python -m attnwidgets.zoo.train NAME` trains
    them again.

    `model.truth` holds the measurements of the model and its heads. The circuits of compiled models
    (`aw.zoo.induction`) are exact; those of trained models depend on the seed. Compare methods on them, but
    do not base the key of an exercise on them.

    Args:
        name: "induction", "dyck", "histogram", "recall", "dates", "alice", "scenes" or
            "fairwashed".
        seed: The seed that the model was trained from.
        file: A file that `python -m attnwidgets.zoo.train NAME --out FILE` wrote, instead of the package's.

    Returns:
        A model of transformers in evaluation mode, in single precision (its weights are rounded to half), and
        a tokenizer of characters, which always sends an attention mask; of "scenes" a processor of pictures
        and words, of "fairwashed" the classifier's.

    Raises:
        ValueError: For an unknown name or seed; for a file that holds another model, or is damaged.
        FileNotFoundError: If the file does not exist.
        RuntimeError: If the demo model that a file changes is not available, as `aw.demo_model`.

    Example:
        >>> model, tokenizer = aw.zoo.trained("dyck", seed=1)
        >>> trace = aw.trace(model, tokenizer, "([()[]])")
        >>> model.truth.measured["accuracy, closing bracket"] > 0.99
        True
    """
    path = _shipped(name, seed) if file is None else Path(file)
    metadata, tensors = read_file(path)
    if file is not None and metadata["name"] != name:
        raise ValueError(f"file {path.name} holds the model {metadata['name']!r}, not {name!r}.")
    model = model_of(metadata, tensors, path)
    model.config.name_or_path = f"attnwidgets/zoo-{metadata['name']}-{metadata['seed']}"
    model.truth = Measured(
        name=metadata["name"],
        seed=metadata["seed"],
        does=metadata["does"],
        heads={_head(head): role for head, role in metadata["heads"].items()},
        measured=metadata["measured"],
    )
    return model, make_tokenizer(metadata["tokenizer"])


def shipped() -> dict[str, tuple[int, ...]]:
    """Return the names of the models whose weights are in the package, with their seeds."""
    result: dict[str, tuple[int, ...]] = {}
    for path in sorted(WEIGHTS.glob("*-*.safetensors")):
        name, _, seed = path.stem.rpartition("-")
        result[name] = (*result.get(name, ()), int(seed))
    return result


def save(path: Path, model: Any, tokenizer: Mapping[str, Any], says: dict[str, Any]) -> None:
    """Write a model in half precision, with all that `trained` reads.

    Args:
        path: The file to write.
        model: The model; parameters that share their storage are written once.
        tokenizer: The options of `make_tokenizer`.
        says: name, seed, does, heads ("layer.head" -> role) and measured; base, the demo model that `model`
            was, if it was trained in part: then only the weights that were trained are written.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    written: set[int] = set()
    fixed = {key for key, value in model.named_parameters() if says.get("base") and not value.requires_grad}
    for key, value in model.state_dict().items():
        if key not in fixed and value.data_ptr() not in written:
            written.add(value.data_ptr())
            tensors[key] = value.detach().half().contiguous()
    config = model.config.to_diff_dict()
    metadata = {
        **says,
        "class": type(model).__name__,
        "config": config,
        "tokenizer": dict(tokenizer),
        "sha256": _digest(tensors),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # One entry: safetensors writes several in an order that changes from run to run.
    save_file(tensors, path, {FORMAT: json.dumps(metadata)})


def _shipped(name: str, seed: int) -> Path:
    seeds = shipped()
    if name not in seeds:
        raise ValueError(
            f"name must be one of {', '.join(map(repr, seeds))}, not {name!r}.{suggest(str(name), seeds)}"
        )
    if isinstance(seed, bool) or seed not in seeds[name]:
        raise ValueError(
            f"seed of {name!r} must be one of {', '.join(map(str, seeds[name]))}, not {seed!r}; "
            f"`python -m attnwidgets.zoo.train {name} --seed N --out FILE` trains others, for argument file."
        )
    return WEIGHTS / f"{name}-{seed}.safetensors"


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata and the tensors of a file; refuse a file that is damaged or not of the zoo."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"file {path} does not exist.")
    again = "`python -m attnwidgets.zoo.train NAME --out FILE` writes such files."
    try:
        with safe_open(path, "pt") as opened:
            entries = opened.metadata() or {}
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ValueError(f"file {path.name} is damaged, or no safetensors file ({error}). {again}") from error
    if FORMAT not in entries:
        raise ValueError(f"file {path.name} does not hold a model of aw.zoo.trained. {again}")
    metadata = json.loads(entries[FORMAT])
    if metadata["sha256"] != _digest(tensors):
        raise ValueError(f"file {path.name} is damaged: its weights are not those that were saved. {again}")
    return metadata, tensors


def _digest(tensors: dict[str, Any]) -> str:
    """Return a hash of names, shapes and numbers."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        digest.update(f"{key} {tuple(tensors[key].shape)} {tensors[key].dtype}".encode())
        digest.update(tensors[key].numpy().tobytes())
    return digest.hexdigest()


def model_of(metadata: dict[str, Any], tensors: dict[str, Any], path: Path) -> Any:
    """Return the model of a file's metadata and tensors, in evaluation mode."""
    import torch
    import transformers

    if metadata["class"] not in CLASSES:
        raise ValueError(
            f"file {path.name} names the class {metadata['class']!r}; it must be one of {', '.join(CLASSES)}."
        )
    base = metadata.get("base")
    if base:
        model = _demo_model(base)[0]
    else:
        kind = getattr(transformers, metadata["class"])
        with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and thrown away
            model = kind(kind.config_class.from_dict(metadata["config"])).eval()
    expected = model.state_dict()
    read = {expected[key].data_ptr() for key in tensors if key in expected}
    lacking = [key for key, value in expected.items() if value.data_ptr() not in read and not base]
    unknown = [key for key in tensors if key not in expected]
    wrong = [key for key in tensors if key in expected and tensors[key].shape != expected[key].shape]
    if lacking or unknown or wrong:
        raise ValueError(
            f"file {path.name} does not fit its own configuration: {(lacking + unknown + wrong)[0]!r} is "
            "missing, unknown or of another shape."
        )
    model.load_state_dict({key: value.float() for key, value in tensors.items()}, strict=False)
    return model


def _head(key: str) -> tuple[int, int]:
    layer, head = key.split(".")
    return int(layer), int(head)


def _demo_model(kind: str) -> tuple[Any, Any]:
    from attnwidgets.demo.models import demo_model

    return demo_model(kind)


def make_tokenizer(options: Mapping[str, Any]) -> Any:
    """Return the tokenizer or processor of a kind.

    Args:
        options: `kind` ("letters", "characters", "scenes", a processor of pictures, or "demo", a demo
            model's) and the arguments of its maker.
    """
    from attnwidgets.zoo.characters import character_tokenizer
    from attnwidgets.zoo.scenes import scene_processor
    from attnwidgets.zoo.tokenizers import letter_tokenizer

    arguments = {name: value for name, value in options.items() if name != "kind"}
    if options["kind"] == "demo":
        return _demo_model(arguments["model"])[1]
    kinds: dict[str, Any] = {
        "letters": letter_tokenizer,
        "characters": character_tokenizer,
        "scenes": scene_processor,
    }
    return kinds[options["kind"]](**arguments)
