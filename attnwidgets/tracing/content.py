"""Hashes of the content of values, the same in every session: never of a name, an address or a file.

`key_of` hashes any values, `fingerprint_of` models, `tokenizer_fingerprint` tokenizers. Saved results contain
these hashes, so that another rule of hashing would make them stale.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import io
import json
import pickle
import sys
import sysconfig
import types
import uuid
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_module, is_tensor, loaded
from attnwidgets.tracing.model_state import WRITTEN_ON_SAVING
from attnwidgets.tracing.recording.inputs import text_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

_PLAIN = (str, int, float, bool, type(None))
_SETTINGS = (
    "special_tokens_map", "model_max_length", "model_input_names", "truncation_side", "split_special_tokens",
    "add_bos_token", "add_eos_token",
)  # fmt: skip
"""Settings in addition to the vocabulary that change ids; padding, templates and cleaning do not."""
_FILE_OPTIONS = ("name_or_path", "_file", "_files", "is_local", "local_files_only")
"""Endings of option names that say where files lie."""
_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Names of the folders of installed packages."""

# The modules of the models that are being hashed, by id.
_reading: ContextVar[frozenset[int]] = ContextVar("reading", default=frozenset())
_SAMPLE = 4096  # numbers of a weight that `sampled_fingerprint_of` reads


def key_of(*parts: Any) -> str:
    """Return a hash of the content of values.

    Arrays, tensors and modules are hashed by their numbers; functions by their code, defaults, closures and
    the globals they name; other objects by their pickled state. Definitions of installed packages are hashed
    by name, unless the function itself is the value. An object that cannot be pickled (a lock, an open file)
    gets a new hash every time, so that no other value has the same.
    """
    reader = _Reader()
    return _hashed([reader.content(part) for part in parts])


