"""Shift-Tab shows all parameters of every public name, each documented on a line."""

from __future__ import annotations

import inspect
import re

import pytest

import attnwidgets as aw
from attnwidgets.views.base.view import View

from .public import classes, functions, public

# Forwards a method's options, and documents where to find them.
FORWARDS = {"explain"}
MOST_AT_THE_TOP, MOST = 90, 286
# A model's inputs are named by their keywords, and a view's options are those of every view.
WIDE = {"compare", "explore", "trace"}
# An object around these would have no other user: an SAE's constructor takes what its files hold, its
# training is tuned keyword by keyword, and functions of a trace make lazy maps.
WIDE_METHODS = {"SAE", "SAE.train", "results.MixingMap.lazy"}
MOST_PARAMETERS = 11


def parameters(item) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(item).parameters.values())
    except ValueError:  # an exception or a named tuple without a signature
        return []


def documented(item) -> set[str]:
    """Return the names with an entry under "Args:"."""
    text = inspect.getdoc(item) or ""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^    (?! )(\*{0,2}\w+)(?: \(.*?\))?:", section[1], re.MULTILINE) if section else []
    return {name.lstrip("*") for name in entries}


def test_the_top_level_stays_small():
    assert len(aw.__all__) <= MOST_AT_THE_TOP, "new functions belong in a namespace: aw.statistics, ..."


def test_what_can_be_called_stays_small():
    # Exceptions are caught, and classes in aw.results are returned.
    called = [
        name
        for name, item in public().items()
        if not (name.startswith("results.") or (isinstance(item, type) and issubclass(item, Exception)))
    ]
    assert len(called) <= MOST, "a class that functions return belongs in aw.results"


@pytest.mark.parametrize("name", [*functions(), *classes()])
def test_no_option_hides_in_a_variadic_keyword(name):
    kinds = {parameter.kind for parameter in parameters(public()[name])}
    assert inspect.Parameter.VAR_KEYWORD not in kinds or name in FORWARDS


@pytest.mark.parametrize("name", functions())
def test_few_functions_take_many_parameters(name):
    count = len(parameters(public()[name]))
    assert (count > MOST_PARAMETERS) == (name in WIDE), (
        "options that belong together are an object with a name"
    )


def wide_methods(name: str) -> set[str]:
    """Return the constructor and the methods of a class with many parameters, by name.

    Without what all views have in common, their options and the places that `at` opens them on, and without
    constructors of results, which functions return.
    """
    item = public()[name]
    callables = {
        f"{name}.{method}": getattr(item, method)
        for kind in item.__mro__
        if kind.__module__.startswith("attnwidgets.")
        for method in vars(kind)
        if not method.startswith("_") and method != "at" and callable(getattr(item, method))
    }
    if not name.startswith("results.") and not issubclass(item, View):
        callables[name] = item
    counts = {
        each: len([parameter for parameter in parameters(function) if parameter.name != "self"])
        for each, function in callables.items()
    }
    return {each for each, count in counts.items() if count > MOST_PARAMETERS}


def test_few_methods_take_many_parameters():
    wide = set().union(*map(wide_methods, classes()))
    assert wide == WIDE_METHODS, "options that belong together are an object with a name"


FIRST = ("trace", "traces", "clean")
# Takes its model or trace by name: a method is checked on small inputs, metrics score a data set of traces.
# A run is of a model at many steps.
BY_NAME = {"check", "checkpoints", "evaluate.compare"}


@pytest.mark.parametrize("name", functions())
def test_model_and_tokenizer_or_a_trace_come_first(name):
    names = [
        parameter.name for parameter in parameters(public()[name]) if parameter.kind < parameter.KEYWORD_ONLY
    ]
    if name in BY_NAME:
        return
    assert names[:2] == ["model", "tokenizer"] or "tokenizer" not in names or names[0] == "what"
    assert names[:1] == ["model"] or "model" not in names
    assert not set(FIRST) & set(names[1:]) or names[0] in FIRST


@pytest.mark.parametrize("name", [*functions(), *classes()])
def test_every_parameter_is_documented(name):
    item = public()[name]
    assert inspect.getdoc(item)
    if inspect.isclass(item) and not item.__module__.startswith("attnwidgets.views"):
        return  # results, documented by the functions that return them
    assert {parameter.name for parameter in parameters(item)} - documented(item) == set()


@pytest.mark.parametrize("name", [*functions(), *classes()])
def test_a_summary_is_one_line_of_content(name):
    first = (inspect.getdoc(public()[name]) or "").split("\n")[0]
    assert first.endswith((".", "?"))
    assert "see the class" not in first
