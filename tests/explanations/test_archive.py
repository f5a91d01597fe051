from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import attnwidgets as aw
from attnwidgets.explanations import Attributions, MixingMap
from attnwidgets.explanations.explanation import Outcomes
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.results.archive import ArchiveError, load
from attnwidgets.tracing.prediction import Prediction
from tests.explanations.made import attention_map, axis, shares

HOSTILE = ("</script>", "nul\0", "\u202eevil", "a\ud800b", '"quoted"', "日本")


def hostile_map() -> MixingMap:
    return MixingMap(
        shares(2, 6, 6), query=list(HOSTILE), layers=[3, 4], provenance={"text": "".join(HOSTILE)}
    )


def predicting_map() -> MixingMap:
    given = Outcomes("next token", (Prediction(" Paris", 0.77, 12),))
    return attention_map(predictions=given, warning="7 of 9 tokens", trace_id="abc")


CASES = {
    "attention": predicting_map,
    "words": lambda: attention_map().to("word"),
    "rollout": lambda: rollout(attention_map()),
    "rectangle": lambda: MixingMap(shares(1, 2, 3), query=list("ab"), key=list("xyz"), stack="cross"),
    "hostile": hostile_map,
    "float64": lambda: MixingMap(np.array([[1 / 3, 2 / 3], [0.1, 0.9]]), query=["a", "b"]),
    "float32 attributions": lambda: Attributions(np.float32([1 / 3, -0.1]), axis=["a", "b"]),
    "attributions": lambda: Attributions(
        [[1.0, -2.0], [0.0, 1.0]], axis=["a", "b"], target=["x", "y"], foil="z", residual=[0.1, 0.2]
    ),
}