def _hashed(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return a hash of everything in a tokenizer, or a processor's tokenizer, that decides a text's ids.

    For a fast tokenizer: its serialised backend, without the truncation and padding that its last call left
    there. For a slow one: its vocabulary, its merges or sentencepiece model, and the options it was made
    with, without file names. For both: special tokens, the longest input, the names of model inputs. The
    same tokenizer in another folder has the same hash.
    """
    reader = text_tokenizer(tokenizer)
    if reader is None:
        return key_of(tokenizer)
    settings = {name: getattr(reader, name, None) for name in _SETTINGS}
    backend = getattr(reader, "backend_tokenizer", None)
    if backend is not None:
        return key_of(type(reader), settings, _without_padding(backend.to_str()))
    options = {
        name: value
        for name, value in getattr(reader, "init_kwargs", {}).items()
        if not name.endswith(_FILE_OPTIONS)
    }
    parts = [getattr(reader, name, None) for name in ("bpe_ranks", "sp_model")]
    vocabulary = reader.get_vocab() if hasattr(reader, "get_vocab") else vars(reader)
    return key_of(type(reader), settings, vocabulary, options, *parts)


@functools.lru_cache(2)  # sorting the vocabulary takes longer than anything else about a tokenizer
def _without_padding(backend: str) -> str:
    """Return a serialised tokenizer without truncation and padding, its entries in order."""
    return json.dumps(json.loads(backend) | {"truncation": None, "padding": None}, sort_keys=True)


class _Reader:
    """Reads values and remembers them, for cycles and for values that occur again."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Any, Any]] = {}

    def content(self, value: Any) -> Any:
        """Return a value in a form that JSON can write."""
        if isinstance(value, _PLAIN):
            return value if type(value) in _PLAIN else [type(value).__qualname__, repr(value)]
        if id(value) in self._read:
            return self._read[id(value)][1]
        self._read[id(value)] = value, ["again", len(self._read)]  # while it is being read: in a cycle
        content = self._of(value)
        if not isinstance(value, type | types.ModuleType):
            content = _hashed(content)
        self._read[id(value)] = value, content
        return content

    def _of(self, value: Any) -> Any:
        name = type(value).__qualname__
        for kinds, content in (
            (bytes, lambda: [name, value.hex()]),
            (types.ModuleType, lambda: ["module", value.__name__]),
            (type, lambda: self._class(value)),
            (functools.partial, lambda: [name, *map(self.content, (value.func, value.args, value.keywords))]),
            (types.MethodType, lambda: [name, self.content(value.__func__), self.content(value.__self__)]),
            (types.FunctionType, lambda: self._function(value)),
            (Mapping, lambda: [name, *self._sorted(map(list, value.items()))]),
            ((list, tuple), lambda: [name, *map(self.content, value)]),
            (AbstractSet, lambda: [name, *self._sorted(value)]),
        ):
            if isinstance(value, kinds):
                return content()
        return [self._class(type(value)), self._object(value)]

    def _sorted(self, values: Iterable[Any]) -> list[Any]:
        return sorted(map(self.content, values), key=json.dumps)

    def _function(self, function: Any) -> Any:
        code = function.__code__
        named = {name: function.__globals__.get(name) for name in sorted(_names(code))}
        return [
            "function",
            self._code(code),
            self.content(function.__defaults__),
            self.content(function.__kwdefaults__),
            [self.content(_cell_content(cell)) for cell in function.__closure__ or ()],
            {name: self._named(value) for name, value in named.items() if value is not None},
        ]

    def _code(self, code: types.CodeType) -> list[Any]:
        """Return a function's code and constants; for inner functions their code without its location."""
        constants = [
            self._code(constant) if isinstance(constant, types.CodeType) else self.content(constant)
            for constant in code.co_consts
        ]
        return [code.co_code.hex(), code.co_names, constants]

    def _named(self, value: Any) -> Any:
        """Return a global that a function names; for installed functions only the name."""
        if inspect.isroutine(value) and not _is_own(getattr(value, "__module__", None)):
            return [str(getattr(value, "__module__", "")), value.__qualname__]
        return self.content(value)

    def _class(self, kind: type) -> Any:
        content: list[Any] = [kind.__module__, kind.__qualname__]
        if _is_own(kind.__module__):
            members = {name: value for name, value in vars(kind).items() if not name.startswith("__")}
            content.append(self.content(members | {"__call__": vars(kind).get("__call__")}))
        return content

    def _object(self, value: Any) -> Any:
        import numpy as np

        if is_module(value):
            return fingerprint_of(value)
        if isinstance(value, loaded("transformers", "PreTrainedTokenizerBase")):
            return tokenizer_fingerprint(value)
        if is_tensor(value):
            import torch

            flat = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            return [str(value.dtype), list(value.shape), hashlib.blake2b(flat.data).hexdigest()]
        if isinstance(value, np.ndarray):
            plain = value.tolist() if value.dtype == object else hashlib.blake2b(value.tobytes()).hexdigest()
            return [str(value.dtype), list(value.shape), self.content(plain)]
        return self._reduced(value)

    def _reduced(self, value: Any) -> Any:
        """Return the function and state of an object's pickle; a unique string if it cannot be pickled."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced = value.__reduce_ex__(pickle.DEFAULT_PROTOCOL) if reduce is None else reduce(value)
        except Exception:  # noqa: BLE001 - whatever a foreign object raises
            return uuid.uuid4().hex
        if isinstance(reduced, str):
            return reduced
        function, *state = reduced
        state = [list(part) if isinstance(part, Iterator) else part for part in state]
        return [self._named(function), self.content(state)]


def _cell_content(cell: Any) -> Any:
    """Return the content of a closure's cell; None if it is not filled yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


@functools.cache
def _is_own(module: str | None) -> bool:
    """Return whether a module is the user's: a script, a notebook, a file of no installed package."""
    if module == "__main__":
        return True
    if module is None or module.partition(".")[0] == __name__.partition(".")[0]:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if file is None or any(Path(file).is_relative_to(folder) for folder in installed):
        return False
    # Those of the user (pip install --user), and of the Python that an environment was made from.
    return _PACKAGES.isdisjoint(Path(file).parts)


def fingerprint_of(model: Any) -> str:
    """Return a hash of all that decides a model's answers.

    Its class and configuration; the class, options and replaced `forward` of every module; hooks, by their
    content; weights and buffers; interventions in force. Weights that accelerate keeps in memory or on disk
    are read from there, and packed weights from the model's saved state, so that all of them count.
    """
    from attnwidgets.tracing.recording.borrow import unwrap

    inner = unwrap(model)
    if id(inner) in _reading.get():  # a hook, or a replaced forward, that refers to a part of its model
        return type(inner).__qualname__
    mark = _reading.set(_reading.get() | set(map(id, inner.modules())))
    try:
        return _fingerprint(inner)
    finally:
        _reading.reset(mark)


def _fingerprint(inner: nn.Module) -> str:
    from attnwidgets.tracing.interventions import said_of

    digest = hashlib.blake2b(digest_size=16)
    config = _chosen(getattr(inner, "config", None))
    digest.update(repr((type(inner).__qualname__, config, said_of(inner), _modules_of(inner))).encode())
    digest.update(weights_fingerprint_of(inner).encode())
    return digest.hexdigest()


def weights_fingerprint_of(inner: nn.Module) -> str:
    """Return a hash of a module's weights and buffers, and of packed weights in its saved state."""
    digest = hashlib.blake2b(digest_size=16)
    tensors = dict((*inner.named_parameters(), *inner.named_buffers()))
    # Tied weights count once.
    pointers = {tensor.data_ptr() for tensor in tensors.values() if _is_plain(tensor)}
    packed = {
        name: value
        for name, value in inner.state_dict().items()
        if name not in tensors and not (_is_plain(value) and value.data_ptr() in pointers)
    }
    for name, value in (tensors | packed).items():
        weights = _offloaded(inner, name) if getattr(value, "is_meta", False) else value
        digest.update(f"{name} {getattr(value, 'dtype', '')} {tuple(getattr(value, 'shape', ()))}".encode())
        digest.update(b"" if weights is None else _bytes_of(weights))
    return digest.hexdigest()


def sampled_fingerprint_of(model: Any) -> str:
    """Return a hash of some numbers of every weight: of the weights alone, in a fraction of a second.

    Training changes nearly every number, so that other weights have another hash. Numbers are rounded to
    bfloat16 first: a model in float32 has the same hash as the same model loaded in bfloat16.
    """
    import torch

    from attnwidgets.tracing.recording.borrow import unwrap

    digest = hashlib.blake2b(digest_size=16)
    inner = unwrap(model)
    for name, weight in inner.named_parameters():
        values = _offloaded(inner, name) if weight.is_meta else weight
        if values is None:
            continue
        flat = values.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // _SAMPLE)].float().cpu().bfloat16()
        digest.update(repr(tuple(weight.shape)).encode())
        digest.update(some.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _chosen(config: Any) -> str:
    """Return a config without the entries that saving a model writes into it, which change no number."""
    if not hasattr(config, "to_dict"):
        return repr(config)
    facts = {name: value for name, value in config.to_dict().items() if name not in WRITTEN_ON_SAVING}
    return json.dumps(facts, sort_keys=True, default=repr)


def hooks_of(model: nn.Module) -> list[str]:
    """Return the hooks that may change a model's states: name, path of the module, and a hash of the content.

    Hooks of this package are identified by their descriptions.
    """
    from attnwidgets.tracing.model_state import hooks_in, named_modules

    return [
        f"{getattr(hook, '__qualname__', type(hook).__qualname__)} {path} {_hook_content(hook)}"
        for path, module in named_modules(model).items()
        for hook in hooks_in(module)
    ]


def _hook_content(hook: Any) -> str:
    if str(getattr(hook, "__module__", "")).startswith("attnwidgets."):
        return str(getattr(getattr(hook, "__self__", None), "said", ""))
    return key_of(hook)


def _modules_of(model: nn.Module) -> list[Any]:
    """Return the content of every module besides its weights: class, options, `forward` and hooks."""
    from attnwidgets.tracing.model_state import named_modules, options_of

    parts = [
        (path, type(module).__qualname__, sorted(options_of(module)), _own_forward(module))
        for path, module in named_modules(model).items()
    ]
    return [parts, hooks_of(model)]


def _own_forward(module: nn.Module) -> str:
    """Return a hash of the function that replaces a module's `forward`; "" if none does."""
    forward = vars(module).get("forward")
    if forward is None or hasattr(module, "_hf_hook"):
        return ""  # accelerate's moves weights, and changes no number
    return key_of(getattr(forward, "__func__", forward))


def _is_plain(value: Any) -> bool:
    import torch

    return type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_quantized


def _bytes_of(value: Any) -> Any:
    """Return the numbers of a tensor; for other state, and for packed tensors, the bytes that are saved."""
    import torch

    if _is_plain(value):
        return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getbuffer()


def _offloaded(model: Any, name: str) -> Tensor | None:
    """Return a weight that accelerate loads when its module runs; None if there is none."""
    path, _, weight = name.rpartition(".")
    hook = getattr(model.get_submodule(path), "_hf_hook", None)
    for part in getattr(hook, "hooks", (hook,)):
        weights = getattr(part, "weights_map", None)
        if weights is not None:
            return weights[weight]
    return None
