from __future__ import annotations

import base64
import subprocess
import sys
from types import SimpleNamespace

import pytest

from attnwidgets.explanations import explanation as module
from tests.explanations.made import attention_map

WIDGET = "application/vnd.jupyter.widget-view+json"


class FakeView:
    def _repr_mimebundle_(self, include=None, exclude=()):
        assert "image/png" in exclude  # the explanation has drawn it already
        return {"text/plain": "view", WIDGET: {"model_id": "m"}}, {WIDGET: {"colab": {}}}


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setattr(module, "running_shell", lambda: SimpleNamespace(kernel=object()))


@pytest.fixture
def no_notebook(monkeypatch):
    monkeypatch.setattr(module, "running_shell", lambda: None)


def test_in_a_notebook_the_widget_comes_with_a_picture(notebook, monkeypatch):
    monkeypatch.setattr(type(attention_map()), "view", lambda self: FakeView())
    bundle, metadata = attention_map()._repr_mimebundle_(include=None, exclude=None)
    assert set(bundle) == {"text/plain", "image/png", WIDGET}
    assert metadata == {WIDGET: {"colab": {}}}, "Colab needs it to draw the view"
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["text/plain"] == repr(attention_map())


def test_without_a_kernel_there_is_the_picture(no_notebook):
    assert set(attention_map()._repr_mimebundle_()) == {"text/plain", "image/png"}


def test_a_terminal_gets_text(monkeypatch):
    monkeypatch.setattr(module, "running_shell", SimpleNamespace)
    assert set(attention_map()._repr_mimebundle_()) == {"text/plain"}


def test_what_fails_is_said_and_hides_nothing(notebook, monkeypatch):
    def broken(self):
        raise RuntimeError("no front end")

    monkeypatch.setattr(type(attention_map()), "view", broken)
    with pytest.warns(RuntimeWarning, match="shown without its widget: no front end"):
        assert set(attention_map()._repr_mimebundle_()) == {"text/plain", "image/png"}
    monkeypatch.setattr(type(attention_map()), "_png", broken)
    with pytest.warns(RuntimeWarning) as seen:
        assert set(attention_map()._repr_mimebundle_()) == {"text/plain"}
    assert sorted(str(w.message).split(" its ")[1] for w in seen) == [
        "picture: no front end",
        "widget: no front end",
    ]


@pytest.mark.slow
def test_loading_the_package_loads_nothing_heavy():
    program = (
        "import sys, attnwidgets.explanations\n"
        "import attnwidgets.explanations.mixing.rollout, attnwidgets.explanations.results.archive\n"
        "attnwidgets.explanations.methods()\n"
        "print(sorted({'torch', 'transformers', 'matplotlib', 'pandas', 'anywidget'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
