"""The uses of arrays and files, run by test_without_torch.py in interpreters with and without torch.

    python without_torch.py FOLDER [blocked]

reads the archives in FOLDER and writes its results there. Blocked, it also draws every view, and writes
the outcome of each public name to told.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MISSING = ("torch", "transformers")


class Blocked:
    """A finder that finds none of `MISSING`, as on a machine where they are not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def weights(layers=3, heads=4, tokens=9, seed=0):
    import numpy as np

    drawn = np.tril(np.random.default_rng(seed).random((layers, heads, tokens, tokens))) + 1e-6
    return np.tril(drawn / np.tril(drawn).sum(-1, keepdims=True))


TOKENS = ["The", "Ġcat", "Ġsat", ".", "ĠThe", "Ġdog", "Ġun", "happ", "y"]
QKV = ([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[1, 0], [1, 1]], [[0, 1], [1, 1]])


def given():
    import attnwidgets as aw

    trace = aw.from_attentions(weights(), TOKENS)
    other = aw.from_attentions(weights(seed=1)[:, :, :8, :8], [*TOKENS[:6], "Ġran", "."])
    return trace, other, aw.from_qkv(*QKV, QKV[1], mask="causal", tokens=["a", "b", "c"])


def numbers(folder):
    """Return the results of arrays and files, by name."""
    import numpy as np

    import attnwidgets as aw

    trace, other, qkv = given()
    half = aw.from_attentions(weights().astype(np.float16), TOKENS)
    maps = aw.rollout(trace)
    gone = trace.diff(other)
    result = {
        "layer": trace.attention_layer(1),
        "rows": trace.attention_rows(2, [3, 1], slice(2, 5)),
        "half": half.attention_layer(0),
        "rollout": maps.values,
        **{unit: aw.attention(trace).to(unit).values for unit in maps.available_units()},
        "spans": maps.to([(0, 4), (4, 6), (6, 9)]).values,
        "selected": aw.attention(trace).select(layer=[0, 2], head=[1]).values,
        "flow": aw.attention_flow(trace).values,
        "difference": aw.rollout(trace).diff(aw.rollout(half)).values,
        "moved": gone.attention["self"],
        "unpaired": gone.unpaired["self"],
        "qkv": qkv.attention_layer(0),
        "head outputs": qkv.head_outputs,
        "statistics": aw.statistics.head_statistics(trace).values,
        "from file": aw.from_attentions(folder / "weights.safetensors").attention_layer(0),
        "causal": np.array([trace.is_causal(), trace.is_signed()]),
    }
    for path in sorted(folder.glob("*.saved")):
        loaded = aw.load(path)
        values = loaded.to_description()[1]
        result |= {f"{path.name} {name}": values[name] for name in sorted(values)}
        if isinstance(loaded, aw.results.MixingMap) and loaded.query == loaded.key:
            result[f"{path.name} rollout"] = aw.rollout(loaded).values
    return {name: np.asarray(value) for name, value in result.items()}


def save(path, arrays):
    import numpy as np

    np.savez(path, **arrays)


def study():
    """Return a study of people with a single question."""
    import attnwidgets as aw

    items = [{"text": "a text", "prediction": "yes", "explanations": {"a": "why"}}]
    texts = {"question": "How far?", "consent": "Do you agree?"}
    options = {"design": "between", "texts": texts, "checks": 0}
    return aw.people.study("trust", items, ["none", "a"], **options)


def views(folder):
    """Yield every view that needs no model, of given and of loaded numbers."""
    import attnwidgets as aw

    trace, other, qkv = given()
    saved = {path.stem: aw.load(path) for path in sorted(folder.glob("*.saved"))}
    for shown in (trace, aw.rollout(trace), saved["attention"]):
        for view in (
            aw.Heatmap,
            aw.TokenStrip,
            aw.LayerSlider,
            aw.views.LayerProfile,
            aw.Explorer,
            aw.explore,
        ):
            yield view(shown)
    for shown in (trace, saved["attention"]):
        for view in (aw.HeadGrid, aw.HeadView, aw.FlowView):
            yield view(shown)
    yield aw.explore(weights(), tokens=TOKENS)
    yield aw.explore(folder / "weights.safetensors")
    yield aw.NeuronView(qkv)
    yield aw.compare([aw.rollout(trace), aw.attention(trace)])
    yield aw.compare([saved["rollout"], saved["value_zeroing"]])
    yield aw.TwoTexts([trace, other])
    yield aw.InterventionView(trace)
    yield aw.views.RelevanceMap(saved["decompx"])
    yield aw.Predictions(saved["attention"])
    yield aw.TokenStrip(saved["saliency"])
    yield aw.Explorer(saved["saliency"])
    yield aw.views.ScorecardView(saved["scorecard"])
    for name in ("patching", "lens", "claims"):
        yield saved[name].view()
    yield aw.views.SentenceView(trace)
    yield aw.people.StudyView(study())
    yield aw.ask.head("Which head?", view=aw.Explorer(trace), id="q")
    for view in (aw.FeatureTable, aw.FeaturePanel, aw.FeatureStrip):
        yield view(saved["features"])


def outcomes():
    """Return the outcome of each public function and class on nothing, a trace, a map and two words."""
    import attnwidgets as aw

    trace, told = given()[0], {}
    tried = ((), (trace,), (aw.rollout(trace),), ("x", "y"))
    for space in ("", "views.", "results.", "evaluate.", "statistics.", "targets.", "compat.", "ask."):
        home = getattr(aw, space[:-1]) if space else aw
        for name in dir(home):
            item = getattr(home, name)
            if callable(item):
                told[space + name] = [outcome(item, *args) for args in tried]
    return told


def outcome(item, *given):
    try:
        item(*given)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        return f"{type(error).__name__}: {error}"
    return ""


def main(folder, *, blocked):
    if blocked:
        sys.meta_path.insert(0, Blocked())
    save(folder / f"numbers-{blocked}.npz", numbers(folder))
    if not blocked:  # tests of views draw them with torch
        return
    import attnwidgets as aw

    told = {"views": []}
    for number, view in enumerate(views(folder)):
        page = folder / f"{number}.html"
        view.to_html(page)
        if not isinstance(view, aw.LayerSlider):  # which has no drawing
            view.save(page.with_suffix(".png"))
        told["views"].append(type(view).__name__)
    told["loaded"] = sorted(name for name in MISSING if name in sys.modules)
    told["outcomes"] = outcomes()
    Path(folder, "told.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), blocked="blocked" in sys.argv)
