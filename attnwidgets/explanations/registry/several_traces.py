"""Functions of a trace called with a list of traces: a list of results, in the same order."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeGuard, TypeVar, overload

from attnwidgets._progress import progress
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.explanations.results.trace_protocol import is_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

P = ParamSpec("P")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)


class OfTraces(Protocol[T_contra, P, R]):
    """A function of a trace that returns a list for a list of traces."""

    __name__: str
    __module__: str

    @overload
    def __call__(self, trace: Sequence[T_contra], /, *args: P.args, **kwargs: P.kwargs) -> list[R]: ...
    @overload
    def __call__(self, trace: T_contra, /, *args: P.args, **kwargs: P.kwargs) -> R: ...


def takes_lists(function: Callable[Concatenate[T_contra, P], R]) -> OfTraces[T_contra, P, R]:
    """Let a function of a trace (or of an explanation) take a list of them as well."""
    first = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        traces = args[0] if args else kwargs.get(first)
        if not are_several(traces):
            return function(*args, **kwargs)
        options = {name: value for name, value in kwargs.items() if name != first}
        return for_each(function.__name__, lambda trace: function(trace, *args[1:], **options), traces)

    takes_either: OfTraces[T_contra, P, R] = wrapper
    return takes_either


def are_several(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether an argument is a list of traces, or of explanations."""
    return isinstance(value, (list, tuple)) and (not value or any(map(_is_explained, value)))


def for_each(name: str, function: Callable[[Any], R], traces: Sequence[Any]) -> list[R]:
    """Return the results of a function for several traces, under a progress bar.

    Args:
        name: Label of the bar.
        function: Takes a trace.
        traces: Traces or explanations.

    Raises:
        TypeError: If an element is neither; the message names its index.
        Exception: The function's error, with the index of the trace before its message.
    """
    for number, trace in enumerate(traces):
        if not _is_explained(trace):
            raise TypeError(f"traces[{number}] is a {type(trace).__name__}, not a trace")
    return [_result(function, trace, number) for number, trace in enumerate(progress(traces, desc=name))]


def _result(function: Callable[[Any], R], trace: Any, number: int) -> R:
    try:
        return function(trace)
    except Exception as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (f"traces[{number}]: {error.args[0]}", *error.args[1:])
        raise


def _is_explained(value: Any) -> bool:
    return is_trace(value) or isinstance(value, Explanation)
