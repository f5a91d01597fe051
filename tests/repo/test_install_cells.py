"""The first code cell of every notebook: the packages it installs where they are missing, as on Colab."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from attnwidgets.demo.models import MODELS

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/*.ipynb")])
PACKAGE = "attnwidgets"
SOURCE = """\
try:
    import attnwidgets as aw
except ModuleNotFoundError:
    %pip install --quiet {package}
    %pip install --quiet --no-deps {models}
    import attnwidgets as aw"""


def code(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def expected(path):
    """The cell that installs the packages of the notebook's code, and nothing else."""
    text = "\n".join(code(path))
    asked = set(re.findall(r'demo_model\("(\w+)"', text))
    if "demo_model(kind)" in text:
        asked |= set(re.findall(r'"(\w+)"', text))
    kinds = asked & set(MODELS)
    package = f"{PACKAGE} gguf" if "decoder" in kinds else PACKAGE
    models = " ".join(sorted({MODELS[kind][0] for kind in kinds}))
    lines = SOURCE.format(package=package, models=models).split("\n")
    return "\n".join(line for line in lines if models or "--no-deps" not in line)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_installs_what_its_code_needs_and_nothing_else(path):
    first, *others = code(path)
    installs, _, rest = first.partition("\n\n")
    assert installs == expected(path)
    assert not re.search(r"^\s*[%!]|google\.colab", "\n".join([rest, *others]), re.MULTILINE)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_where_the_package_is_missing_it_is_installed_and_then_imported(path, monkeypatch):
    run = []

    def magic(name, line):
        run.append(f"{name} {line}")
        monkeypatch.delitem(sys.modules, "attnwidgets", raising=False)

    world = {"get_ipython": lambda: SimpleNamespace(run_line_magic=magic)}
    cell = TransformerManager().transform_cell(expected(path))
    exec(cell, world)
    assert run == [], "it is there"
    monkeypatch.setitem(sys.modules, "attnwidgets", None)
    exec(cell, world)
    assert run == re.findall(r"%(pip .*)", expected(path))
    assert world["aw"].__name__ == "attnwidgets"


COLAB = """
import sys, types
from IPython.core.formatters import DisplayFormatter
calls = []
for name in ("google", "google.colab", "google.colab.output"):
    sys.modules[name] = types.ModuleType(name)
output = sys.modules["google.colab.output"]
output.enable_custom_widget_manager = lambda: calls.append("asked")
output._widgets = types.SimpleNamespace(_installed_url="manager.js")
{cell}
view = aw.LayerSlider(aw.from_attentions([[[[1.0]]]], ["a"]))
_, metadata = DisplayFormatter().format(view)
manager = metadata["application/vnd.jupyter.widget-view+json"]["colab"]["custom_widget_manager"]
print(calls, manager["url"])
"""


@pytest.mark.slow
def test_on_colab_the_first_view_asks_for_the_widget_manager_so_that_no_cell_needs_to():
    program = COLAB.format(cell=TransformerManager().transform_cell(expected(NOTEBOOKS[0])))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['asked'] manager.js", done.stderr
