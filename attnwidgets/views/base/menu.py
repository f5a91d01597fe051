"""The menu: methods of the registry that a view offers, each computed when it is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.views.text.target_rows import target_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.explanations.registry.registry import Method

NEEDS_KERNEL = "needs a running kernel"
"""The refusal of every method that a page does not contain."""

_SHOWN = ("MixingMap", "Attributions")
_BEST = ("lrp", "integrated_gradients", "input_x_gradient")


@dataclass(frozen=True)
class Entry:
    """A method that can be chosen for a trace.

    Attributes:
        method: Its description in the registry.
        trace: The trace that it would explain.
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
        """Name of the method for readers."""
        return self.name.replace("_", " ")

    @property
    def takes_targets(self) -> bool:
        """Whether the method can explain a given target, also in contrast to a foil."""
        return {"target", "foil"} <= set(self.method.options)

    def describe(self, key: str) -> dict[str, Any]:
        """Return the Offer of wire.ts."""
        return {
            "method": key,
            "title": self.title,
            "summary": self.method.summary,
            "question": self.method.answers,
            "gist": self.method.reads,
            "cost": self.method.cost,
            "speed": self.method.speed,
            "refusal": self.refusal,
            "mark": str(getattr(self.method, "mark", "")),
            "targets": self.takes_targets,
        }

    def make(self, target: int | None = None, foil: int | None = None) -> list[Any]:
        """Return the method's explanation of every stack that it supports, the trace's default one first.

        Args:
            target: Class or token that is explained; None: the model's prediction.
            foil: Class or token that the target is contrasted with. Attributions then have three rows: the
                target, the foil, and the target rather than the foil.

        Raises:
            ValueError: It supports none; and whatever else the method raises.
        """
        results = [self._explain(stack, target, foil) for stack in _stacks(self.method, self.trace)]
        explanations = [result for result in results if not isinstance(result, ValueError)]
        if not explanations:
            raise results[0]
        return explanations

    def _explain(self, stack: str | None, target: int | None, foil: int | None) -> Any:
        """Return the explanation of one stack, or the ValueError that the method raises."""
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
        except ValueError as error:  # the stack "cross", for one, leads from one sequence to another
            return error


def _stacks(method: Method, trace: Any) -> list[str | None]:
    """Return the stacks that a method is applied to: None is its default."""
    others = [name for name in trace.stacks if name != trace.default_stack]
    return [None, *(others if "stack" in method.options else [])]


def _refusal(method: Method, trace: Any) -> str:
    """Return "" if a method supports any stack of a trace, else why not the default one."""
    if method.required:
        arguments = " and ".join(f"{name}=..." for name in method.required)
        return f"takes {arguments}: aw.{method.name}(trace, {arguments}) in a cell shows it"
    reasons = [method.refusal(trace, name) for name in _stacks(method, trace)]
    return reasons[0] if all(reasons) else ""


def entries_of(trace: Any, names: Sequence[str], initial: Sequence[str]) -> list[Entry]:
    """Return the entries of a menu by the question that they answer, those that can be chosen first in each.

    Args:
        trace: The trace that is explained.
        names: Names of methods; empty: every one that a view can show.
        initial: Names of methods that the view has from the start, which the menu leaves out.
    """
    from attnwidgets.explanations.registry.registry import in_menu_order

    entries = [Entry(method, trace, _refusal(method, trace)) for method in _offered(names, initial)]

    def order(entry: Entry) -> tuple[int, bool, int, str]:
        question, speed, name = in_menu_order(entry.method)
        return question, bool(entry.refusal), speed, name

    return sorted(entries, key=order)


def best_for_predictions(entries: Mapping[str, Entry]) -> str:
    """Return the key of the method that explains predictions; "" if no method takes a target.

    Methods that conserve the target come first, then integrated gradients, gradients and all others. A method
    with a warning comes last.

    Args:
        entries: Methods by key; those that refuse the trace, or take no target, are skipped.
    """

    def rank(key: str) -> tuple[bool, int]:
        method = entries[key].method
        place = _BEST.index(method.name) if method.name in _BEST else len(_BEST)
        return bool(getattr(method, "mark", "")), place

    able = [key for key, entry in entries.items() if entry.takes_targets and not entry.refusal]
    return min(able, key=rank, default="")


def outdated(entries: Sequence[Entry], initial: Sequence[str]) -> bool:
    """Return whether a menu of every method lacks one that was registered or checked since."""
    now = {(method.name, method.function, method.mark) for method in _offered((), initial)}
    return now != {(entry.name, entry.method.function, entry.method.mark) for entry in entries}


def _offered(names: Sequence[str], initial: Sequence[str]) -> list[Method]:
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    listed = [table[name] for name in names] or list(table)
    return [method for method in listed if method.name not in initial and method.returns.startswith(_SHOWN)]
