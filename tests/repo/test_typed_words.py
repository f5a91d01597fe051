"""Words that people type from habit: each works, or its error names the call that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._errors import Suggesting

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = np.full((2, 2, 3, 3), 1 / 3)


@pytest.fixture(scope="module")
def trace() -> Any:
    return aw.from_attentions(WEIGHTS, ["a", "good", "film"])


@pytest.fixture(scope="module")
def other() -> Any:
    return aw.from_attentions(WEIGHTS, ["a", "dull", "film"])


HINTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "cmap": (lambda trace: aw.Heatmap(trace, cmap="viridis"), "Did you mean 'palette'"),
    "colormap": (lambda trace: aw.Explorer(trace, colormap="viridis"), "Did you mean 'palette'"),
    "width": (lambda trace: aw.Heatmap(trace, width=300), r"Did you mean layout=\{\"width\": \"600px\"\}"),
    "savefig": (lambda trace: aw.Heatmap(trace).savefig("a.png"), "Did you mean 'save'"),
    "to_pdf": (lambda trace: aw.rollout(trace).to_pdf("a.pdf"), r"Did you mean save\(\"figure.pdf\"\)"),
    "to_pandas": (lambda trace: aw.rollout(trace).to_pandas(), "Did you mean 'to_dataframe'"),
    "df": (lambda trace: aw.statistics.head_patterns(trace).df, "Did you mean 'to_dataframe'"),
    "show": (lambda trace: aw.rollout(trace).show(), "Did you mean 'view'"),
    "misspelt": (lambda trace: aw.rollout(trace).to_datafame(), "Did you mean 'to_dataframe'"),
    "misspelt, of a view": (lambda trace: aw.Heatmap(trace).selecton, "Did you mean 'selection'"),
    "trace.save": (lambda trace: trace.save("a"), r"Save a result, aw.attention\(trace\).save\(path\)"),
    "trace.attentions": (lambda trace: trace.attentions, r"aw.attention\(trace\).values"),
    "aw.mean": (lambda _: aw.mean, r"aw.attention\(trace\).mean\('head'\)"),
    "aw.save": (lambda _: aw.save, r"aw.rollout\(trace\).save\(path\)"),
    "aw.gradient_x_input": (lambda _: aw.gradient_x_input, "Did you mean 'input_x_gradient'"),
    "averaged": (lambda trace: aw.statistics.averaged([trace]), r"aw.statistics.head_statistics\(traces\)"),
    "PatchView": (lambda trace: aw.views.PatchView(trace, trace), r"aw.circuits.patch\(clean, corrupt"),
    "two texts": (
        lambda trace: aw.Heatmap(trace, trace),
        r"a list: Heatmap\(\[first, second\]\)",
    ),
}


@pytest.mark.parametrize("word", HINTS)
def test_a_word_from_habit_names_the_call_that_serves(trace: Any, word: str) -> None:
    call, words = HINTS[word]
    with pytest.raises((AttributeError, TypeError), match=words):
        call(trace)


def test_two_texts_go_into_a_view_one_after_the_other(trace: Any, other: Any) -> None:
    assert aw.TwoTexts(trace, other).traces == aw.TwoTexts([trace, other]).traces == (trace, other)
    assert isinstance(aw.compare(trace, other), aw.TwoTexts)
    maps = aw.attention(trace), aw.rollout(trace)
    assert (
        aw.compare(*maps).names == aw.views.CompareView(*maps).names == aw.views.CompareView(list(maps)).names
    )
    with pytest.raises(TypeError, match="shows two traces"):
        aw.TwoTexts(trace, other, other)


def test_an_explorer_opens_on_a_method(trace: Any) -> None:
    explorer = aw.Explorer(trace, method="rollout")
    assert explorer.selection.method == "rollout"
    assert {"attention", "rollout"} <= set(explorer.options["methods"])
    with pytest.raises(ValueError, match="Did you mean 'rollout'"):
        aw.Explorer(trace, method="rollot")


def test_the_last_layer_is_minus_one(trace: Any) -> None:
    attention = aw.attention(trace)
    assert attention.value("good", "last", layer=-1, head=-1) == pytest.approx(1 / 3)
    assert attention.select(layer=-1).layers == (1,)
    with pytest.raises(TypeError, match="layer takes an integer, not 'last'"):
        attention.select(layer="last")
    assert aw.Heatmap(trace, layer=-1).selection.layer == 1


def test_an_error_inside_a_property_is_raised_unchanged() -> None:
    class Broken(Suggesting):
        @property
        def number(self) -> int:
            return [].missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'list' object has no attribute 'missing'"):
        _ = Broken().number
    assert not hasattr(Broken(), "_private")
