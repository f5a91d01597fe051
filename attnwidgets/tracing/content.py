"""Hashes of the content of values, the same in every session: never of a name, an address or a file."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import json
import pickle
import sys
import sysconfig
import types
import uuid
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_module, is_tensor, loaded
from attnwidgets.tracing.recording.inputs import text_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = (str, int, float, bool, type(None))
_SETTINGS = (
    "special_tokens_map", "model_max_length", "model_input_names", "truncation_side", "split_special_tokens",
    "add_bos_token", "add_eos_token",
)  # fmt: skip
"""Settings that change ids beside the vocabulary; padding is ours, templates and cleaning change none."""
_FILE_OPTIONS = ("name_or_path", "_file", "_files", "is_local", "local_files_only")
"""Endings of option names that say where files lie."""
_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""What folders of installed packages are called."""


def key_of(*parts: Any) -> str:
    """Return a hash of the content of values.

    Arrays, tensors and modules are hashed by their numbers; functions by their code, defaults, closures and
    the globals they name; other objects by what they pickle as. Definitions of installed packages are hashed
    by name, unless the function itself is the value. An object that cannot be pickled (a lock, an open file)
    gets a hash of its own every time, so that nothing is mistaken for it.
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
        described = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
        return key_of(type(reader), settings, json.dumps(described, sort_keys=True))
    options = {
        name: value
        for name, value in getattr(reader, "init_kwargs", {}).items()
        if not name.endswith(_FILE_OPTIONS)
    }
    parts = [getattr(reader, name, None) for name in ("bpe_ranks", "sp_model")]
    vocabulary = reader.get_vocab() if hasattr(reader, "get_vocab") else vars(reader)
    return key_of(type(reader), settings, vocabulary, options, *parts)


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
            [self.content(_held(cell)) for cell in function.__closure__ or ()],
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
            from attnwidgets.tracing.fingerprint import fingerprint_of

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
        """Return what an object pickles as; a unique string for one that cannot be pickled."""
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


def _held(cell: Any) -> Any:
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