@pytest.mark.parametrize("name", ["saved.safetensors", "saved"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_opened_is_what_was_saved(case, name, tmp_path):
    saved = CASES[case]()
    result = load(saved.save(tmp_path / name))
    assert type(result) is type(saved)
    np.testing.assert_array_equal(result.values, saved.values)
    assert repr(result) == repr(saved)
    assert result.dtype == saved.dtype == result.values.dtype == saved.values.dtype
    for fact in ("provenance", "predictions", "warning", "trace_id", "unit", "signed"):
        assert getattr(result, fact) == getattr(saved, fact)
    if isinstance(saved, MixingMap):
        assert result.query == saved.query
        assert result.key == saved.key
        assert (result.layers, result.heads, result.causal) == (saved.layers, saved.heads, saved.causal)
        assert result.stochastic == saved.stochastic


def test_suffixes_of_other_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"saved as \.safetensors; .*to_csv"):
        attention_map().save(tmp_path / "map.tsv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "begin"), [("map.pdf", b"%PDF"), ("map.PNG", b"\x89PNG"), ("map.csv", b"layer,head,")]
)
def test_pictures_and_tables_are_saved_for_reading(name, begin, tmp_path):
    path = attention_map().save(tmp_path / name)
    assert path.read_bytes().startswith(begin)
    with pytest.raises(ArchiveError):
        load(path)


def test_a_result_without_a_view_is_saved_as_its_figure(tmp_path):
    table = aw.statistics.head_statistics(attention_map(), "entropy")
    assert table.save(tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(TypeError, match="HeadStatistics has no widget"):
        table.save(tmp_path / "heads.html")
    assert [path.name for path in tmp_path.iterdir()] == ["heads.png"]


def test_the_former_verb_draws_and_warns():
    with pytest.warns(DeprecationWarning, match=r"MixingMap.plot\(\) is called figure\(\) now"):
        assert attention_map().plot(layer=1, head=0).axes


@pytest.mark.parametrize("name", ["page.html", "PAGE.HTM"])
def test_a_name_of_a_page_gives_the_page_of_its_view(name, tmp_path):
    path = attention_map().save(tmp_path / name)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert attention_map().title in path.read_text(encoding="utf-8")
    with pytest.raises(ArchiveError, match="is a page, which is for reading"):
        load(path)
    with pytest.raises(FileNotFoundError, match=r"make .* first"):
        attention_map().save(tmp_path / "nowhere" / name)


def test_opened_maps_can_be_worked_with(tmp_path):
    result = load(attention_map().save(tmp_path / "map.safetensors"))
    np.testing.assert_array_equal(result.to("word").values, attention_map().to("word").values)
    np.testing.assert_array_equal(rollout(result).values, rollout(attention_map()).values)


def test_saving_computes_lazy_layers(tmp_path):
    values = shares(2, 7, 7)
    lazy = MixingMap.lazy(values.__getitem__, query=axis(), layers=[0, 1], method="made")
    np.testing.assert_array_equal(load(lazy.save(tmp_path / "lazy")).values, values)


@pytest.mark.slow
def test_opened_where_there_is_no_torch(tmp_path):
    path = attention_map().save(tmp_path / "map.safetensors")
    program = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from attnwidgets.explanations.results.archive import load\n"
        f"print(load({str(path)!r}).to('word').shape, 'matplotlib' in sys.modules, 'pickle' in sys.argv)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(3, 2, 5, 5) False False", done.stderr


def test_the_same_map_gives_the_same_bytes(tmp_path):
    result = predicting_map()
    first, second = result.save(tmp_path / "first.safetensors"), result.save(tmp_path / "second.safetensors")
    assert first.read_bytes() == second.read_bytes()


def test_saving_again_replaces(tmp_path):
    for name in ("map.safetensors", "map"):
        attention_map(seed=1).save(tmp_path / name)
        attention_map(seed=2).save(tmp_path / name)
        np.testing.assert_array_equal(load(tmp_path / name).values, attention_map(seed=2).values)
    assert {path.name for path in tmp_path.iterdir()} == {"map", "map.safetensors"}


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="not a saved explanation; choose another name"):
        attention_map().save(tmp_path / "notes")
    with pytest.raises(FileNotFoundError, match="folder that does not exist"):
        attention_map().save(tmp_path / "nowhere" / "map.safetensors")


def foreign_tensors(path):
    save_file({"weight": np.zeros(3)}, path)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"hello"),
        lambda path: path.write_bytes(b"\x80\x04cposix\nsystem\n(S'true'\ntR."),
        lambda path: path.write_bytes(b"\xff" * 64),
        lambda path: path.write_bytes((10**5).to_bytes(8, "little") + b"[" * 10**5),
        lambda path: path.write_bytes((2).to_bytes(8, "little") + b"[]"),
        foreign_tensors,
        lambda path: path.mkdir(),
    ],
)
def test_foreign_files_are_refused(write, tmp_path):
    write(tmp_path / "foreign.safetensors")
    with pytest.raises(ArchiveError, match="not a saved explanation"):
        load(tmp_path / "foreign.safetensors")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "none.safetensors")


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(cut, tmp_path):
    path = attention_map().save(tmp_path / "map.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(ArchiveError):
        load(path)


def edited(**changes):
    def edit(described):
        return described | changes

    return edit


def inside(*path, value):
    def edit(described):
        branch = described
        for name in path[:-1]:
            branch = branch[name]
        branch[path[-1]] = value
        return described

    return edit


def without_units(described):
    described["query"]["units"]["token"]["spans"][0] = [99]
    return described


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited(version=99), "later version"),
        (edited(version=None), "names no version"),
        (edited(kind="Sculpture"), "kind 'Sculpture'"),
        (edited(layers=[0, 1, 2, 3]), "damaged"),
        (edited(unit="paragraph"), "damaged.*'paragraph'"),
        (edited(query=3), "damaged"),
        (edited(predictions=[]), "damaged"),
        (without_units, "damaged.*outside 0 to 6"),
        (lambda _: [1, 2], "names no version"),
        (edited(layers=[0, float("inf"), 2]), r"damaged: 'layers' of the description\[1\] is inf"),
        (edited(heads=[0, "x", 2, 3]), r"'heads' of the description is \[0, 'x', 2, 3\]"),
        (edited(method=5), "'method' of the description is 5"),
        (edited(stack=True), "'stack' of the description is True"),
        (edited(warning=None), "'warning' of the description is None"),
        (edited(predictions=["next", [[1, 2, 3]]]), "'predictions' of the description"),
        (inside("provenance", "steps", value="one"), "'steps' of 'provenance' of the description is 'one'"),
        (inside("provenance", "options", value=3), "'options' of 'provenance' of the description is 3"),
        (
            inside("provenance", "axes", value=["row"] * 8),
            "'axes' of 'provenance' of the description has 8 entries instead of 6",
        ),
        (inside("query", "units", "token", "labels", 0, value=1.5), "'labels' of 'token' .* is 1.5"),
        (inside("query", "units", "token", "special", value=[]), "unit 'token' has"),
        (inside("query", "segment", value=[0]), "an axis of 7 tokens"),
        (inside("query", "boundary", value="2"), "'boundary' of 'query' of the description is '2'"),
    ],
)
def test_a_damaged_description_is_refused(edit, message, tmp_path):
    folder = attention_map().save(tmp_path / "map")
    described = json.loads((folder / "explanation.json").read_text())
    (folder / "explanation.json").write_text(json.dumps(edit(described)))
    with pytest.raises(ArchiveError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"residual": [0.5, 0.5]}, r"residual \[0.5, 0.5\] does not fit values"),
        ({"reach": float("inf")}, "'reach' of the description is inf"),
        ({"target": 3}, "'target' of the description is 3"),
        ({"map": 3}, "'map' of the description is 3"),
    ],
)
def test_damaged_attributions_are_refused(changes, message, tmp_path):
    result = Attributions([0.2, 0.8], axis=["a", "b"], target="yes", residual=0.1)
    folder = result.save(tmp_path / "attributions")
    described = json.loads((folder / "explanation.json").read_text())
    (folder / "explanation.json").write_text(json.dumps(described | changes))
    with pytest.raises(ArchiveError, match=message):
        load(folder)


