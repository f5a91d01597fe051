"""The user's model and tokenizer come back exactly as they were."""

from __future__ import annotations

import copy
import io
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.recording import proof
from attnwidgets.tracing.recording.borrow import borrowed, configs_of, implementation, quietly
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS = [5, 17, 31, 9]


def state_of(model: Any) -> dict[str, Any]:
    """Return everything about a model that tracing could have changed."""
    return {
        "implementation": [c._attn_implementation_internal for c in configs_of(model.modules())],
        "config": model.config.to_dict(),
        "generation": model.generation_config.to_dict() if model.can_generate() else None,
        "training": [m.training for m in model.modules()],
        "hooks": [
            (list(m._forward_hooks), list(m._forward_pre_hooks), list(m._backward_hooks))
            for m in model.modules()
        ],
        "attributes": [sorted(vars(m)) for m in model.modules()],
        "parameters": [(p.requires_grad, p.dtype, p.device, p.grad, p._version) for p in model.parameters()],
    }


def mixed_model() -> Any:
    """Return a model in a state worth restoring: partly training, partly frozen, with a hook."""
    model = tiny.build(tiny.TEXT["GPT-2"], implementation="sdpa").train()
    model.transformer.h[0].eval()
    model.transformer.wte.weight.requires_grad_(requires_grad=False)
    model.transformer.h[1].register_forward_hook(lambda *_: None)
    model.config.use_cache = True
    return model


def test_model_comes_back_as_it_was() -> None:
    model = mixed_model()
    before = state_of(model)
    trace(model, None, IDS)
    trace(model, None, IDS, max_new_tokens=2)
    assert state_of(model) == before
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("family", tiny.OUTSIDE)
def test_fallback_leaves_no_hooks(family: str) -> None:
    model = tiny.build(tiny.OUTSIDE[family])
    before = state_of(model)
    trace(model, None, IDS)
    assert state_of(model) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_model_comes_back_after_an_exception_in_the_middle(error: type[BaseException]) -> None:
    model = mixed_model()

    def fail(*_: object) -> None:
        raise error

    handle = model.transformer.h[1].mlp.register_forward_hook(fail)
    before = state_of(model)
    with pytest.raises(error):
        trace(model, None, IDS)
    assert state_of(model) == before
    assert torch.is_grad_enabled()
    handle.remove()
    assert trace(model, None, IDS).n_layers() == 2


def test_training_mode_does_not_drop_attention() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    expected = trace(model, None, IDS).attention_layer(1)
    model.train()
    assert torch.equal(trace(model, None, IDS).attention_layer(1), expected)
    assert model.training


def test_models_that_share_a_config() -> None:
    first = tiny.build(tiny.TEXT["BERT"])
    second = type(first)(first.config).eval()
    assert first.config is second.config
    alone = trace(copy.deepcopy(second), None, IDS).attention_layer(0)
    assert not torch.equal(trace(first, None, IDS).attention_layer(0), alone)
    assert torch.equal(trace(second, None, IDS).attention_layer(0), alone)
    assert first.config._attn_implementation == "sdpa"


