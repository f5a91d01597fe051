"""The README, the documentation and the quickstart notebook do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.repo import notebooks

DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "docs/README.md",
    "docs/architecture.md",
    "docs/lectures.md",
    "docs/relevance.md",
    "docs/features.md",
    "docs/conservation.md",
    "benchmarks/README.md",
    "benchmarks/cue_contribution.md",
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_repository_lead_somewhere(root, name):
    document = root / name
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


def test_the_readmes_examples_run(root, minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 4
    lecture = dict.fromkeys(("E", "W_q", "W_k"), np.eye(3))
    world = {"numbers": np.full((2, 3), 1 / 3), "source": ["the", "black", "cat"], **lecture}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), world)
    assert (tmp_path / "trace.html").stat().st_size > 10_000
    assert (tmp_path / "rollout.safetensors").exists()
    assert world["explorer"].selection.layer == 3


@pytest.fixture(scope="module")
def executed(root, minilm, tmp_path_factory):
    """The quickstart, run from top to bottom in a scratch folder."""
    path = root / "notebooks" / "quickstart.ipynb"
    return notebooks.run(path, tmp_path_factory.mktemp("quickstart"))


NOTEBOOKS = sorted(path.name for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_saved_without_outputs(root, name):
    notebook = json.loads((root / "notebooks" / name).read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert "widgets" not in notebook["metadata"]


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
    # Head 0.2 looks at the token before; the prose says so, and that [CLS] draws over half from layer 1 to 4.
    assert "head 0.2, attention to the token before: 1.00" in text
    assert "layer 4: 0.63" in text
    assert "electro" in text
    assert "rows still sum to 1: True" in text
    assert "[CLS] 0.608" in text
    assert "electroencephalographer 0.097" in text