def test_a_description_that_is_no_json_or_nested_too_deeply_is_refused(tmp_path):
    folder = attention_map().save(tmp_path / "map")
    described = json.loads((folder / "explanation.json").read_text())
    (folder / "explanation.json").write_text("{")
    with pytest.raises(ArchiveError, match="not JSON"):
        load(folder)
    described["provenance"]["text"] = "deep"
    text = json.dumps(described).replace('"deep"', "[" * 600 + "]" * 600)
    (folder / "explanation.json").write_text(text)
    with pytest.raises(ArchiveError, match="is damaged"):
        load(folder)


def before_stacks(described: dict) -> dict:
    """A description as it was written when `stack` was called "stream"."""
    old = {name: before_stacks(value) if name == "map" else value for name, value in described.items()}
    old["stream"] = old.pop("stack")
    return old


@pytest.mark.parametrize("name", ["old.safetensors", "old"])
def test_files_that_call_a_stack_stream_still_open(name, tmp_path, monkeypatch):
    by_layer = MixingMap(shares(2, 3, 3), query=list("abc"), stack="encoder")
    saved = Attributions([0.5, -0.1, 0.2], axis=by_layer.key, map=by_layer, stack="encoder")
    described, arrays = saved.to_description()
    monkeypatch.setattr(Attributions, "to_description", lambda _: (before_stacks(described), arrays))
    result = load(saved.save(tmp_path / name))
    assert (result.stack, result.map.stack) == ("encoder", "encoder")
    np.testing.assert_array_equal(result.map.values, by_layer.values)


def test_pickles_of_old_name_the_same_function_and_open():
    saved = attention_map(stack="decoder")
    function, (described, arrays) = saved.__reduce__()
    assert f"{function.__module__}.{function.__qualname__}" == "attnwidgets.explanations.explanation.restore"
    assert function(before_stacks(described), arrays).stack == "decoder"


def test_numbers_too_large_for_float32_are_damage_and_not_infinite(tmp_path):
    path = aw.statistics.head_statistics(attention_map()).save(tmp_path / "stats.safetensors")
    tensors = load_file(path)
    with safe_open(path, "np") as file:
        about = file.metadata()
    [name] = tensors
    tensors[name].reshape(-1)[0] = 1e300
    save_file(tensors, path, metadata=about)
    with pytest.raises(ArchiveError, match="too large for float32"):
        load(path)


@pytest.fixture(scope="module")
def report():
    model, tokenizer = aw.zoo.induction()
    return aw.circuits.check_claims(
        model, tokenizer, ["head 1.0 is induction"], ["fadebcfadeb", "cgaehdcgaeh"]
    )


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("results", 0, "claim"), "x", "'x' is not a claim about a head"),
        (("results", 0, "verdict"), "perhaps", "verdict 'perhaps' is not one of"),
        (("results", 0, "control"), "x", "control 'x' is not one of"),
        (("results", 0, "given"), 2**31, "2147483648 texts, and values have shape"),
        (("results", 0, "texts", 0, 0), 7, "2 texts, and values have shape"),
        (("results", 0, "texts", 0, 5), ["a"], r"is 'a'"),
        (("margin",), "wide", "'margin' of the description is 'wide'"),
    ],
)
def test_damaged_claims_are_refused(report, place, value, message, tmp_path):
    folder = report.save(tmp_path / "report")
    described = json.loads((folder / "explanation.json").read_text())
    (folder / "explanation.json").write_text(json.dumps(inside(*place, value=value)(described)))
    with pytest.raises(ArchiveError, match=message):
        load(folder)
