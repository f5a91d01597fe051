from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations import MethodTable, MixingMap, explain, method, methods
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.registry.documentation import QUESTIONS, SPEEDS
from attnwidgets.explanations.registry.registry import Method, in_menu_order, method_named
from attnwidgets.explanations.registry.requirements import NEEDS, Need, at_most
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.run import trace
from tests.explanations.made import attention_map, shares
from tests.tracing import tiny


def test_every_method_says_what_it_is():
    table = methods()
    assert {"attention", "rollout"} <= set(table.names)
    for entry in table:
        assert entry.name in repr(table)
        assert entry.summary.endswith(".")
        assert entry.paper
        assert entry.needs
        assert entry.returns.startswith(("MixingMap", "Attributions"))
        assert entry.question in QUESTIONS
        assert entry.speed in SPEEDS
        assert 0 < len(entry.gist) <= 60
        assert not entry.gist.endswith(".")
    assert "residual_weight" in table["rollout"].options


def test_one_method_says_itself_in_a_line():
    told = repr(methods()["rollout"])
    assert told.startswith("<Method rollout: ")
    assert "Abnar" in told
    assert "0x" not in told


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

    register = method(
        "attention",
        question="Attention",
        gist="g",
        paper="p",
        needs="n",
        returns="MixingMap",
        cost="c",
        speed="instant",
    )
    with pytest.raises(
        ValueError, match=r"'attention' is registered by attnwidgets\.explanations\.mixing\.attention"
    ):
        register(other)
    assert methods()["attention"].function is attention


def test_what_a_method_does_not_say_is_taken_from_its_result_and_its_docstring():
    def largest(trace):
        """The largest weight of a row."""

    entry = Method("largest", largest, "p", "n", "MixingMap or Attributions", "c")
    assert (entry.answers, entry.reads) == ("What goes into a token", "The largest weight of a row")
    assert Method("largest", largest, "p", "n", "Attributions [source]", "c").answers == "For this prediction"
    said = Method("largest", largest, "p", "n", "MixingMap", "c", question="Attention", gist="the largest")
    assert (said.answers, said.reads) == ("Attention", "the largest")


def test_menus_list_methods_by_question_and_the_quick_ones_first():
    ordered = sorted(methods(), key=in_menu_order)
    assert [entry.name for entry in ordered][:2] == ["attention", "rollout"]
    assert ordered[-1].name == "shapley_sampling"
    assert [entry.answers for entry in ordered] == sorted(
        (entry.answers for entry in ordered), key=QUESTIONS.index
    )
    assert method_named("rollout") is methods()["rollout"]
    assert method_named("rolout") is None


def test_the_table_in_a_notebook_is_text_only():
    evil = Method("x", lambda trace: trace, "<script>alert(1)</script>", "<b>", "MixingMap", "a & b")
    shown = MethodTable({"x": evil})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def given(queries: int = 3, keys: int = 3):
    return from_attentions(
        shares(2, 2, queries, keys),
        query_tokens=[f"q{i}" for i in range(queries)] if queries != keys else list("abc"[:queries]),
        key_tokens=list("abc"[:keys]),
    )


@pytest.mark.parametrize("name", methods().names)
def test_a_method_serves_given_numbers_exactly_where_it_is_not_refused(name):
    trace = given()
    refusal = methods()[name].refusal(trace)
    if refusal:
        assert refusal.startswith("needs ")
        with pytest.raises((ValueError, TypeError)):
            explain(trace, name)
    else:
        assert explain(trace, name).method == name


@pytest.mark.parametrize("name", ["rollout", "attention_flow"])
def test_methods_of_a_stack_refuse_one_that_reads_another(name):
    assert methods()[name].refusal(given()) == ""
    assert "from one sequence to another" in methods()[name].refusal(given(3, 2))


def test_a_map_serves_what_follows_maps_and_nothing_else():
    table = methods(attention_map())
    served = {name for name, refused in table.refusals.items() if not refused}
    assert {"rollout", "attention_flow"} <= served
    assert table.refusals["attention"] == "needs recorded attention, and this is a map without its trace"


def test_the_table_of_a_trace_says_which_methods_serve_it():
    shown = repr(methods(given()))
    assert "serves this trace yes" in shown
    assert "serves this trace no: needs the model, with its attention recorded" in " ".join(shown.split())
    assert "serves this trace" not in repr(methods())
    assert ">serves this trace</th>" in methods(given())._repr_html_()


FAMILIES = {**tiny.TEXT, **tiny.SEQ2SEQ, **tiny.OUTSIDE}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["BERT", "ELECTRA", "Llama", "Marian", "MPNet"])
def test_a_method_serves_a_model_exactly_where_it_is_not_refused(family):
    traced = trace(tiny.build(FAMILIES[family]), None, [5, 6, 7, 8])
    for entry in methods():
        for stack in traced.stacks if "stack" in entry.options else (None,):
            asked = {} if stack is None else {"stack": stack}
            if entry.refusal(traced, **asked):
                with pytest.raises((ValueError, TypeError)):
                    _ = entry.function(traced, **asked).values
            else:
                assert np.isfinite(entry.function(traced, **asked).values).all()


def test_refusing_runs_no_model(monkeypatch):
    traced = trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 6, 7, 8])
    monkeypatch.setattr(type(traced.model), "forward", lambda *_, **__: pytest.fail("the model ran"))
    assert methods(traced).refusals["alti"] == ""


def test_menus_read_what_comes_back_and_which_options_it_takes():
    table = methods()
    assert table["rollout"].kind == "map"
    assert table["mixing_ratio"].kind == "attributions"
    assert table["rollout"].default_options()["residual_weight"] == 0.5
    assert table["rollout"].default_options()["stack"] is None
    assert table["rollout"].default_options(given())["stack"] == "self"
    assert table["rollout"].required == ()


def test_a_methods_own_requirement_counts():
    short = at_most(2, "tokens", lambda trace, stack: len(trace.axes(stack)[1]))
    entry = Method("x", lambda trace: trace, "p", "n", "MixingMap", "c", (NEEDS["attention"], short))
    assert entry.refusal(given(2, 2)) == ""
    assert entry.refusal(given()) == (
        "needs at most 2 tokens, and there are 3: pass force=True in Python, or take a shorter text"
    )


def test_what_takes_minutes_is_refused_unless_forced():
    n = 65
    long = from_attentions(shares(1, 1, n, n), [f"t{i}" for i in range(n)])
    refused = methods()["attention_flow"].refusal(long)
    assert refused.startswith("needs at most 64 tokens, and there are 65: pass force=True")
    traced = trace(tiny.build(tiny.TEXT["BERT"]), None, [5] * 6)
    method = methods()["hidden_token_attribution"]
    assert method.refusal(traced) == ""
    traced.model.config.hidden_size = 5_000
    assert "there are 30,000" in method.refusal(traced)


def test_unknown_requirements_name_the_nearest():
    register = method(
        "new",
        question="Attention",
        gist="g",
        paper="p",
        needs="block",
        returns="MixingMap",
        cost="c",
        speed="instant",
    )
    with pytest.raises(ValueError, match=r"needs 'block' is not one of .*Did you mean 'blocks'"):
        register(lambda trace: trace)
    assert "new" not in methods()
    assert Need("own", "luck", lambda *_: "and there is none").refusal(None, "self") == (
        "needs luck, and there is none"
    )
