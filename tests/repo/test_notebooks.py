"""Notebooks are saved with their outputs and with still pictures, as their code makes them."""

from __future__ import annotations

import copy
import io
import json
import re
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from tests.repo.notebooks import NOTEBOOKS, refresh

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(params=NOTEBOOKS)
def saved(request, root):
    """A notebook as it is saved."""
    return json.loads((root / "notebooks" / request.param).read_text())


def outputs(notebook):
    return [out for cell in notebook["cells"] if cell["cell_type"] == "code" for out in cell["outputs"]]


@pytest.mark.slow
def test_the_code_is_that_of_the_outputs(saved):
    assert saved["metadata"]["attnwidgets"]["made"] == refresh()["made"](saved), "run make notebooks"


def test_a_changed_cell_and_a_changed_number_are_noticed(saved):
    made = refresh()["made"]
    code = next(i for i, cell in enumerate(saved["cells"]) if cell["cell_type"] == "code" and cell["outputs"])
    more = {"name": "stdout", "output_type": "stream", "text": ["0.5"]}
    for part, added in (("source", " "), ("outputs", more)):
        changed = copy.deepcopy(saved)
        changed["cells"][code][part].append(added)
        assert made(changed) != made(saved)
    prose = next(i for i, cell in enumerate(saved["cells"]) if cell["cell_type"] == "markdown")
    changed = copy.deepcopy(saved)
    changed["cells"][prose]["source"].append("a word more")
    assert made(changed) == made(saved)


def test_it_is_small_and_holds_no_widgets_no_times_and_no_folders(root, saved):
    text = json.dumps(saved, ensure_ascii=False)
    assert len(text.encode()) <= refresh()["MAX_BYTES"]
    assert VIEW not in text
    assert "widgets" not in saved["metadata"]
    assert set(saved["metadata"]) == {"kernelspec", "language_info", "attnwidgets"}
    assert saved["metadata"]["language_info"] == {"name": "python"}
    assert not any(cell["metadata"] for cell in saved["cells"])
    said = "\n".join(refresh()["printed"](saved))
    assert "stderr" not in {out.get("name") for out in outputs(saved)}
    assert not re.search(r"/(home|root|tmp|Users|usr|work)/|0x[0-9a-f]{6}|\d+%\|", said)
    # The seconds of a sound are the same in every run; those that something took are not.
    told = "\n".join(line for line in said.splitlines() if not line.startswith("AudioView: "))
    assert not re.search(r"\d (s|ms|seconds)\b|Warning:", told)


def test_pictures_carry_their_own_paper_and_say_what_they_show(saved):
    pictures = [out for out in outputs(saved) if "image/png" in out.get("data", {})]
    assert pictures
    for out in pictures:
        image = Image.open(io.BytesIO(b64decode("".join(out["data"]["image/png"]))))
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
        assert image.mode == "P"
        assert image.width <= 1100
        assert "".join(out["data"]["text/plain"]).strip()
    live = [out for out in pictures if "Run the notebook" in "".join(out["data"]["text/plain"])]
    assert live
    for out in live:
        alt = out["metadata"]["image/png"]["alt"]
        assert alt
        assert alt in "".join(out["data"]["text/plain"])


class Sanitised(HTMLParser):
    """The text that is left of HTML without scripts, styles and frames."""

    REMOVED = ("script", "style", "iframe", "template")

    def __init__(self, html):
        super().__init__()
        self.text, self._inside = "", 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self._inside += tag in self.REMOVED

    def handle_endtag(self, tag):
        self._inside -= tag in self.REMOVED

    def handle_data(self, data):
        self.text += "" if self._inside else data


def left_on_github(out):
    """An output as GitHub and nbviewer show it, without scripts: a picture's size, or text."""
    if out["output_type"] == "stream":
        return "".join(out["text"])
    if "image/png" in out["data"]:
        return Image.open(io.BytesIO(b64decode("".join(out["data"]["image/png"])))).size
    if "text/html" in out["data"]:
        return Sanitised("".join(out["data"]["text/html"])).text
    return "".join(out["data"].get("text/plain", ""))


def test_a_page_that_runs_no_scripts_shows_every_output(saved):
    for out in outputs(saved):
        shown = left_on_github(out)
        if isinstance(shown, tuple):
            assert min(shown) >= 40
        else:
            assert re.search(r"\w", shown)
            assert not re.match(r"\s*<?\w+(\.\w+)* object at|\w+\(children=|\s*<IPython", shown)


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ({VIEW: {"model_id": "a"}}, ""),
        ({"text/html": "<script>draw('a view')</script><style>b { top: 0 }</style>"}, ""),
        ({"text/html": "<table><td>0.5</td></table>", "text/plain": "table"}, "0.5"),
        ({VIEW: {"model_id": "a"}, "text/plain": "Heatmap: layer 2"}, "Heatmap: layer 2"),
    ],
)
def test_scripts_and_widgets_alone_leave_nothing(data, left):
    assert left_on_github({"output_type": "display_data", "data": data}) == left


@pytest.mark.slow
def test_a_figure_is_saved_whatever_backend_the_environment_asks_for(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.v4.new_notebook()
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    drawn = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    notebook.cells = [nbformat.v4.new_code_cell(drawn)]
    path = tmp_path / "figure.ipynb"
    nbformat.write(notebook, path)
    after = refresh()["refreshed"](path)
    assert [text.partition(" size")[0] for text in refresh()["printed"](after)] == ["<Figure"]


# Another processor trains other features: their meaning is tested in tests/repo/test_features_notebook.py.
@pytest.mark.extended
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != "features.ipynb"])
def test_running_it_again_prints_the_same_numbers(root, name, minilm):
    names = refresh()
    path = root / "notebooks" / name
    before = names["printed"](json.loads(path.read_text()))
    after = names["printed"](names["refreshed"](path))
    number = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+\u2212]\d+)?")
    assert [number.sub("#", text) for text in after] == [number.sub("#", text) for text in before]
    for now, then in zip(after, before, strict=True):
        np.testing.assert_allclose(
            [float(result) for result in number.findall(now)],
            [float(result) for result in number.findall(then)],
            rtol=0.02,
            atol=0.02,
        )
