"""Several captions of one picture, and each word of a caption: against autograd over CLIP itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.pictures import PICTURES, Reader
from tests.vision.pictures import noise, vit

if TYPE_CHECKING:
    from collections.abc import Sequence

CAPTIONS = ("the cat sat", "the unbelievable cat")


class Captions(Reader):
    """A processor that reads a caption with the words of the tests' vocabulary."""

    def __call__(self, *, text: Sequence[str], **_: Any) -> dict[str, Any]:
        ids = self.tokenizer(text[0], add_special_tokens=False)["input_ids"]
        return self.inputs | {"input_ids": torch.tensor([ids])}


def traced(family: str) -> list[Any]:
    entry = PICTURES[family]
    reader = Captions(entry.read(entry.picture()), None)
    picture = entry.picture().sigmoid()  # between 0 and 1, so that the given pixels are recovered
    result: list[Any] = aw.trace(tiny.build(entry.make), reader, list(CAPTIONS), image=picture)
    return result


@pytest.fixture(scope="module")
def traces() -> list[Any]:
    return traced("CLIP")


def outputs_of(trace: Any) -> Any:
    """Return the model's outputs, with attention."""
    trace.model.set_attn_implementation("eager")
    return trace.model(**trace.inputs, output_attentions=True)


def by_hand(score: torch.Tensor, weights: Any) -> np.ndarray:
    """Return the class token's row of R, without the diagonal."""
    slopes = torch.autograd.grad(score, weights, retain_graph=True)
    relevance = torch.eye(weights[0].shape[-1])
    for weight, slope in zip(weights, slopes, strict=True):
        relevance = relevance + (weight * slope)[0].clamp(min=0).mean(0) @ relevance
    row = relevance[0].detach().numpy()
    row[0] -= 1
    return row


def test_every_caption_has_the_map_of_its_own_similarity(traces: list[Any]) -> None:
    result = aw.vision.captions(traces)
    assert result.targets == CAPTIONS
    similarities = []
    for row, trace in zip(result.values, traces, strict=True):
        outputs = outputs_of(trace)
        similarities.append(outputs.logits_per_image[0, 0])
        expected = by_hand(similarities[-1], outputs.vision_model_output.attentions)
        expected[0] += 1
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-6)
    shares = torch.stack(similarities).softmax(0).tolist()
    assert result.predictions.title == "caption"
    assert {item.label: item.probability for item in result.predictions.items} == pytest.approx(
        dict(zip(CAPTIONS, shares, strict=True)), rel=1e-5
    )
    assert result.to_dataframe()["target"].unique().tolist() == list(CAPTIONS)


def test_captions_of_siglip_are_probable_each_on_its_own() -> None:
    result = aw.vision.captions(traced("SigLIP"))
    logits = torch.tensor(result.provenance["logits_per_image"])
    shares = {item.id: item.probability for item in result.predictions.items}
    assert [shares[i] for i in range(2)] == pytest.approx(logits.sigmoid().tolist(), rel=1e-5)


def test_without_a_class_token_all_rows_are_read() -> None:
    trace = traced("SigLIP")[0]
    result = aw.chefer(trace, stack="vision")
    assert "the mean over the rows of patches" in result.warning
    np.testing.assert_allclose(result.values, result.map.layer(-1).mean(0), rtol=1e-6)
    first = aw.chefer(trace, stack="vision", row=0)
    np.testing.assert_allclose(first.values, result.map.layer(-1)[0], rtol=1e-6)
    words = aw.vision.caption_words(trace)
    assert words.layer(0).shape == (3, 4)
    assert words.layer(0).min() > -1e-9


def test_a_word_is_seen_where_the_similarity_that_it_brings_is(traces: list[Any]) -> None:
    trace = traces[1]
    result = aw.vision.caption_words(trace)
    assert result.query.tokens == ("the", "unbelievable", "cat")
    outputs = outputs_of(trace)
    table = trace.model.text_model.embeddings.token_embedding
    for number, span in enumerate(((0,), (1, 2, 3), (4,))):
        without = table(trace.inputs["input_ids"]).detach().clone()
        without[:, list(span)] = 0
        hook = table.register_forward_hook(lambda *_, states=without: states)
        with torch.no_grad():
            less = trace.model(**trace.inputs)
        hook.remove()
        scale = trace.model.logit_scale.exp()
        part = scale * (outputs.text_embeds - less.text_embeds)[0].detach()
        score = outputs.image_embeds[0] @ part
        expected = by_hand(score, outputs.vision_model_output.attentions)
        np.testing.assert_allclose(result.layer(0)[number], expected, rtol=1e-3, atol=1e-5)
        assert result.provenance["brought"][number] == pytest.approx(score.item(), rel=1e-4, abs=1e-5)


def test_both_are_drawn_on_the_picture(traces: list[Any]) -> None:
    view = aw.ImageView(aw.vision.captions(traces))
    assert "2 × 2 patches" in view.describe()
    words = aw.ImageView(aw.vision.caption_words(traces[0]))
    assert words.describe().startswith("Chefer's relevance for words, layer 0: sat")


def test_the_model_is_as_it_was(traces: list[Any]) -> None:
    before = traces[0].logits
    hooks = [dict(module._forward_hooks) for module in traces[0].model.modules()]
    aw.vision.caption_words(traces[0])
    assert torch.equal(traces[0].rerun().logits, before)
    assert hooks == [dict(module._forward_hooks) for module in traces[0].model.modules()]


def test_what_cannot_be_compared_is_refused(traces: list[Any]) -> None:
    with pytest.raises(ValueError, match="traces is empty"):
        aw.vision.captions([])
    with pytest.raises(ValueError, match="these traces are of several"):
        aw.vision.captions([traces[0], traced("CLIP")[0]])
    clip = PICTURES["CLIP"]
    other = aw.trace(
        traces[0].model, Captions(clip.read(clip.painted(0, 0)), None), "the cat", image=clip.picture()
    )
    with pytest.raises(ValueError, match="captions of one picture"):
        aw.vision.captions([traces[0], other])
    plain = aw.trace(vit(), None, image=noise(32, 32))
    with pytest.raises(UnsupportedModelError, match="compares a picture with a caption"):
        aw.vision.captions([plain])
    with pytest.raises(UnsupportedModelError, match="compares a picture with a caption"):
        aw.vision.caption_words(plain)
    with pytest.raises(TypeError, match="give a list of them"):
        aw.vision.captions(traces[0])
