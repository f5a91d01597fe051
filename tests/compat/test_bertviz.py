"""The calls of bertviz' documentation, through bertviz and through us: the same numbers."""

from __future__ import annotations

import inspect
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.compat import bertviz
from attnwidgets.compat import bertviz as ours
from tests.tracing import tiny

TEXT = "The cat sat on the mat"
PAIR = ("The cat sat on the mat", "The cat lay on the rug")


@pytest.fixture(scope="module")
def theirs():
    return pytest.importorskip("bertviz", reason="pip install bertviz (the extra of that name)")


@pytest.fixture(autouse=True)
def _nothing_left_open():
    from ipywidgets import Widget

    Widget.close_all()
    yield
    Widget.close_all()


@pytest.fixture(scope="module")
def recorded(minilm):
    """The results of the documentation's calls: attention of a model loaded to return it, and its tokens."""
    import torch
    from transformers import AutoModel

    tokenizer = minilm[1]
    model = AutoModel.from_pretrained(tokenizer.name_or_path, output_attentions=True)

    def of(*texts):
        inputs = tokenizer(*texts, return_tensors="pt")
        with torch.no_grad():
            attention = model(**inputs).attentions
        return attention, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])

    return of


@pytest.fixture(scope="module")
def sentence_of_minilm(recorded):
    return recorded(TEXT)


@pytest.fixture(scope="module")
def pair_of_minilm(recorded):
    return recorded(*PAIR)


@pytest.fixture(scope="module")
def translation():
    """An encoder-decoder's attentions, as the documentation's Marian returns them."""
    import torch

    model = tiny.build(tiny.SEQ2SEQ["Marian"], implementation="eager")
    with torch.no_grad():
        result = model(
            input_ids=torch.tensor([[5, 6, 7, 8, 2]]),
            decoder_input_ids=torch.tensor([[0, 9, 10]]),
            output_attentions=True,
        )
    return {
        "encoder_attention": result.encoder_attentions,
        "decoder_attention": result.decoder_attentions,
        "cross_attention": result.cross_attentions,
        "encoder_tokens": ["▁She", "▁sees", "▁the", "▁elephant", "</s>"],
        "decoder_tokens": ["<pad>", "▁Sie", "▁sieht"],
    }


def page_of(view, *arguments, **options):
    """The contents of bertviz' page: its parameters, read out of the script."""
    page = view(*arguments, html_action="return", **options).data
    start = re.search(r"const params = (?=\{)", page).end()
    return json.JSONDecoder().raw_decode(page, start)[0]


def numbers(view):
    """The contents of our view, by stack: {stack: (layers, heads, [layer, head, query, key])}."""
    return {
        source.stack: (
            source.layers,
            source.heads,
            np.stack([source.layer(number) for number in source.layers]),
        )
        for source in view.sources()
        if (source.method, source.unit) == ("attention", "token")
    }


def same(shown, page, *, heads=None):
    """Whether our numbers are those of a page's parts, stream by stack."""
    names = {"Encoder": "encoder", "Decoder": "decoder", "Cross": "cross"}
    parts = page["attention"] if page["attention"][0]["name"] in names else page["attention"][:1]
    assert len(shown) == len(parts)
    for part in parts:
        layers, included, values = shown[names.get(part["name"], "self")]
        assert list(layers) == page["include_layers"]
        assert list(included) == (page.get("include_heads") or list(range(len(part["attn"][0]))))
        np.testing.assert_allclose(values, np.array(part["attn"]), atol=1e-7)


def test_the_arguments_are_bertviz_own(theirs):
    for name in ("head_view", "model_view"):
        given = inspect.signature(getattr(ours, name)).parameters
        wanted = inspect.signature(getattr(theirs, name)).parameters
        assert [(p.name, p.default) for p in given.values()] == [(p.name, p.default) for p in wanted.values()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("model_view", {}),
        ("head_view", {}),
        ("model_view", {"display_mode": "light"}),
        ("model_view", {"include_layers": [3, 5]}),
        ("model_view", {"include_heads": [1, 4, 11], "include_layers": [2]}),
        ("head_view", {"layer": 2, "heads": [3, 5]}),
        ("head_view", {"include_layers": [4], "layer": 4, "prettify_tokens": False}),
    ],
)
def test_a_documented_call_shows_the_same_numbers(theirs, sentence_of_minilm, name, options):
    attention, tokens = sentence_of_minilm
    page = page_of(getattr(theirs, name), attention, list(tokens), **options)
    view = getattr(ours, name)(attention, tokens, **options)
    same(numbers(view), page)
    if "layer" in options:
        assert view.selection.layer == options["layer"] == page["layer"]
    if "heads" in options:
        assert view.selection.head == options["heads"][0]
        assert view.options["heads"] == options["heads"]


