from __future__ import annotations

import pytest

from attnwidgets.explanations import MethodTable, MixingMap, explain, method, methods
from attnwidgets.explanations.attention import attention
from attnwidgets.explanations.registry import Method

from .made import attention_map


def test_every_method_says_what_it_is():
    table = methods()
    assert {"attention", "rollout"} <= set(table.names)
    for entry in table:
        assert entry.name in repr(table)
        assert entry.summary.endswith(".")
        assert entry.paper
        assert entry.needs
        assert entry.returns.startswith(("MixingMap", "Attributions"))
    assert "residual_weight" in table["rollout"].options


def test_unknown_method_names_the_nearest():
    with pytest.raises(ValueError, match=r"method 'rolout' is unknown.*Did you mean 'rollout'"):
        explain(attention_map(), "rolout")


@pytest.mark.parametrize(
    "call", [lambda **o: explain(attention_map(), "rollout", **o), methods()["rollout"].function]
)
def test_unknown_keyword_names_the_nearest(call):
    with pytest.raises(
        TypeError, match=r"rollout.. takes no keyword 'residual_wieght'.*Did you mean 'residual_weight'"
    ):
        call(residual_wieght=0.4)


def test_a_name_is_taken_once():
    def other(trace) -> MixingMap:
        return trace

    register = method("attention", paper="p", needs="n", returns="MixingMap", cost="c")
    with pytest.raises(
        ValueError, match=r"'attention' is registered by attnwidgets\.explanations\.attention"
    ):
        register(other)
    assert methods()["attention"].function is attention


def test_the_table_in_a_notebook_is_text_only():
    evil = Method("x", lambda trace: trace, "<script>alert(1)</script>", "<b>", "MixingMap", "a & b")
    shown = MethodTable({"x": evil})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
