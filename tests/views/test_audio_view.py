"""AudioView: its numbers are those of maps and alignments, in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.recording.run import trace
from tests.speech.made import heard, spoken, tones
from tests.tracing import tiny
from tests.tracing.test_frames import Bins


@pytest.fixture(scope="module")
def times() -> Any:
    return heard()


@pytest.fixture(scope="module")
def written() -> Any:
    return aw.speech.align(spoken())


def test_the_map_is_what_words_were_aligned_by(written: Any) -> None:
    view = aw.AudioView(written)
    first, last = written.tokens[3]
    assert view.value(3, 2.5 * written.step) == pytest.approx(written.matrix[first:last, 2].mean())
    assert view.times is written
    assert view.word() is None


def test_rows_of_cross_attention_are_those_that_write_the_word(written: Any) -> None:
    view = aw.AudioView(written)
    position = view.trace.axes("decoder")[0].tokens.index("pear")
    weights = np.asarray(view.trace.attention_layer(1, "cross"))
    at = {"map": "cross", "layer": 1}
    assert view.value(3, 2.5 * written.step, head=2, **at) == pytest.approx(
        weights[2, position - 1, 2], rel=1e-5
    )
    mean = weights.mean(0)[position - 1, 2]
    assert view.value(3, 2.5 * written.step, head="mean", **at) == pytest.approx(mean, rel=1e-5)
    meta, (data,) = view._heard("cross", "words", 1, 2)
    drawn = np.frombuffer(data, "<f4").reshape(4, -1)
    count = drawn.shape[1]
    # The share outside is told: a row and its padding sum to 1.
    assert drawn.sum(1) + meta["outside"] == pytest.approx(np.ones(4), abs=1e-5)
    assert count < weights.shape[-1]


def test_the_encoder_is_read_by_words_and_by_time(times: Any) -> None:
    view = aw.AudioView(times)
    weights = np.asarray(times.trace.attention_layer(0, "encoder"))[1]
    spans = times.trace.axes("encoder")[0].units["word"].spans
    at = {"map": "encoder", "layer": 0, "head": 1}
    assert view.value(2, 0.01, **at) == pytest.approx(weights[list(spans[2]), 0].mean(), rel=1e-5)
    assert view.value(4, 0.01, rows="time", **at) == pytest.approx(weights[4, 0], rel=1e-5)


def test_an_explanation_by_words_stands_over_their_seconds(times: Any) -> None:
    zeroed = aw.value_zeroing(times.trace, stack="encoder", unit="word")
    view = aw.AudioView(times, zeroed)
    assert view.value(1, 0.1) == pytest.approx(zeroed.layer(view.selection.layer)[1, 0], rel=1e-5)
    assert view.value(1, 0.2) == view.value(1, 0.1)
    assert view.value(1, 0.3) == pytest.approx(zeroed.layer(view.selection.layer)[1, 1], rel=1e-5)


def test_a_long_sound_has_no_more_columns_than_are_seen(monkeypatch: pytest.MonkeyPatch, times: Any) -> None:
    monkeypatch.setattr("attnwidgets.views.media.heard.MOST_COLUMNS", 4)
    view = aw.AudioView(times)
    meta, (data,) = view._heard("encoder", "words", 0, 1)
    drawn = np.frombuffer(data, "<f4").reshape(len(meta["labels"]), -1)
    weights = np.asarray(times.trace.attention_layer(0, "encoder"))[1]
    spans = times.trace.axes("encoder")[0].units["word"].spans
    assert drawn.shape[1] <= 4
    assert drawn[1, 0] == pytest.approx(weights[list(spans[1])][:, :4].mean(), rel=1e-5)
    assert meta["step"] == pytest.approx(4 * times.step)


def test_a_pinned_word_is_known_in_python(written: Any) -> None:
    view = aw.AudioView(written)
    words = view._words()[0]["words"]
    view.selection.stack = "cross"
    view.selection.pinned = (words[2]["written"], -1, "word")
    assert view.word() == 2


def test_a_sound_without_words_is_shown_and_says_why() -> None:
    silent = trace(spoken().model, spoken().tokenizer, audio=tones())
    view = aw.AudioView(silent)
    assert view._words()[0]["words"] == []
    with pytest.raises(AttributeError, match="the decoder wrote no words"):
        view.times  # noqa: B018 - asking is the test
    assert view.describe().startswith("0.75 s of sound")


def test_times_that_were_given_stay_with_their_trace(times: Any) -> None:
    assert aw.AudioView(times.trace).times is times


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda times: aw.AudioView("a"), TypeError, "takes a trace of a sound"),
        (
            lambda times: aw.AudioView(trace(tiny.build(tiny.TEXT["BERT"]), None, input_ids=[1, 2])),
            ValueError,
            r"this trace has no sound: make it with aw.trace\(model, processor, audio=wave\)",
        ),
        (lambda times: aw.AudioView(times, 3), TypeError, "shows a MixingMap or Attributions, not int"),
        (
            lambda times: aw.AudioView(times, aw.attention(times.trace, stack="decoder")),
            ValueError,
            "are not frames of this trace's sound",
        ),
        (lambda times: aw.AudioView(times).value(9, 0.1), IndexError, "there are rows 0 to"),
        (lambda times: aw.AudioView(times).value(0, 9.0), IndexError, r"and 0.75 s"),
        (lambda times: aw.AudioView(times).value(0, 0.1, map="crosss"), ValueError, "Did you mean 'cross'"),
        (
            lambda times: aw.AudioView(times).value(0, 0.1, map="encoder", rows="tokens"),
            ValueError,
            "rows 'tokens'",
        ),
    ],
)
def test_what_is_no_sound_is_refused_in_words(
    times: Any, make: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make(times)


def answer(view: Any, **at: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Return the values that an Explorer draws over the sound, as the browser asks for them."""
    meta, (data,) = view.requests.answer("heard", at)
    return meta, np.frombuffer(data, "<f4").reshape(len(meta["labels"]), -1)


