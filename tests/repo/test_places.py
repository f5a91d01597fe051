"""Every address of the project comes from a single line of pyproject.toml."""

from __future__ import annotations

import json
import re
import runpy

import pytest

RENAMED = "https://github.com/ours-now/renamed"


@pytest.fixture(scope="module")
def addresses(root):
    """The names of tools/places.py."""
    return runpy.run_path(str(root / "tools" / "places.py"))


@pytest.fixture
def moved(root, tmp_path):
    """A copy of pyproject.toml, with another repository in its line, and of a notebook and a page."""
    text = (root / "pyproject.toml").read_text()
    changed, count = re.subn(r'^Repository = ".*"$', f'Repository = "{RENAMED}"', text, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / "pyproject.toml").write_text(changed)
    (tmp_path / "notebook.ipynb").write_text((root / "notebooks" / "relevance.ipynb").read_text())
    (tmp_path / "page.md").write_text("[bertviz](https://github.com/jessevig/bertviz)")
    return tmp_path


@pytest.mark.slow
def test_nothing_names_another_place_than_pyproject_does(root, addresses):
    assert [path.name for path in addresses["outdated"](root)] == [], "run make places"
    assert addresses["strangers"](root) == []


def test_one_changed_line_moves_badges_links_and_the_other_lines(addresses, moved):
    assert {path.name for path in addresses["outdated"](moved)} == {"notebook.ipynb", "pyproject.toml"}
    for path, text in addresses["outdated"](moved).items():
        path.write_text(text)
    notebook, project = (moved / "notebook.ipynb").read_text(), (moved / "pyproject.toml").read_text()
    assert "research.google.com/github/ours-now/renamed/blob/main/notebooks/relevance.ipynb" in notebook
    assert f"{RENAMED}/blob/main/docs/relevance.md" in notebook
    assert addresses["urls"](moved) == {
        "Repository": RENAMED,
        "Documentation": "https://ours-now.github.io/renamed/",
        "Changelog": f"{RENAMED}/blob/main/CHANGELOG.md",
        "Issues": f"{RENAMED}/issues",
    }
    assert project.count("https://raw.githubusercontent.com/ours-now/renamed/main/") == 2
    assert (moved / "page.md").read_text() == "[bertviz](https://github.com/jessevig/bertviz)"
    assert addresses["outdated"](moved) == {}
    assert addresses["strangers"](moved) == []


def test_a_file_that_names_the_project_elsewhere_is_listed(addresses, moved):
    for path, text in addresses["outdated"](moved).items():
        path.write_text(text)
    for address in (
        "https://github.com/someone/renamed/issues",
        "https://colab.research.google.com/github/someone/renamed/blob/main/a.ipynb",
        "https://renamed-docs.readthedocs.io/renamed",
    ):
        (moved / "page.md").write_text(f"See {address}.")
        (result,) = addresses["strangers"](moved)
        assert result.startswith("page.md: ")
        assert result.removeprefix("page.md: ") in address


@pytest.mark.parametrize("address", ["https://gitlab.com/a/b", "github.com/a/b", "https://github.com/a", ""])
def test_an_address_that_colab_cannot_open_is_refused(addresses, address):
    with pytest.raises(ValueError, match=r"Repository = .* is not of the form https://github\.com/<account>"):
        addresses["Place"].of(address)


def test_every_badge_opens_its_own_notebook(root, addresses):
    here = addresses["place"](root)
    badge = re.compile(r"\]\((https://colab\.research\.google\.com/github/[^)]*)\)")
    badges = {
        path.name: badge.findall("".join(json.loads(path.read_text())["cells"][0]["source"]))
        for path in (root / "notebooks").glob("*.ipynb")
    }
    badge = f"https://colab.research.google.com/github/{here.slug}/blob/main/notebooks"
    assert badges == {name: [f"{badge}/{name}"] for name in badges}
    assert len(badges) >= 7
