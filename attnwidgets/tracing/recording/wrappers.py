"""The model and the tokenizer inside other libraries' objects, recognised by their attributes.

A pipeline, a trainer, a model of nnsight or nnterp, a TransformerBridge: none of their libraries is imported.
`opened` returns the torch module and the tokenizer, `inside` removes a single wrapper, and
`sorted_arguments` tells models, tokenizers and texts apart.

A TransformerBridge replaces the parts of a transformers model by parts with hook points, which contain the
replaced ones, so that attention is computed outside transformers' attention interface. `without_bridge`
returns the transformers model as it was before.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_module, is_tensor, loaded
from attnwidgets.tracing.model_state import modules_of, named_modules
from attnwidgets.tracing.text.given_texts import as_sequence

if TYPE_CHECKING:
    from torch import nn

# Attributes in which wrappers hold a module: nnsight and nnterp; nnsight before 0.5; pipelines and trainers.
_MODELS = ("_module", "_model", "model")
_READERS = ("processor", "tokenizer", "processing_class", "image_processor", "feature_extractor")

_COMPONENT = "_original_component"  # the attribute of a bridge's part that holds the replaced part
# By bridge: the ids of its model's modules, and the model without the bridge's parts.
_PLAIN: weakref.WeakKeyDictionary[nn.Module, tuple[tuple[int, ...], nn.Module]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Readers:
    """The parts of a pipeline that reads several kinds of input, as a processor holds them."""

    tokenizer: Any
    image_processor: Any = None
    feature_extractor: Any = None


def unpeft(model: Any) -> Any:
    """Return the base model inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_a(model: Any, *endings: str) -> bool:
    """Return whether the name of a model's class, or of a base of it, has any of these endings."""
    return any(kind.__name__.endswith(endings) for kind in type(unpeft(model)).__mro__)