def test_an_explorer_of_a_sound_opens_by_its_words_and_draws_every_map_over_its_seconds() -> None:
    recorded = spoken()
    view = aw.Explorer(recorded)
    assert "audio" in view.needs.scripts
    assert view.selection.unit == "word"
    assert view.options["heard"] == ["cross", "encoder"]
    units = view.trace.axes("encoder")[0].units
    assert set(units["word"].labels) >= {"he", "ate", "pear"}
    meta, drawn = answer(view, source="attention/word/encoder", layer=1, head=2)
    weights = np.asarray(recorded.attention_layer(1, "encoder"))[2]
    words = [position for position, special in enumerate(units["word"].special) if not special]
    count = drawn.shape[1]
    for row, word in enumerate(words):
        expected = weights[list(units["word"].spans[word])].mean(0)[:count]
        np.testing.assert_allclose(drawn[row], expected, rtol=1e-5)
    assert meta["labels"] == [units["word"].labels[word] for word in words]
    # A word of the text has a row here, as in a heatmap, other than the row that writes it.
    meta, drawn = answer(view, source="attention/token/cross", layer=0, head="mean")
    written = recorded.axes("decoder")[0].tokens.index("pear")
    expected = np.asarray(recorded.attention_layer(0, "cross")).mean(0)[written, :count]
    np.testing.assert_allclose(drawn[meta["labels"].index("pear")], expected, rtol=1e-5)


def test_attributions_to_frames_are_drawn_over_the_sound() -> None:
    view = aw.Explorer(spoken(), methods=["attention", "input_x_gradient"])
    view.selection.method = "input_x_gradient"
    source = next(item for item in view.sources() if item.id == "input_x_gradient/token/encoder")
    expected = source.layer(0)[0]
    meta, drawn = answer(view, source=source.id, layer=0, head="-")
    assert meta["rows"] == "targets"
    np.testing.assert_allclose(drawn, expected[:, : drawn.shape[1]], rtol=1e-5)


