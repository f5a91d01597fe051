"""The examples in the docstrings of public functions run, on the demo models."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import attnwidgets as aw

from .public import classes, functions, public, shared_models

pytestmark = pytest.mark.slow

PARSER = doctest.DocTestParser()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(name: str) -> doctest.DocTest:
    return PARSER.get_doctest(public()[name].__doc__ or "", {"aw": aw, "np": np}, f"aw.{name}", None, None)


@pytest.mark.parametrize("name", functions())
def test_a_function_has_an_example(name):
    assert examples(name).examples


@pytest.mark.parametrize("name", [*functions(), *classes()])
def test_examples_hold(name, monkeypatch, tmp_path):
    monkeypatch.setattr(aw, "demo_model", shared_models)
    monkeypatch.chdir(tmp_path)  # examples write files
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(examples(name), out=output.append)
    assert result.failed == 0, "".join(output)