def test_a_pair_knows_its_second_text(theirs, pair_of_minilm):
    attention, tokens = pair_of_minilm
    second = tokens.index("[SEP]") + 1
    page = page_of(theirs.head_view, attention, list(tokens), second)
    view = ours.head_view(attention, tokens, second)
    same(numbers(view), page)
    source = view.sources()[0]
    segment = source.axes()[0]["segment"]
    values = np.stack([source.layer(number) for number in source.layers])
    sides = {"A": [i for i, s in enumerate(segment) if s == 0], "B": [i for i, s in enumerate(segment) if s]}
    for part in page["attention"][1:]:
        query, key = re.findall(r"Sentence (\w)", part["name"])
        block = values[:, :, sides[query]][:, :, :, sides[key]]
        np.testing.assert_allclose(block, np.array(part["attn"]), atol=1e-7)
        assert len(part["left_text"]) == len(sides[query])


@pytest.mark.parametrize("name", ["head_view", "model_view"])
@pytest.mark.parametrize("options", [{}, {"include_layers": [1]}])
def test_an_encoder_decoder_has_three_stacks(theirs, translation, name, options):
    given = {key: list(value) for key, value in translation.items()}
    page = page_of(getattr(theirs, name), **given, **options)
    view = getattr(ours, name)(**translation, **options)
    result = numbers(view)
    assert set(result) == {"encoder", "decoder", "cross"}
    same(result, page)
    cross = next(source for source in view.sources() if source.stack == "cross")
    assert cross.axes()[0]["labels"][1:] == ["Sie", "sieht"] or "Sie" in cross.axes()[0]["labels"][1]
    assert len(cross.axes()[1]["labels"]) == 5


def test_one_stack_alone_needs_its_own_tokens_only(translation):
    view = ours.head_view(
        encoder_attention=translation["encoder_attention"], encoder_tokens=translation["encoder_tokens"]
    )
    assert set(numbers(view)) == {"encoder"}


def test_tokens_are_shown_as_text_or_as_they_are_spelled():
    given = np.full((1, 1, 3, 3), 1 / 3)
    labels = [
        ours.model_view(given, ["ĠThe", "Ġcat", "Ċ"], prettify_tokens=pretty).sources()[0].axes()[0]["labels"]
        for pretty in (True, False)
    ]
    assert labels[1] == ["ĠThe", "Ġcat", "Ċ"]
    assert labels[0][1].endswith("cat")
    assert "Ġ" not in "".join(labels[0])


def test_the_head_view_is_the_view_of_that_name(sentence_of_minilm):
    assert ours.head_view(*sentence_of_minilm).name == "HeadView"


def test_returned_html_is_a_page_of_its_own(sentence_of_minilm):
    attention, tokens = sentence_of_minilm
    page = ours.head_view(attention, tokens, include_layers=[0], html_action="return")
    assert page.data.startswith("<!doctype html>")
    assert "https://" not in re.sub(r"https?://www\.w3\.org", "", page.data)
    shown = page._repr_html_()
    assert shown.startswith("<iframe")
    assert "<script" not in shown


def test_what_bertviz_refuses_is_refused_in_words(sentence_of_minilm, translation):
    attention, tokens = sentence_of_minilm
    with pytest.raises(ValueError, match="pass attention"):
        ours.head_view()
    with pytest.raises(ValueError, match="tokens is required"):
        ours.model_view(attention)
    with pytest.raises(ValueError, match="excludes encoder_tokens"):
        ours.head_view(attention, tokens, encoder_tokens=tokens)
    with pytest.raises(ValueError, match="decoder_tokens is required with cross_attention"):
        ours.head_view(cross_attention=translation["cross_attention"], encoder_tokens=list("abcde"))
    with pytest.raises(IndexError, match="there is only layer 3"):
        ours.head_view(attention, tokens, layer=2, include_layers=[3])
    with pytest.raises(ValueError, match="'return'"):
        ours.head_view(attention, tokens, html_action="retrun")
    with pytest.raises(ValueError, match="'light'"):
        ours.model_view(attention, tokens, display_mode="ligth")
    with pytest.raises(ValueError, match="3 entries, and the attention has 8"):
        ours.head_view(attention, ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"outputs\.attentions.*eager"):
        ours.head_view((), tokens)
    with pytest.raises(IndexError, match="layer 9 is out of range"):
        ours.model_view(attention, tokens, include_layers=[9])
    with pytest.raises(ValueError, match="second_text is 8"):
        ours.head_view(attention, tokens, 8)


