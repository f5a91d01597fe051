"""Lists the public names of the package, as completion offers them."""

from __future__ import annotations

import functools
import inspect
from operator import attrgetter

import attnwidgets as aw

# Modules of functions: aw.evaluate.faithfulness, aw.targets.token, ...
NAMESPACES = (
    *("targets", "evaluate", "statistics", "ask", "circuits", "concepts", "course", "people", "speech"),
    *("vision", "zoo", "zoo.train", "views", "results"),
)

# Pages and examples name the same few models, and leave them as they were: each is loaded once in a process.
shared_models = functools.cache(aw.demo_model)


def public() -> dict[str, object]:
    """Every public function and class, by its name after `aw.`."""
    top = {name: getattr(aw, name) for name in aw.__all__}
    spaces = {space: attrgetter(space)(aw) for space in NAMESPACES}
    nested = {f"{space}.{name}": getattr(home, name) for space, home in spaces.items() for name in dir(home)}
    return {name: item for name, item in (top | nested).items() if callable(item)}


def functions() -> list[str]:
    return sorted(name for name, item in public().items() if not inspect.isclass(item))


def classes() -> list[str]:
    return sorted(name for name, item in public().items() if inspect.isclass(item))
