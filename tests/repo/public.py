"""The public names of the package, one by one, as a reader finds them by completion."""

from __future__ import annotations

import inspect

import attnwidgets as aw

# Modules of functions: aw.evaluate.faithfulness, aw.targets.token, ...
NAMESPACES = ("targets", "evaluate", "statistics")


def public() -> dict[str, object]:
    """Every public function and class, by the name it is called by after `aw.`."""
    top = {name: getattr(aw, name) for name in aw.__all__}
    listed = [(space, name) for space in NAMESPACES for name in dir(top[space])]
    nested = {f"{space}.{name}": getattr(top[space], name) for space, name in listed}
    return {name: item for name, item in (top | nested).items() if callable(item)}


def functions() -> list[str]:
    return sorted(name for name, item in public().items() if not inspect.isclass(item))


def classes() -> list[str]:
    return sorted(name for name, item in public().items() if inspect.isclass(item))