def test_an_explorer_of_a_sound_without_words_says_why_and_shows_its_frames() -> None:
    recorded = trace(tiny.whisper(), Bins(first=True), audio=tones())
    view = aw.Explorer(recorded)
    assert view.trace is recorded
    words, _ = view.requests.answer("words", {})
    assert words["words"] == []
    assert words["why"]
    meta, drawn = answer(view, source="attention/token/encoder", layer=0, head=1)
    assert meta["rows"] == "time"
    weights = np.asarray(recorded.attention_layer(0, "encoder"))[1]
    np.testing.assert_allclose(drawn, weights[: len(drawn), : drawn.shape[1]], rtol=1e-5)


def test_sounds_of_a_list_have_words_each() -> None:
    first, second = spoken(), spoken()
    view = aw.Explorer([first, second])
    assert all("word" in item.axes("encoder")[0].units for item in view.traces)
    view.show_text(1)
    assert answer(view, source="attention/word/encoder", layer=1, head=2)[1].size


def test_attributions_to_frames_are_a_row_for_every_target(written: Any) -> None:
    given = aw.input_x_gradient(written.trace, ["pear", "ate"], stack="encoder")
    view = aw.AudioView(written, given)
    assert view.describe().split(". ")[2].startswith("Input x gradient, encoder: each row is highest for")
    for target in (0, 1):
        for frame in (0, 3):
            second = (frame + 0.5) * written.step
            assert view.value(target, second) == pytest.approx(given.values[target, frame], rel=1e-5)
    by_word = aw.AudioView(given.to("word"))
    spans = written.trace.axes("encoder")[0].units["word"].spans
    assert by_word.value(1, 0.5 * written.step) == pytest.approx(
        given.values[1, list(spans[0])].sum(), rel=1e-5
    )


def test_a_map_or_attributions_of_a_sound_open_over_it(written: Any) -> None:
    rolled = aw.rollout(written.trace, stack="encoder")
    view = rolled.view()
    assert type(view).__name__ == "AudioView"
    span = written.trace.axes("encoder")[0].units["word"].spans[1]
    expected = rolled.layer(view._layer_of("encoder"))[list(span), 2].mean()
    assert view.value(1, 2.5 * written.step) == pytest.approx(expected, rel=1e-5)
    assert type(aw.saliency(written.trace, stack="encoder").view()).__name__ == "AudioView"
    assert type(aw.saliency(written.trace, stack="decoder").view()).__name__ == "TokenStrip"


def test_a_map_that_was_made_before_words_were_found_is_read_by_them() -> None:
    recorded = spoken()
    early = aw.rollout(recorded, stack="encoder")
    late = aw.rollout(aw.speech.align(recorded).trace, stack="encoder")
    values = [aw.AudioView(item).value(2, 0.3, rows="words", layer=1) for item in (early, late)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_a_token_that_begins_the_text_is_no_word_of_it() -> None:
    recorded = trace(tiny.whisper(), Bins(first=True), audio=tones())
    with pytest.raises(ValueError, match="the decoder wrote no words to align"):
        aw.speech.align(recorded)


def test_a_page_with_little_room_holds_the_words_of_all_stacks_before_maps_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = spoken()
    view = aw.Explorer(shown, layer=1, head=2)
    monkeypatch.setattr("attnwidgets.views.media.spoken.PAGE_VALUES", 6_000)
    in_page = [arguments for topic, arguments, _ in view.requests.for_page() if topic == "heard"]
    maps = {(item["source"], item["layer"], item["head"]) for item in in_page}
    heads = (*range(4), "mean", "max")
    for source in ("attention/word/encoder", "attention/word/cross", "attention/token/cross"):
        assert maps >= {(source, layer, head) for layer in (0, 1) for head in heads}
    assert "attention/frame/encoder" not in {item["source"] for item in in_page}
