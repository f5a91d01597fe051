"""anywidget, where a notebook has imported an older version before the package."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

PROGRAM = """
import sys
sys.path[:0] = {first!r}
import anywidget
assert not hasattr(anywidget, "WidgetTrait")
del sys.path[:{count}]
import attnwidgets as aw
state = aw.LayerSlider(aw.from_attentions([[[[1.0]]]], ["a"])).get_state()
print(state["_view_module_version"], state["store"])
"""


def run(folder, *, stays):
    (folder / "anywidget.py").write_text("class AnyWidget: ...\n")
    program = PROGRAM.format(first=[str(folder)], count=0 if stays else 1)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_views_are_made_of_the_one_that_is_installed(tmp_path):
    done = run(tmp_path, stays=False)
    number = ".".join(version("anywidget").split(".")[:2])
    assert re.match(rf"~{re.escape(number)}\.\S+ anywidget:\w+", done.stdout), done.stderr


@pytest.mark.slow
def test_one_that_is_too_old_is_an_error_that_says_what_to_run(tmp_path):
    assert "pip install --upgrade anywidget" in run(tmp_path, stays=True).stderr