def test_threads_get_their_own_numbers() -> None:
    shared = tiny.build(tiny.TEXT["BERT"])
    models = [shared, type(shared)(shared.config).eval(), tiny.build(tiny.TEXT["Llama"]), shared]
    rows = [[5, 6, 7], [8, 9, 10, 11], [12, 13], [14, 15, 16, 17, 18]]
    expected = [trace(m, None, r).attention_layer(1) for m, r in zip(models, rows, strict=True)]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(5):
            result = trace(models[i], None, rows[i])
            if result.n_layers() != 2 or not torch.equal(result.attention_layer(1), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert shared.config._attn_implementation == "sdpa"


def test_layers_may_be_read_from_many_threads() -> None:
    result = trace(tiny.build(tiny.TEXT["BERT"]), None, IDS)
    layers: list[Any] = []
    threads = [threading.Thread(target=lambda: layers.append(result.attention_layer(0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({k.data_ptr() for k in layers}) == 1


def test_another_threads_forward_is_not_recorded() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    ids = torch.tensor([IDS])
    plain = model(ids).logits
    results = []
    with borrowed(model) as twin, recording(twin) as session:
        other = threading.Thread(target=lambda: results.append(model(ids).logits))
        other.start()
        other.join()
    assert not session.calls
    torch.testing.assert_close(results[0], plain)


def test_edits_reach_the_output_and_the_record() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    ids = torch.tensor([IDS])
    plain = model(ids).logits

    def silence(call: int, _module: Any, weights: Any, value: Any) -> Any:
        return (weights * 0 if call == 1 else weights), value

    with borrowed(model) as twin, recording(twin, [silence]) as session:
        edited = twin(ids).logits
    assert not torch.allclose(edited, plain)
    silenced = session.calls[1].weights
    assert silenced is not None
    assert not silenced.any()
    assert session.calls[0].weights is None
    torch.testing.assert_close(model(ids).logits, plain)


def test_implementation_survives_nesting() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    with implementation(model, "eager"), pytest.raises(RuntimeError), implementation(model, "sdpa"):
        raise RuntimeError
    assert model.config._attn_implementation == "sdpa"


def test_tokenizer_keeps_its_padding_and_truncation() -> None:
    tokenizer = tiny.wordpiece()
    backend = tokenizer.backend_tokenizer
    backend.enable_padding(length=12, pad_token="[PAD]")
    backend.enable_truncation(9)
    tokenizer.padding_side = "left"
    before = (backend.to_str(), tokenizer.padding_side, tokenizer.pad_token)
    result = trace(tiny.build(tiny.TEXT["BERT"]), tokenizer, ["the cat sat .", "cat"], text_pair=["a b", "c"])
    assert (backend.to_str(), tokenizer.padding_side, tokenizer.pad_token) == before
    assert result[0].tokens == ("[CLS]", "the", "cat", "sat", ".", "[SEP]", "a", "b", "[SEP]")
    assert result[1].tokens == ("[CLS]", "cat", "[SEP]", "c", "[SEP]")


@pytest.mark.slow
def test_compiled_model() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    expected = trace(model, None, IDS).attention_layer(1)
    assert torch.equal(trace(torch.compile(model), None, IDS).attention_layer(1), expected)
    model.compile()
    assert torch.equal(trace(model, None, IDS).attention_layer(1), expected)


def test_peft_model() -> None:
    peft = pytest.importorskip("peft")
    model = tiny.build(tiny.TEXT["Llama"])
    plain = trace(model, None, IDS).attention_layer(1)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    result = trace(wrapped, None, IDS)
    assert result.n_layers() == 2
    assert not torch.equal(result.attention_layer(1), plain), "the adapter takes part"


def test_prefix_of_a_peft_model_is_on_the_key_axis() -> None:
    peft = pytest.importorskip("peft")
    model = tiny.build(tiny.TEXT["Llama"])
    wrapped = peft.get_peft_model(model, peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    try:
        result = trace(wrapped, None, IDS)
    except ValueError as error:
        assert "PeftModel" in str(error)  # noqa: PT017 - refused by name is as good
        return
    query, key = result.axes()
    assert len(query) == len(IDS)
    assert key.tokens[:3] == ("[P0]", "[P1]", "[P2]")
    for method in ("rollout", "attention_flow", "chefer", "decompx"):
        with pytest.raises(ValueError, match="3 of the 7 keys are none of its tokens"):
            getattr(aw, method)(result)
    assert "3 of the 7 keys" in aw.methods(result)["rollout"].refusal(result)
    with pytest.raises(ValueError, match=r"relevance is not conserved .* 3 of the 7 keys"):
        aw.lrp(result)


def test_dispatched_model() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = tiny.build(tiny.TEXT["Llama"])
    expected = trace(model, None, IDS).attention_layer(1)
    spread = accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)
    assert torch.equal(trace(spread, None, IDS).attention_layer(1), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
def test_accelerator() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    expected = trace(model, None, IDS).attention_layer(1)
    result = trace(model.to("cuda"), None, IDS)
    torch.testing.assert_close(result.attention_layer(1), expected, atol=1e-4, rtol=0)


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    """The messages of transformers' loggers."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("transformers").addHandler(handler)
    yield said
    logging.getLogger("transformers").removeHandler(handler)


def test_what_generating_warns_of_is_kept_back_in_its_thread_only(heard: io.StringIO) -> None:
    logger = logging.getLogger("transformers.generation")
    with quietly():
        logger.warning("an option")
        logger.error("a failure")
        other = threading.Thread(target=logger.warning, args=("of another thread",))
        other.start()
        other.join()
    logger.warning("afterwards")
    assert heard.getvalue().splitlines() == ["a failure", "of another thread", "afterwards"]


def test_a_model_that_generates_with_options_of_its_own_says_nothing_of_them(heard: io.StringIO) -> None:
    model = tiny.whisper()
    model.generate(torch.zeros(1, 8, 40), max_new_tokens=3)
    assert "max_length" in heard.getvalue() or "suppress_tokens" in heard.getvalue(), "it warns by itself"
    before = heard.getvalue()
    trace(model, None, audio=torch.zeros(1, 8, 40), max_new_tokens=3)
    assert heard.getvalue() == before


def test_what_bad_weights_return_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_proved", set())
    bad = tiny.build(tiny.TEXT["BERT"])
    with torch.no_grad():
        bad.bert.embeddings.LayerNorm.weight.fill_(float("nan"))
    trace(bad, None, IDS)
    compared: list[int] = []
    plain = proof._difference
    monkeypatch.setattr(proof, "_difference", lambda *args: (compared.append(1), plain(*args))[1])
    good = tiny.build(tiny.TEXT["BERT"])
    trace(good, None, IDS)
    assert len(compared) == 1
    trace(good, None, IDS)
    assert len(compared) == 1
    good(torch.tensor([IDS]), output_hidden_states=True)
    trace(good, None, IDS)
    assert len(compared) == 1, "the hooks that transformers leaves there only read"
    other = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", hidden_act="relu"))
    trace(other, None, IDS)
    assert len(compared) == 2, "another architecture of the same class"
    other.bert.encoder.layer[0].register_forward_hook(lambda *_: None)
    trace(other, None, IDS)
    trace(other, None, IDS)
    assert len(compared) == 4, "hooks may do something else in every pass"
