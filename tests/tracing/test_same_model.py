"""A model that changed since its trace is refused by functions that run it, and its caches are not read."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.content import fingerprint_of
from attnwidgets.tracing.model_state import named_modules
from tests.tracing import tiny
from tests.tracing.families import IDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.tracing.trace import Trace


def llama() -> Any:
    return tiny.build(tiny.TEXT["Llama"])


def test_modules_are_listed_as_torch_lists_them() -> None:
    model = llama()
    model.again = model.model.layers[1]  # a module that is there twice
    model.nothing = None
    assert list(named_modules(model).items()) == list(model.named_modules())
    assert list(named_modules(torch.jit.script(torch.nn.Sequential(torch.nn.Linear(1, 1))))) == ["", "0"]


def adapted() -> Any:
    """Return a Llama with two adapters, of which the first is active."""
    peft = pytest.importorskip("peft")
    options: dict[str, Any] = {"r": 2, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}
    model = peft.get_peft_model(llama(), peft.LoraConfig(**options), adapter_name="one")
    model.add_adapter("two", peft.LoraConfig(**options))
    return model.eval()


def noise(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def emptied(model: Any) -> None:
    model.model.layers[1].mlp.down_proj.weight.data.zero_()  # which counts as no write


def scaled(by: float) -> Any:
    return lambda _, __, output: (output[0] * by, *output[1:]) if isinstance(output, tuple) else output * by


def hooked(model: Any) -> None:
    model.model.layers[0].mlp.register_forward_hook(scaled(0.5))


def wider(model: Any) -> None:
    model.model.layers[0].input_layernorm.variance_epsilon = 0.5


def forwarded(model: Any) -> None:
    mlp = model.model.layers[1].mlp
    plain = mlp.forward
    mlp.forward = lambda states: 2 * plain(states)


def softer(model: Any) -> None:
    model.model.layers[0].mlp.act_fn = torch.nn.ReLU()


def other_adapter(model: Any) -> None:
    model.set_adapter("two")


def weaker_adapter(model: Any) -> None:
    for module in model.modules():
        if isinstance(getattr(module, "scaling", None), dict):
            module.scaling["one"] *= 0.5


CHANGES: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
    (llama, noise),
    (llama, emptied),
    (llama, hooked),
    (llama, wider),
    (llama, forwarded),
    (llama, softer),
    (adapted, other_adapter),
    (adapted, weaker_adapter),
]
METHODS: dict[str, Callable[[Trace], Any]] = {
    "saliency": aw.saliency,
    "lrp": aw.lrp,
    "integrated_gradients": lambda trace: aw.integrated_gradients(trace, steps=2, baseline="zero"),
    "occlusion": lambda trace: aw.occlusion(trace, baseline="zero"),
    "value_zeroing": lambda trace: aw.value_zeroing(trace).layer(0),
    "alti": lambda trace: aw.alti(trace).layer(0),
    "head_importance": aw.statistics.head_importance,
    "lens": aw.circuits.lens,
}


@pytest.mark.parametrize(("make", "change"), CHANGES, ids=lambda function: function.__name__)
def test_a_changed_model_is_refused_and_has_another_fingerprint(
    make: Callable[[], Any], change: Callable[[Any], None]
) -> None:
    model = make()
    trace = aw.trace(model, None, input_ids=IDS)
    before = fingerprint_of(model)
    change(model)
    assert fingerprint_of(model) != before
    with pytest.raises(ValueError, match=r"saliency runs the model again, which changed after this trace"):
        aw.saliency(trace)
    assert aw.saliency(trace.rerun()).shape == (len(IDS),)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_runs_the_model_asks_whether_it_is_the_same(name: str) -> None:
    model = llama()
    trace = aw.trace(model, None, input_ids=IDS)
    noise(model)
    with pytest.raises(ValueError, match="changed after this trace was made"):
        METHODS[name](trace)


@pytest.mark.parametrize("change", [noise, emptied], ids=["in place", "as data"])
@pytest.mark.parametrize("method", ["alti", "attention_norm", "decompx", "value_zeroing"])
def test_layers_that_are_read_later_ask_whether_it_is_still_the_same(method: str, change: Any) -> None:
    model = llama()

    def measured() -> Any:
        result = getattr(aw, method)(aw.trace(model, None, input_ids=IDS))
        return getattr(result, "map", result)

    measured().layer(1)  # proves the description of the block, once for all traces
    result = measured()
    if method != "decompx":  # which computes all layers at once
        result.layer(0)
    change(model)
    with pytest.raises(ValueError, match=r"changed after it was traced|returns something else"):
        result.layer(1)


def test_removal_asks_whether_the_model_is_the_same() -> None:
    model = llama()
    trace = aw.trace(model, None, input_ids=IDS)
    given = aw.saliency(trace, 3)
    noise(model)
    with pytest.raises(ValueError, match="changed after this trace was made"):
        aw.evaluate.faithfulness(
            trace, given, 3, removal=aw.evaluate.Removal("attention_mask", oracle=None, draws=1)
        )


def test_a_model_without_a_head_is_compared_by_what_its_last_layer_reads() -> None:
    model = tiny.build(tiny.TEXT["BERT"]).bert
    trace = aw.trace(model, None, input_ids=IDS)
    noise(model)
    with pytest.raises(ValueError, match="changed after this trace was made"):
        aw.value_zeroing(trace)


def test_what_changes_no_number_is_no_change() -> None:
    model = llama()
    trace = aw.trace(model, None, input_ids=IDS)
    expected = aw.saliency(trace).values
    again = pickle.loads(pickle.dumps(trace))
    model.train()
    model.model.layers[0].register_forward_hook(lambda *_: None)
    model.note = "an attribute that nothing reads"
    with torch.no_grad():
        model.lm_head.weight.add_(0)
    assert (aw.saliency(trace).values == expected).all()
    assert (aw.saliency(again).values == expected).all()


def test_changes_are_looked_for_once_a_state() -> None:
    model = llama()
    trace = aw.trace(model, None, input_ids=IDS)
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    aw.saliency(trace)
    first = len(passes)
    aw.saliency(trace)
    assert (first, len(passes) - first) == (2, 1)  # once to compare, and a pass for each explanation


def test_two_hooks_of_one_name_are_not_the_same() -> None:
    prints = []
    for by in (0.5, 0.25, 0.5):
        model = llama()
        model.model.layers[0].mlp.register_forward_hook(scaled(by))
        prints.append(fingerprint_of(model))
    assert prints[0] == prints[2] != prints[1]