def test_in_a_notebook_the_call_displays_once_whatever_line_it_is_on(monkeypatch):
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    shown = []
    monkeypatch.setattr(bertviz, "running_shell", lambda: shell)
    monkeypatch.setattr(bertviz, "display", shown.append)
    view = ours.head_view(np.full((1, 1, 2, 2), 0.5), ["a", "b"])
    assert shown == [view]
    view._ipython_display_()  # as the notebook does with the last line of a cell
    assert shown == [view]
    shell.execution_count = 2
    view._ipython_display_()
    assert shown == [view, view]
    assert "_ipython_display_" not in vars(view)


# Handing over


def test_a_map_is_handed_to_bertviz_and_comes_back_from_its_page(theirs, minilm):
    trace = aw.trace(*minilm, *PAIR[:1], text_pair=PAIR[1])
    shown = aw.attention(trace)
    for name in ("head", "model"):
        given = shown.to_bertviz(name)
        page = page_of(getattr(theirs, f"{name}_view"), **given)
        np.testing.assert_allclose(np.array(page["attention"][0]["attn"]), shown.values, atol=5.1e-5)
        assert page["attention"][0]["left_text"] == list(shown.query_labels)
        assert page["attention"][1]["name"].startswith("Sentence A")
        assert page["attention"][1]["left_text"][-1] == "[SEP]"
    text = theirs.head_view(**given, html_action="return").data
    assert len(max(re.findall(r"0\.\d+", text), key=len)) == len("0.1234")


def test_some_layers_keep_their_numbers(theirs, minilm):
    shown = aw.attention(aw.trace(*minilm, TEXT)).select(layer=[2, 4])
    page = page_of(theirs.head_view, **shown.to_bertviz())
    assert page["include_layers"] == [2, 4]
    np.testing.assert_allclose(np.array(page["attention"][0]["attn"]), shown.values, atol=5.1e-5)


def test_words_rollout_and_cross_attention_are_handed_over_too(theirs, minilm, translation):
    trace = aw.trace(*minilm, "The electroencephalographer sat.")
    words = aw.rollout(trace).to("word")
    page = page_of(theirs.model_view, **words.to_bertviz("model"))
    assert page["attention"][0]["left_text"] == list(words.query_labels)
    assert np.array(page["attention"][0]["attn"]).shape == (6, 1, 5, 5) or words.shape[-1] == len(
        page["attention"][0]["left_text"]
    )
    cross = aw.from_attentions(
        {"cross": translation["cross_attention"]},
        query_tokens=translation["decoder_tokens"],
        key_tokens=translation["encoder_tokens"],
    )
    page = page_of(theirs.head_view, **aw.attention(cross).to_bertviz())
    assert page["attention"][0]["name"] == "Cross"
    assert np.array(page["attention"][0]["attn"]).shape[-2:] == (3, 5)


def test_tokens_cannot_end_the_script_they_are_written_into():
    shown = aw.results.MixingMap(np.eye(2), query=["</script>", "<!--"])
    given = shown.to_bertviz()
    assert not any("</script" in token or "<!--" in token for token in given["tokens"])


def test_what_bertviz_cannot_show_is_refused_in_words():
    def eye(n, *shape):
        return aw.results.MixingMap(
            np.broadcast_to(np.eye(n, dtype=np.float32), (*shape, n, n)), query=list(map(str, range(n)))
        )

    with pytest.raises(ValueError, match=r"130 tokens.*\.to\('word'\)"):
        eye(130, 1, 1).to_bertviz()
    assert len(eye(130, 1, 1).to_bertviz(force=True)["tokens"]) == 130
    eye(100, 1, 1).to_bertviz()
    with pytest.raises(ValueError, match="model view cannot show 100"):
        eye(100, 1, 1).to_bertviz("model")
    with pytest.raises(ValueError, match="4,194,304 weights"):
        eye(64, 32, 32).to_bertviz("model")
    with pytest.raises(ValueError, match="negative"):
        aw.results.MixingMap(-np.eye(3), query=list("abc")).to_bertviz()
    with pytest.raises(ValueError, match="'model'"):
        eye(2, 1, 1).to_bertviz("modle")
    ragged = aw.attention(aw.from_attentions([np.full((h, 2, 2), 0.5) for h in (3, 2)], ["a", "b"]))
    with pytest.raises(ValueError, match="2 to 3 heads"):
        ragged.to_bertviz()
