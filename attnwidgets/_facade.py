"""The public names: by question, as `__init__.pyi` lists them, and each loaded on first use.

A name that moved is loaded from its new module, with a warning (`_former.py`).

Functions that run models need torch and transformers; those that read arrays and files do not. Where a
library is not installed (as in Pyodide), every name exists: it works, or its use raises an error that names
the library.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
import textwrap
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import lazy_loader

from attnwidgets._errors import deprecated, not_installed, suggest
from attnwidgets._former import FORMER

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARIES = ("torch", "transformers")
"""The libraries that run models."""


def groups() -> dict[str, list[str]]:
    """Return the public names under the question that each answers, in the order of the stub."""
    listing = Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
    lines = ["", *listing.splitlines()]  # counted from 1, as nodes are
    names: dict[str, list[str]] = {}
    heading = ""
    for node in ast.parse(listing).body:
        if isinstance(node, ast.ImportFrom):
            above = lines[node.lineno - 1]
            heading = above.removeprefix("# ") if above.startswith("# ") else heading
            if heading:
                names.setdefault(heading, []).extend(alias.name for alias in node.names)
    return names


def in_words(names: dict[str, list[str]]) -> str:
    """Return groups as the paragraphs that `help(aw)` shows."""
    return "\n\n".join(
        f"{heading}\n{textwrap.fill(', '.join(group), 100, initial_indent='    ', subsequent_indent='    ')}"
        for heading, group in names.items()
    )


def attach(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a module or package: the names in its stub.

    Args:
        module: Its `__name__`.
        file: Its `__file__`.
    """
    load, directory, names = _listed(module, file)
    return _getter(module, names, load), directory, names


def _getter(module: str, names: list[str], load: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `__getattr__` of a module with these public names."""
    prefix = _prefix(module)

    def get(name: str) -> Any:
        if name not in names:
            if present := FORMER.get(f"{prefix}.{name}"):
                deprecated(f"{prefix}.{name} is {present} now")
                return _public(present)
            raise AttributeError(
                f"module {module!r} has no attribute {name!r}.{suggest(name, names, prefix)}"
            )
        try:
            value = _saying(f"{prefix}.{name}", load(name))
        except ModuleNotFoundError as error:
            value = Needs(f"{prefix}.{name}", library_of(error))
        setattr(sys.modules[module], name, value)
        return value

    return get


def _listed(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return how a name in the stub of a module is loaded, and the names."""
    if Path(file).name == "__init__.py":
        return lazy_loader.attach_stub(module, file)
    # lazy_loader knows packages alone: it would keep each value in the package that the module is in.
    package = module.rpartition(".")[0]
    nodes = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: f"{package}.{node.module}" for node in imports for alias in node.names}
    names = sorted(homes)
    return lambda name: getattr(importlib.import_module(homes[name]), name), names.copy, names


def complete(package: str) -> Callable[[str], Any]:
    """Finish a namespace that is loaded as a whole, and return its `__getattr__`, for names that moved.

    Where a library is missing, its names are replaced as `attach` does.
    """
    space, prefix = sys.modules[package], _prefix(package)
    for name in space.__all__:
        setattr(space, name, _saying(f"{prefix}.{name}", getattr(space, name)))
    return _getter(package, space.__all__, vars(space).__getitem__)


def _public(name: str) -> Any:
    """Return the value of a public name: "aw.statistics.entropy"."""
    space, _, last = name.replace("aw", "attnwidgets", 1).rpartition(".")
    return getattr(importlib.import_module(space), last)


def _prefix(package: str) -> str:
    return package.replace("attnwidgets", "aw", 1)


def library_of(error: ModuleNotFoundError) -> str:
    """Return the library of `LIBRARIES` whose import failed. Raise the error again for any other."""
    library = (error.name or "").partition(".")[0]
    if library not in LIBRARIES:
        raise error
    return library


class Needs:
    """A public name that cannot be loaded without a library that is missing; using it says so."""

    def __init__(self, name: str, library: str) -> None:
        self._name, self._library = name, library

    def __repr__(self) -> str:
        return f"<{self._name}: needs {self._library}, which is not installed>"

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise not_installed(self._name, self._library)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # as tools ask of any object
            raise AttributeError(name)
        raise not_installed(f"{self._name}.{name}", self._library)


@functools.cache
def _lacking() -> bool:
    """Return whether a library of `LIBRARIES` is not installed."""
    return any(library not in sys.modules and not _is_installed(library) for library in LIBRARIES)


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ImportError:
        return False


def _saying(name: str, value: Any) -> Any:
    """Return a public function or class; where a library is missing, with errors that name it and say so."""
    if not _lacking():
        return value
    if isinstance(value, FunctionType):
        return _calling(name, value)
    made = vars(value).get("__init__") if isinstance(value, type) else None
    if isinstance(made, FunctionType):
        type.__setattr__(value, "__init__", _calling(name, made))
    return value


def _calling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            raise not_installed(name, library_of(error)) from error

    return run