def inside(wrapped: Any) -> Any:
    """Return the object inside the outermost wrapper of a model; the same object if it is not wrapped.

    Raises:
        TypeError: For a TransformerLens model that computes other numbers than its transformers model, or
            has none; the message says how to show its cache.
    """
    compiled = _attribute(wrapped, "_orig_mod")
    if compiled is not None:
        return compiled
    if is_module(wrapped):
        encoder = _encoder_of_sentences(wrapped)
        if encoder is not None:
            return encoder
        nn = loaded("torch", "nn")
        if isinstance(wrapped, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            return wrapped.module
        return without_bridge(wrapped) if is_hooked(wrapped) else wrapped
    if is_table(wrapped) or hasattr(wrapped, "attention_layer"):
        return wrapped
    candidates = (_attribute(wrapped, name) for name in _MODELS)
    return next((model for model in candidates if is_module(model)), wrapped)


def opened(wrapped: Any) -> tuple[Any, Any]:
    """Return the torch module that an object of another library holds, and its tokenizer or processor.

    Torch's wrappers (`torch.compile`, DataParallel) are not removed. The second value is None if the object
    holds no tokenizer or processor.
    """
    reader = None
    while True:
        model = inside(wrapped)
        is_torchs = is_module(wrapped) and not is_hooked(wrapped) and _encoder_of_sentences(wrapped) is None
        if model is wrapped or is_torchs:
            return wrapped, reader
        reader = _reader_of(wrapped) if reader is None else reader
        wrapped = model


def _encoder_of_sentences(module: Any) -> Any:
    """Return the transformers model in an object of sentence-transformers; None for any other module."""
    if not any(kind.__module__.split(".")[0] == "sentence_transformers" for kind in type(module).__mro__):
        return None
    parts = [module, *_attribute(module, "children")()]
    candidates = (_attribute(part, name) for part in parts for name in ("auto_model", "model"))
    return next((model for model in candidates if is_module(model) and hasattr(model, "config")), None)


@dataclass(frozen=True)
class PipelineSettings:
    """Options of a pipeline that decide the input and the answer of its model.

    Attributes:
        truncation: Whether it cuts texts.
        max_length: Tokens to which it cuts them; None for the model's limit.
        reading: How it reads probabilities: "softmax", "sigmoid", "none"; "" for the model's default.
        needs_pair: Whether its model reads a text together with a hypothesis (zero-shot classification).
        unused: Names of options that a trace does not follow.
    """

    truncation: bool = False
    max_length: int | None = None
    reading: str = ""
    needs_pair: bool = False
    unused: tuple[str, ...] = ()


_PREPARED = ("truncation", "max_length", "padding", "add_special_tokens", "tokenizer_kwargs")
_SAID = ("function_to_apply", "top_k", "_legacy", "return_all_scores")


def settings_of(pipeline: Any) -> PipelineSettings:
    """Return the options of a pipeline of transformers; the defaults for any other object."""
    before, after = (_attribute(pipeline, f"_{side}process_params") for side in ("pre", "post"))
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return PipelineSettings()
    if "ZeroShot" in type(pipeline).__name__ and "Image" not in type(pipeline).__name__:
        return PipelineSettings(needs_pair=True)
    if "TextClassification" not in type(pipeline).__name__:
        return PipelineSettings()
    options = {**before, **(before.get("tokenizer_kwargs") or {})}
    function = after.get("function_to_apply")
    reading = str(getattr(function, "value", function) or "").lower()
    unused = [name for name in options if name not in _PREPARED]
    unused += [name for name in after if name not in _SAID]
    length = options.get("max_length")
    return PipelineSettings(bool(options.get("truncation")), length, reading, unused=tuple(unused))


def _reader_of(holder: Any) -> Any:
    """Return the tokenizer or processor of a pipeline or wrapper; `Readers` if it has several."""
    parts = {name: _attribute(holder, name) for name in _READERS}
    present = {name: part for name, part in parts.items() if part is not None}
    media = present.keys() & {"image_processor", "feature_extractor"}
    if "tokenizer" in present and media and "processor" not in present:
        return Readers(**{name: present[name] for name in ("tokenizer", *media)})
    return next(iter(present.values()), None)


def _attribute(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - wrappers look up unknown names in the wrapped object, and may raise anything
        return None


def is_table(value: Any) -> bool:
    """Return whether a value is a mapping, or behaves like one (a cache of activations)."""
    return isinstance(value, Mapping) or (
        callable(getattr(value, "keys", None)) and hasattr(type(value), "__getitem__")
    )


def is_reader(value: Any) -> bool:
    """Return whether a value is a tokenizer or processor."""
    if value is None or is_module(value) or isinstance(value, Path) or is_input(value):
        return False
    parts = (
        "convert_ids_to_tokens",
        "tokenizer",
        "image_processor",
        "feature_extractor",
        "model_input_names",
    )
    return any(_attribute(value, name) is not None for name in parts)


def are_second(tokenizer: Any, after: Any) -> bool:
    """Return whether model and tokenizer are the second and third argument, as in the former order.

    Args:
        tokenizer: The second argument, now the tokenizer.
        after: The third argument, which was the tokenizer.
    """
    return is_model(tokenizer) or after is None or is_reader(after)


def is_input(value: Any) -> bool:
    """Return whether a value can only be something to read: text, texts, messages or token ids."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, Sequence) or is_tensor(value) or type(value).__module__ == "numpy"


def sorted_arguments(model: Any, tokenizer: Any, text: Any, *, has_input: bool) -> tuple[Any, Any]:
    """Return tokenizer and text, whichever came first.

    A string that is alone is the text: `aw.trace("gpt2", "The cat")`. Two strings are the name of a tokenizer
    and the text.

    Args:
        model: The first argument.
        tokenizer: The second argument.
        text: The third argument.
        has_input: Whether there is something else to read (words, messages, ids, ...).

    Raises:
        TypeError: If the model is not first.
        ValueError: If a lone string may be the text or the name of a tokenizer.
    """
    if not is_reader(tokenizer):
        tokenizer = as_sequence(tokenizer, "text")
    if not is_reader(text):
        text = as_sequence(text, "text")
    if not is_model(model) and (is_model(tokenizer) or is_model(text)):
        raise TypeError(
            f"model is a {type(model).__name__}, and the model came later: aw.trace(model, tokenizer, text)"
        )
    if is_reader(text):
        if tokenizer is not None and not is_input(tokenizer):
            raise TypeError(f"text is a {type(text).__name__}, and tokenizer a {type(tokenizer).__name__}")
        return text, tokenizer
    if text is not None or has_input or not is_input(tokenizer):
        return tokenizer, text
    if isinstance(tokenizer, str) and _is_folder(tokenizer):
        raise ValueError(
            f"{tokenizer!r} is a folder, and no text was passed: pass text=... along with "
            f"tokenizer={tokenizer!r}; if it is the text, text={tokenizer!r}"
        )
    return None, tokenizer


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # a long text is not a path
        return False


def is_model(value: Any) -> bool:
    """Return whether a value is a model, or the wrapper of a model."""
    return is_module(value) or not (is_input(value) or inside(value) is value)


def is_hooked(model: nn.Module) -> bool:
    """Return whether a module is a model of TransformerLens: a TransformerBridge or a HookedTransformer."""
    return all(hasattr(model, name) for name in ("run_with_cache", "to_str_tokens"))


def without_bridge(hooked: nn.Module) -> nn.Module:
    """Return the transformers model of a bridge, over the same parameters and hooks, without its parts.

    Every call returns the same object, so that interventions find its modules.

    Raises:
        TypeError: If the model of TransformerLens computes other numbers than the transformers model: its
            weights were changed, or it has hooks. The message says how to show its cache.
    """
    name = type(hooked).__name__
    through_cache = (
        "show its own numbers through its cache: logits, cache = model.run_with_cache(text); "
        "aw.from_attentions(cache, model.to_str_tokens(text))"
    )
    original: Any = getattr(hooked, "original_model", None)
    if not is_module(original):
        raise TypeError(
            f"model is a {name}, which computes by itself, with changed weights; {through_cache}. Or pass "
            "the transformers model and its tokenizer"
        )
    if getattr(hooked, "_weights_processed", False):
        raise TypeError(
            f"model is a {name} whose weights were changed (compatibility mode), so it differs from the "
            f"transformers model; {through_cache}. Or make it without enable_compatibility_mode()"
        )
    library = type(hooked).__module__.partition(".")[0]
    changing = next((n for n, part in named_modules(hooked).items() if _foreign_hooks(part, library)), None)
    if changing is not None:
        raise TypeError(
            f"model is a {name} with a hook at {changing!r}, which may change what it computes; "
            f"{through_cache}. Or call model.reset_hooks(including_permanent=True)"
        )
    parts = tuple(map(id, modules_of(original)))
    cached = _PLAIN.get(hooked)
    if cached is None or cached[0] != parts:
        cached = _PLAIN[hooked] = (parts, _restored(original, library, {}))
    return cached[1]


def _foreign_hooks(part: nn.Module, library: str) -> bool:
    """Return whether a hook point of a bridge has hooks in addition to those of the library itself."""
    if not vars(part).get("fwd_hooks"):
        return False
    for hook in vars(part)["_forward_hooks"].values():
        cells = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()]
        functions = [function for function in cells if isfunction(function)]
        if not functions or not all(_is_of(function, library) for function in functions):
            return True
    return False


def _is_of(function: Any, library: str) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == library


def _restored(module: nn.Module, library: str, copies: dict[int, nn.Module]) -> nn.Module:
    """Return a module with the parts that a bridge has replaced, over the same parameters and hooks."""
    children = vars(module)["_modules"]
    if children.get(_COMPONENT) is not None:
        return _restored(children[_COMPONENT], library, copies)
    if id(module) not in copies:
        copy: nn.Module = object.__new__(type(module))
        copies[id(module)] = copy
        vars(copy).update(vars(module))
        if _is_of(vars(copy).get("forward"), library):
            del vars(copy)["forward"]  # the bridge had replaced the method of the class
        vars(copy)["_modules"] = {
            name: part if part is None else _restored(part, library, copies)
            for name, part in children.items()
        }
    return copies[id(module)]
