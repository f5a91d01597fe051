"""What a value holds, as a hash that is the same in every session: never its name, address or file."""

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

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = (str, int, float, bool, type(None))


def key_of(*parts: Any) -> str:
    """Return a hash of the content of values.

    Arrays, tensors and modules count by their numbers; functions by their code, their defaults, what they
    close over and the globals they name; other objects by what they pickle as. What installed packages
    define counts by name, but for a function that is given itself. What does not pickle (a lock, an open
    file) is like nothing else, so that nothing is taken for it.
    """
    reader = _Reader()
    text = json.dumps([reader.content(part) for part in parts], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Reader:
    """Reads values; remembers those read, for cycles and what is met again."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Any, Any]] = {}

    def content(self, value: Any) -> Any:
        """Return a value as JSON can say it."""
        if isinstance(value, _PLAIN):
            return value if type(value) in _PLAIN else [type(value).__qualname__, repr(value)]
        if id(value) in self._read:
            return self._read[id(value)][1]
        self._read[id(value)] = value, ["again", len(self._read)]  # while it is being read: in a cycle
        found = self._of(value)
        if not isinstance(value, type | types.ModuleType):
            text = json.dumps(found, sort_keys=True)
            found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self._read[id(value)] = value, found
        return found

    def _of(self, value: Any) -> Any:
        name = type(value).__qualname__
        for kinds, said in (
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
                return said()
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
            {name: self._named(one) for name, one in named.items() if one is not None},
        ]

    def _code(self, code: types.CodeType) -> list[Any]:
        """Return a function's code and constants; of inner functions their code and not where they lie."""
        constants = [
            self._code(one) if isinstance(one, types.CodeType) else self.content(one)
            for one in code.co_consts
        ]
        return [code.co_code.hex(), code.co_names, constants]

    def _named(self, value: Any) -> Any:
        """Return a global that a function names; of what is installed only the name."""
        if inspect.isroutine(value) and not _is_own(getattr(value, "__module__", None)):
            return [str(getattr(value, "__module__", "")), value.__qualname__]
        return self.content(value)

    def _class(self, kind: type) -> Any:
        said: list[Any] = [kind.__module__, kind.__qualname__]
        if _is_own(kind.__module__):
            own = {name: one for name, one in vars(kind).items() if not name.startswith("__")}
            said.append(self.content(own | {"__call__": vars(kind).get("__call__")}))
        return said

    def _object(self, value: Any) -> Any:
        import numpy as np
        import torch
        from transformers import PreTrainedTokenizerBase

        from attnwidgets.tracing.fingerprint import fingerprint_of, tokenizer_fingerprint

        if isinstance(value, torch.nn.Module):
            return fingerprint_of(value)
        if isinstance(value, PreTrainedTokenizerBase):
            return tokenizer_fingerprint(value)
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            return [str(value.dtype), list(value.shape), hashlib.blake2b(flat.data).hexdigest()]
        if isinstance(value, np.ndarray):
            plain = value.tolist() if value.dtype == object else hashlib.blake2b(value.tobytes()).hexdigest()
            return [str(value.dtype), list(value.shape), self.content(plain)]
        return self._reduced(value)

    def _reduced(self, value: Any) -> Any:
        """Return what an object pickles as; what does not pickle is like nothing else."""
        try:
            own = copyreg.dispatch_table.get(type(value))
            found = value.__reduce_ex__(pickle.DEFAULT_PROTOCOL) if own is None else own(value)
        except Exception:  # noqa: BLE001 - whatever a foreign object raises
            return uuid.uuid4().hex
        if isinstance(found, str):
            return found
        function, *state = found
        state = [list(one) if isinstance(one, Iterator) else one for one in state]
        return [self._named(function), self.content(state)]


def _held(cell: Any) -> Any:
    """Return what a closure's cell holds; a function that names itself may not hold itself yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: types.CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


@functools.cache
def _is_own(module: str | None) -> bool:
    """Return whether a module is a user's: a script, a notebook, a file that no package brought."""
    if module == "__main__":
        return True
    if module is None or module.partition(".")[0] == __name__.partition(".")[0]:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file is not None and not any(Path(file).is_relative_to(folder) for folder in installed)
