"""The whole package: cost of an import, public names, size of the bundle."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from importlib.metadata import version
from operator import attrgetter
from types import SimpleNamespace

import pytest

import attnwidgets as aw
from attnwidgets._facade import groups
from attnwidgets._former import FORMER
from attnwidgets.explanations.viewable import Viewable
from attnwidgets.views.wire.runtime import COMMON_PARTS


def imported_by(statement: str) -> set[str]:
    """Return the top-level modules of a fresh interpreter after a statement."""
    probe = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy():
    loaded = imported_by("import attnwidgets")
    assert "attnwidgets" in loaded
    assert not loaded & {"torch", "transformers", "matplotlib", "scipy", "pandas", "bertviz"}


@pytest.mark.slow
def test_listing_the_public_names_loads_nothing_heavy():
    assert not imported_by("import attnwidgets; dir(attnwidgets)") & {"torch", "transformers", "matplotlib"}


def test_every_public_name_resolves():
    missing = [name for name in aw.__all__ if getattr(aw, name, None) is None]
    assert aw.__all__
    assert not missing


@pytest.mark.parametrize(
    "name",
    [
        *("ask", "circuits", "concepts", "evaluate", "statistics", "targets"),
        *("compat", "course", "people", "results", "speech", "views", "vision", "zoo"),
    ],
)
def test_completion_offers_what_is_public_and_all_of_it(name):
    module = getattr(aw, name)
    assert dir(module) == sorted(module.__all__)
    assert [public for public in dir(module) if getattr(module, public, None) is None] == []


def test_help_shows_every_public_name_under_one_question():
    listed = [name for group in groups().values() for name in group]
    assert sorted([*listed, "__version__"]) == sorted(aw.__all__)
    assert all(re.search(rf"\b{name}\b", aw.__doc__) for name in listed)
    assert all(f"\n{heading}\n" in aw.__doc__ for heading in groups())


@pytest.mark.slow
def test_namespaces_are_there_from_the_start():
    for name in (
        *("targets", "evaluate", "statistics", "compat", "ask", "course"),
        *("zoo", "circuits", "concepts", "people", "results", "speech", "views", "vision"),
    ):
        assert imported_by(f"import attnwidgets; attnwidgets.{name}") >= {"attnwidgets"}


@pytest.mark.slow
def test_an_explorer_of_an_array_loads_no_library_that_runs_models():
    weights = "np.full((2, 2, 3, 3), 1 / 3, dtype='f4')"
    code = "import numpy as np, attnwidgets as aw\n"
    code += f"view = aw.Explorer(aw.from_attentions({weights}, list('abc')))"
    heavy = {"torch", "transformers", "scipy", "pandas", "matplotlib"}
    assert not heavy & imported_by(f"{code}\nview.describe(), view._repr_mimebundle_()")


def test_every_result_names_a_view_that_exists():
    for name in aw.__all__:
        getattr(aw, name)
    named, classes = set(), [Viewable]
    while classes:
        result = classes.pop()
        classes += result.__subclasses__()
        named |= {result.viewed_by} - {""}
    assert len(named) > 8
    for module, name in (each.split(":") for each in named):
        assert callable(getattr(importlib.import_module(f"attnwidgets.views.{module}"), name))


@pytest.mark.parametrize("former", FORMER)
def test_a_name_that_moved_warns_and_works(former):
    space, _, name = former.rpartition(".")
    home = attrgetter(space)(SimpleNamespace(aw=aw))
    assert name not in dir(home)
    present = attrgetter(FORMER[former])(SimpleNamespace(aw=aw))
    with pytest.warns(DeprecationWarning, match=rf"^{former} is {FORMER[former]} now; .* 0\.3") as warned:
        assert getattr(home, name) is present
    assert warned[0].filename == __file__


def test_a_misspelt_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="rollot"):
        aw.rollot  # noqa: B018 - looking it up is the test


def test_the_version_is_the_same_everywhere(root):
    declared = re.search(r'^version = "(.+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (.+)", (root / "CITATION.cff").read_text(), re.MULTILINE)
    assert declared is not None
    assert newest is not None
    assert cited is not None
    assert declared.group(1) == newest.group(1) == cited.group(1) == aw.__version__ == version("attnwidgets")


def test_the_bundle_is_small(root):
    limits = json.loads((root / "js" / "scripts" / "limits.json").read_text())
    sizes = {path.stem: path.stat().st_size for path in (root / "attnwidgets" / "static").glob("*.js")}
    parts = {path.stem for path in (root / "js" / "src" / "parts").glob("*.ts")}
    assert set(sizes) == parts | {"attnwidgets", "standalone", "engine"}
    assert 10_000 < sizes["attnwidgets"] <= limits["core"]
    assert 10_000 < sizes["standalone"] <= limits["standalone"]
    assert 10_000 < sizes["engine"] <= limits["engine"]
    assert all(sizes[name] <= limits["live" if name in {"live", "standin"} else "part"] for name in parts)
    explorer = limits["explorer"]
    assert set(explorer["parts"]) == {
        *aw.Explorer.NEEDS.scripts,
        *COMMON_PARTS,
        "features",
    }  # features: with an SAE
    assert sum(sizes[name] for name in ("attnwidgets", *explorer["parts"])) <= explorer["bytes"]


def test_the_bundle_asks_no_other_host(root):
    for path in (root / "attnwidgets" / "static").glob("*.js"):
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text()))
        assert {a for a in addresses if not a.startswith("http://www.w3.org/")} == set(), path.name
