"""The menu: methods of the registry that a view offers, each made when it is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.views.text.target_rows import target_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.registry.registry import Method

NEEDS_KERNEL = "needs a running kernel"
"""What stands against everything that is not in a page."""

_SHOWN = ("MixingMap", "Attributions")


@dataclass(frozen=True)
class Entry:
    """A method that can be chosen for a trace.

    Attributes:
        method: What the registry says of it.
        trace: What it would explain.
        refusal: Why it cannot be chosen, or "".
    """

    method: Method
    trace: Any
    refusal: str = ""

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name

    @property
    def title(self) -> str:
        """Name of the method, as people read it."""
        return self.name.replace("_", " ")

    @property
    def takes_targets(self) -> bool:
        """Whether the method can be asked about a target, rather than a foil."""
        return {"target", "foil"} <= set(self.method.options)

    def describe(self, key: str) -> dict[str, Any]:
        """Return the Offer of wire.ts."""
        return {
            "method": key,
            "title": self.title,
            "summary": self.method.summary,
            "cost": self.method.cost,
            "refusal": self.refusal,
            "mark": str(getattr(self.method, "mark", "")),
            "targets": self.takes_targets,
        }

    def make(self, target: int | None = None, foil: int | None = None) -> list[Any]:
        """Return what the method says of every stack it can follow, the trace's default one first.

        Args:
            target: Class or token that is explained; None: what the model predicts.
            foil: What it is contrasted with. Attributions then come as three rows: of the target, of the
                foil, and of the one rather than the other.

        Raises:
            ValueError: Where it can follow none; and whatever else the method raises.
        """
        made = [self._of(name, target, foil) for name in _stacks(self.method, self.trace)]
        found = [explanation for explanation in made if not isinstance(explanation, ValueError)]
        if not found:
            raise made[0]
        return found

    def _of(self, stack: str | None, target: int | None, foil: int | None) -> Any:
        options: dict[str, Any] = {"stack": stack} if stack else {}
        if target is not None:
            options["target"] = target
        explain = self.method.function
        try:
            if foil is None:
                return explain(self.trace, **options)
            contrast: Any = explain(self.trace, **options, foil=foil)
            if not isinstance(contrast, Attributions):
                return contrast
            alone: list[Any] = [explain(self.trace, **(options | {"target": one})) for one in (target, foil)]
            return target_rows([*alone, contrast], title=contrast.title)
        except ValueError as error:  # "cross", say, leads from one sequence to another
            return error


def _stacks(method: Method, trace: Any) -> list[str | None]:
    """Return what a method can be asked about: None is its default."""
    others = [name for name in trace.stacks if name != trace.default_stack]
    return [None, *(others if "stack" in method.options else [])]


def _refusal(method: Method, trace: Any) -> str:
    """Return "" where a method serves any stack of a trace, else why not the default one."""
    if method.required:
        wanted = " and ".join(f"{name}=..." for name in method.required)
        return f"takes {wanted}: aw.{method.name}(trace, {wanted}) in a cell shows it"
    reasons = [method.refusal(trace, name) for name in _stacks(method, trace)]
    return reasons[0] if all(reasons) else ""


def entries_of(trace: Any, names: Sequence[str], made: Sequence[str]) -> list[Entry]:
    """Return the entries of a menu: what can be chosen first, then what cannot.

    Args:
        trace: What is explained.
        names: Names of methods; empty: every one that a view can show.
        made: Names of methods that the view has without them being chosen.
    """
    found = [Entry(method, trace, _refusal(method, trace)) for method in _listed(names, made)]
    return sorted(found, key=lambda entry: bool(entry.refusal))


def outdated(entries: Sequence[Entry], made: Sequence[str]) -> bool:
    """Return whether a menu of every method lacks what was registered or checked since."""
    now = {(method.name, method.function, method.mark) for method in _listed((), made)}
    return now != {(entry.name, entry.method.function, entry.method.mark) for entry in entries}


def _listed(names: Sequence[str], made: Sequence[str]) -> list[Method]:
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    listed = [table[name] for name in names] or list(table)
    return [method for method in listed if method.name not in made and method.returns.startswith(_SHOWN)]
