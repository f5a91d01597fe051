"""`make test-matrix` tests the declared floors, and torch only where it is declared."""

from __future__ import annotations

import email
import importlib.metadata
import importlib.util
import re
import sys

import pytest

HERE = "{}.{}".format(*sys.version_info)
DECLARED = """\
Classifier: Programming Language :: Python :: 3.10
Classifier: Programming Language :: Python :: 3.99
Requires-Dist: anywidget>=0.11
Requires-Dist: ipywidgets>=7.7.1
Requires-Dist: torch>=2.6
Requires-Dist: pandas>=2.2; extra == "tables"
Requires-Dist: mypy>=1.15; extra == "dev"
"""


@pytest.fixture(scope="module")
def matrix(root):
    spec = importlib.util.spec_from_file_location("matrix", root / "tools" / "matrix.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["matrix"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["matrix"]


def test_the_lowest_versions_are_the_floors_of_what_is_installed_and_every_python_has_a_row(matrix):
    lowest, *others = matrix.cells(email.message_from_string(DECLARED), {"3.10": None})
    assert lowest.pins == ("anywidget==0.11", "ipywidgets==7.7.1", "pandas==2.2", "torch==2.6")
    assert [(item.name, item.python) for item in (lowest, *others)] == [
        ("lowest", "3.10"),
        ("newest", "3.10"),
        ("newest", "3.99"),
        ("ipywidgets 7", HERE),
        ("Colab", "3.13"),
    ]
    assert others[-1].pin("anywidget").startswith("0.9.")


def test_torch_is_linked_only_where_python_and_version_are_those_of_the_cell(matrix):
    at_hand = importlib.metadata.version("torch").partition("+")[0]
    for pins, python, torch in (
        ((), HERE, "linked"),
        ((f"torch=={at_hand}",), HERE, "linked"),
        (("torch==2.6",), HERE, "absent"),
        ((), "3.99", "absent"),
    ):
        assert matrix.torch_for(matrix.Cell("a", python, pins), fetches=False) == torch
    assert matrix.torch_for(matrix.Cell("a", "3.99"), fetches=True) == "fetched"


def test_what_stands_in_for_torch_is_seen_by_pip_and_cannot_be_imported(matrix, tmp_path):
    matrix.stand_in(tmp_path, "2.6")
    (result,) = importlib.metadata.distributions(path=[str(tmp_path)])
    assert (result.metadata["Name"], result.version) == ("torch", "2.6")
    assert not (tmp_path / "torch").exists()


def test_the_pythons_that_are_declared_are_those_of_the_package(root):
    text = (root / "pyproject.toml").read_text()
    lowest = re.search(r'requires-python = ">=(\S+)"', text).group(1)
    assert re.findall(r"Python :: (3\.\d+)", text)[0] == lowest
