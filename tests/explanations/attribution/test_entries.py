"""Gradients of the inputs of a stack, where pictures and soft prompts stand among the tokens of a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.families import IDS

IMAGE = 5
SEES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SEES |= {"image_size": 28, "patch_size": 14}
READS = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
READS |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def llava() -> Any:
    text, vision = hf.LlamaConfig(**READS), hf.CLIPVisionConfig(**SEES)
    return hf.LlavaForConditionalGeneration(
        hf.LlavaConfig(
            text_config=text,
            vision_config=vision,
            image_token_index=IMAGE,
            vision_feature_select_strategy="default",
        )
    )


def seen() -> Any:
    """Return the trace of a picture of four patches inside a text."""
    model = tiny.build(llava)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "input_ids": torch.tensor([[21, *[IMAGE] * 4, 34, 55]]),
        "pixel_values": torch.randn(1, 3, 28, 28, generator=generator),
    }
    return traced(model, inputs)


def traced(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    """Return the trace of inputs that a processor made of a text and a picture."""

    class Reader:
        """A processor that reads this picture."""

        tokenizer = tiny.wordpiece()
        image_processor = staticmethod(lambda **_: dict(inputs))

        def __call__(self, **_: Any) -> dict[str, torch.Tensor]:
            return dict(inputs)

    return aw.trace(model, Reader(), image=np.zeros((28, 28, 3), dtype=np.uint8), text="x")


def at_entry(model: Any, blocks: Any, run: Any, target: int) -> np.ndarray:
    """Return input times gradient of a logit at the input of the first block [token], by autograd."""
    read: list[torch.Tensor] = []

    def leaf(_: Any, args: Any, kwargs: Any) -> Any:
        states = args[0] if args else kwargs["hidden_states"]
        read.append(states.detach().clone().requires_grad_())
        if args:
            return (read[0], *args[1:]), kwargs
        return args, kwargs | {"hidden_states": read[0]}

    handle = blocks[0].register_forward_pre_hook(leaf, with_kwargs=True)
    logits = run(model)
    handle.remove()
    logits[0, -1, target].backward()
    gradient = read[0].grad
    assert gradient is not None
    return (read[0] * gradient).sum(-1)[0].detach().numpy()


def test_patches_inside_a_text_have_the_gradient_of_what_is_put_there() -> None:
    trace = seen()
    assert trace.anatomy.positions["text"] == ("token", *["patch"] * 4, "token", "token")
    target = trace.predictions(1)[0].id
    language = trace.model.model.language_model
    expected = at_entry(trace.model, language.layers, lambda model: model(**trace.inputs).logits, target)
    result = aw.input_x_gradient(trace)
    np.testing.assert_allclose(result.values, expected, atol=1e-5)
    patches = result.values[1:5]
    assert np.abs(patches).min() > 0
    for method in (aw.lrp, aw.integrated_gradients, aw.saliency):
        assert np.abs(method(trace).values[1:5]).min() > 0
    # Before the picture nothing depends on it.
    before = aw.saliency(trace, aw.targets.token(5, position=0))
    assert "the values of every patch are exactly 0" in before.warning
    assert "patch" not in result.warning


@pytest.mark.parametrize("family", ["Llama", "GPT-2"])
@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PromptEncoderConfig"])
def test_a_soft_prompt_is_read_with_its_text(family: str, kind: str) -> None:
    peft = pytest.importorskip("peft")
    more = {"encoder_hidden_size": 16} if kind == "PromptEncoderConfig" else {}
    config = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3, **more)
    model = peft.get_peft_model(tiny.build(tiny.TEXT[family]), config).eval()
    trace = aw.trace(model, None, input_ids=IDS)
    ids = torch.tensor([IDS])
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
    assert trace.predictions(1)[0].id == int(logits[-1].argmax())
    assert len(trace.tokens) == len(logits) == len(IDS) + 3
    base = model.base_model
    blocks = base.model.layers if family == "Llama" else base.transformer.h
    expected = at_entry(
        model, blocks, lambda whole: whole(input_ids=ids, attention_mask=torch.ones_like(ids)).logits,
        trace.predictions(1)[0].id,
    )  # fmt: skip
    result = aw.input_x_gradient(trace)
    np.testing.assert_allclose(result.values, expected, atol=1e-5)
    assert result.labels[:3] == ("[P0]", "[P1]", "[P2]")
    assert "positions: soft prompt 0 to 2; tokens 3 to 10" in repr(trace.anatomy)
    # The word's logit is read in the word's row, after the prompt.
    named = aw.saliency(trace, aw.targets.token(7, position=5))
    by_row = aw.saliency(trace, lambda out: out.logits[:, 5, 7])
    np.testing.assert_array_equal(named.values, by_row.values)


def test_the_inputs_of_a_module_are_measured_from_zero() -> None:
    class Saturated(torch.nn.Module):
        """1 - ReLU(1 - x), whose gradient at 2 is 0, and whose value there is 1 above that at 0."""

        def forward(self, x: Any) -> Any:
            return 1 - torch.relu(1 - x)

    trace = aw.trace_module(Saturated(), [2.0])
    for method in (aw.integrated_gradients, aw.deeplift, aw.occlusion):
        result = method(trace, target=0)
        assert result.values.tolist() == pytest.approx([1.0])
        assert "zero" in f"{result.note} {result.provenance}"
    assert aw.integrated_gradients(trace, target=0, baseline=[2.0]).values.tolist() == pytest.approx([0.0])


def test_a_class_activation_map_is_of_the_last_layer_that_counts() -> None:
    # LLaVA reads the second to last block of its vision tower.
    trace = seen()
    result = aw.vision.grad_cam(trace)
    assert result.provenance["layer"] == aw.vision.grad_cam(trace, layer=-2).provenance["layer"]
    with pytest.raises(ValueError, match="it does not depend on this layer's output"):
        aw.vision.grad_cam(trace, layer=-1)


def qwen_vl() -> Any:
    text = {
        **READS,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
    }
    del text["head_dim"]
    sees = {"hidden_size": 32, "intermediate_size": 48, "depth": 2, "num_heads": 4, "out_hidden_size": 32}
    sees |= {"patch_size": 7, "temporal_patch_size": 1, "fullatt_block_indexes": [1], "window_size": 28}
    config = hf.Qwen2_5_VLConfig(text_config=text, vision_config=sees, image_token_id=IMAGE)
    return hf.Qwen2_5_VLForConditionalGeneration(config)


def test_a_picture_given_as_one_list_of_patches_is_read_at_every_point_of_a_path() -> None:
    model = tiny.build(qwen_vl)
    ids = torch.tensor([[21, *[IMAGE] * 4, 34, 55]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(16, 3 * 7 * 7, generator=torch.Generator().manual_seed(0)),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }
    trace = traced(model, inputs)
    target, steps = 40, 8
    result = aw.integrated_gradients(
        trace, aw.targets.token(target), steps=steps, baseline="zero", batch_size=3
    )
    block = model.model.language_model.layers[0]
    states: list[Any] = []

    def score(replaced: torch.Tensor | None) -> torch.Tensor:
        def enter(_: Any, args: Any, kwargs: Any) -> Any:
            states.append(args[0])
            return None if replaced is None else ((replaced, *args[1:]), kwargs)

        handle = block.register_forward_pre_hook(enter, with_kwargs=True)
        logits = model(**inputs).logits[0, -1, target]
        handle.remove()
        return logits

    change = float(score(None).detach() - score(torch.zeros_like(states[0])).detach())
    end = states[0].detach()
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    expected = np.zeros(ids.shape[1])
    for node, weight in zip((1 + nodes) / 2, weights / 2, strict=True):
        leaf = (float(node) * end).requires_grad_()
        gradient = torch.autograd.grad(score(leaf), leaf)[0]
        expected += float(weight) * (gradient * end).sum(-1)[0].numpy()
    np.testing.assert_allclose(result.values, expected, atol=1e-5)
    assert result.values.sum() + result.residual == pytest.approx(change, abs=1e-4)
    assert aw.occlusion(trace, baseline="zero", batch_size=4).shape == (ids.shape[1],)
