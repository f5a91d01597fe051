"""Documentation that methods share: written once, whole where a reader looks it up."""

from __future__ import annotations

import inspect
import re

import pytest

import attnwidgets as aw
from attnwidgets.explanations.registry.documentation import FRAGMENTS, documented


def test_help_shows_the_whole_text():
    shown = " ".join(inspect.getdoc(aw.saliency).split())
    assert f"target: {FRAGMENTS['target']} A list of targets gives [target, source]." in shown
    assert f"TypeError, IndexError: {FRAGMENTS['no_target']}" in shown


@pytest.mark.parametrize("name", [*aw.methods().names, "neuron_relevance", "surprisal"])
def test_no_placeholder_is_left_and_lines_stay_short(name):
    spaces = (aw, aw.vision, aw.circuits)
    shown = inspect.getdoc(next(getattr(space, name) for space in spaces if name in dir(space)))
    assert not re.search(r": \{\w+\}", shown)
    assert max(map(len, shown.splitlines())) <= 110


def test_continued_entries_become_one_and_others_stay():
    def function():
        """Summary {unit}.

        Args:
            unit: {unit} And more
                of it.
            other: As {it} was.
        """

    shown = inspect.getdoc(documented(function))
    assert "other: As {it} was." in shown
    assert "Summary {unit}." in shown
    assert f"unit: {FRAGMENTS['unit']} And more of it." in " ".join(shown.split())


def test_an_unknown_placeholder_is_an_error_at_import():
    def function():
        """Summary.

        Args:
            target: {tagret}
        """

    with pytest.raises(ValueError, match=r"target: \{tagret\}: unknown fragment.*'target'"):
        documented(function)
