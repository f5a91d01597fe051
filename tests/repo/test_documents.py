"""The README, the documentation and the quickstart notebook are correct."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.registry import registry
from tests.repo import notebooks
from tests.repo.public import classes, functions, shared_models
from tests.views.every import public_views

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
]


@pytest.fixture(autouse=True)
def only_our_methods():
    """Methods that pages register are removed again: the registry is the process's."""
    before = set(aw.methods().names)
    yield
    for name in set(aw.methods().names) - before:
        del registry._METHODS[name]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_repository_lead_somewhere(root, name):
    document = root / name
    text = document.read_text()
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


def test_the_readme_opens_with_three_pictures(root):
    before, _ = (root / "README.md").read_text().split("```", 1)
    assert before.count("<picture>") == 3


PAGES = (
    *("tracing", "file_layout", "mixing", "heads", "own_methods", "zoo", "one_token"),
    *("circuits", "paths", "claims", "sentences", "concepts", "people"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_question_s_page_runs(root, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(aw, "demo_model", shared_models)
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / f"{name}.md").read_text(), re.DOTALL)
    assert blocks
    world = {"aw": aw, "__name__": name}  # methods are registered by module
    for block in blocks:
        exec(compile(block, f"{name}.md", "exec"), world)


def test_the_numbers_of_a_token_s_way_are_those_that_its_code_gives(root):
    page = (root / "docs" / "one_token.md").read_text()
    world: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "one_token.md", "exec"), world)
    shown = re.findall(r"^(\S.*?)\s+# (\[.*\]|\d+)", page, re.MULTILINE)
    assert len(shown) == 7
    for code, written in shown:
        result = eval(code, world)
        parts = result if isinstance(result, tuple) else (result,)
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", written)]
        assert numbers == pytest.approx(np.concatenate([np.atleast_1d(part) for part in parts]), abs=0.011)


def test_the_reference_lists_every_public_name_and_every_paper(root):
    page = runpy.run_path(str(root / "docs" / "make_reference.py"))["page"]()
    listed = set(re.findall(r"\*\*`aw\.([\w.]+)`\*\*", page))
    assert listed == {*functions(), *classes()}
    assert not {method.paper for method in aw.methods() if method.paper and method.paper not in page}
    # The committed reference may lack a new name until a release, and has no removed name.
    written = set(re.findall(r"\*\*`aw\.([\w.]+)`\*\*", (root / "docs" / "reference.md").read_text()))
    assert written <= listed, "run make reference"


def test_the_architectures_folders_are_those_there_are(root):
    page = (root / "docs" / "architecture.md").read_text()
    packages = {
        path.parent.relative_to(root / "attnwidgets") for path in root.glob("attnwidgets/**/__init__.py")
    }
    assert [str(name) for name in packages if name.parts and f"`{name.name}/`" not in page] == []
    contributing = (root / "CONTRIBUTING.md").read_text()
    names = re.findall(r"[`\s]([\w/]+\.(?:py|ts))[`\s,]", page + contributing)
    files = {
        path.as_posix()
        for path in [
            *root.glob("attnwidgets/**/*.py"),
            *root.glob("tests/**/*.py"),
            *root.glob("js/src/**/*.ts"),
            *root.glob("tools/*.py"),
        ]
    }
    assert [name for name in names if not any(path.endswith(f"/{name}") for path in files)] == []


def test_the_page_of_the_look_names_every_token_and_files_that_there_are(root):
    page = (root / "docs" / "design.md").read_text()
    declared = re.findall(r"^  (--aw-[\w-]+):", (root / "js/src/styles/tokens.css").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(--aw-[\w-]+)`", page)) == set(declared)
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|ts|css|mjs))`", page)
    assert len(named) > 10
    folders = (root, root / "js" / "src" / "views")
    assert [name for name in named if not any((folder / name).is_file() for folder in folders)] == []


def test_the_table_of_views_has_a_row_for_every_view(root):
    table = (root / "docs" / "views.md").read_text()
    views = public_views()
    assert len(views) > 15
    assert not {name for name in views if f"`{name}`" not in table.split("## Linked")[0]}


@pytest.mark.slow
def test_the_readmes_examples_run(root, minilm, tmp_path, monkeypatch):
    """With those of docs/views.md, which continues the README's; the hub's model is a folder here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(aw, "demo_model", shared_models)
    for part in aw.demo_model("classifier"):
        part.save_pretrained(tmp_path / "distilbert" / "distilbert-base-uncased-finetuned-sst-2-english")
    text = (root / "README.md").read_text() + (root / "docs" / "views.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 7
    lecture = dict.fromkeys(("E", "W_q", "W_k"), np.eye(3))
    picture = np.tile(np.arange(256, dtype=np.uint8)[:, None, None], (1, 256, 3))
    world = {
        "numbers": np.full((2, 3), 1 / 3),
        "source": ["the", "black", "cat"],
        "picture": picture,
        **lecture,
    }
    for block in blocks:
        exec(compile(block, "README.md", "exec"), world)
    assert (tmp_path / "trace.html").stat().st_size > 10_000
    assert (tmp_path / "rollout.safetensors").exists()
    assert world["explorer"].selection.layer == 3


@pytest.fixture(scope="module")
def executed(root, minilm, tmp_path_factory):
    """The quickstart, run from top to bottom in a scratch folder."""
    path = root / "notebooks" / "quickstart.ipynb"
    return notebooks.run(path, tmp_path_factory.mktemp("quickstart"), cold=True)


def test_the_quickstart_is_short(root):
    notebook = json.loads((root / "notebooks" / "quickstart.ipynb").read_text())
    assert 5 <= sum(cell["cell_type"] == "code" for cell in notebook["cells"]) <= 8


@pytest.mark.slow
def test_the_quickstart_says_nothing_on_stderr(executed):
    assert notebooks.complaints(executed) == []


@pytest.mark.slow
def test_the_quickstart_shows_widgets_and_writes_its_page(executed, tmp_path):
    from pathlib import Path

    assert len(notebooks.widgets(executed)) >= 2
    page = Path(executed.metadata["folder"]) / "quickstart.html"
    assert "electroencephalographer" in page.read_text()


@pytest.mark.slow
def test_the_quickstarts_numbers_are_those_of_its_text(executed):
    text = notebooks.printed(executed)
    # The text says that a change of two words turns the prediction, that head 0.2 attends to the previous
    # token, that [CLS] gets about half from layer 1 to 4, and which words speak for "positive".
    assert "['negative 98%', 'positive 2%']" in text
    assert "head 0.2, attention to the token before: 1.00" in text
    to_cls = {int(layer): float(share) for layer, share in re.findall(r"layer (\d): (0\.\d+)", text)}
    assert all(0.45 < to_cls[layer] < 0.55 for layer in range(1, 5))
    assert "rows still sum to 1: True" in text
    assert re.search(r"wonderful \+0\.81\n +electroencephalographer -0\.08", text)


@pytest.mark.slow
def test_the_quickstart_opens_with_one_line_on_the_head_that_its_text_names(root, minilm):
    notebook = json.loads((root / "notebooks" / "quickstart.ipynb").read_text())
    first = next(
        source for cell in notebook["cells"] if "aw.explore(*" in (source := "".join(cell["source"]))
    )
    assert first.count("explorer = aw.explore(") == 1
    world: dict[str, Any] = {"aw": aw}
    exec(first, world)
    selection = world["explorer"].selection
    assert (selection.layer, selection.head) == (5, 4)
    assert world["explorer"].trace.predictions()[0].label == "positive"
