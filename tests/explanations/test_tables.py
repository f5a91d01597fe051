"""Tables without pandas: rows, CSV files and the HTML of notebooks, with every extra package out of reach."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import attnwidgets as aw
from attnwidgets.explanations import Attributions, MixingMap
from attnwidgets.explanations.results.contribution_graph import ContributionGraph
from attnwidgets.sae.feature_activations import FeatureActivations
from attnwidgets.sae.training.history import History
from tests.evaluate.test_scorecard import made as scorecard
from tests.explanations.made import attention_map, axis

if TYPE_CHECKING:
    from pathlib import Path


def graph() -> ContributionGraph:
    parts = np.tril(np.random.default_rng(0).gamma(0.3, size=(3, 2, 7, 7)))
    total = parts.sum((1, 3)) + 1
    half = np.full((3, 7), 0.5)
    return ContributionGraph(
        parts / total[:, None, :, None], residual=1 / total, mlp=half, mlp_residual=half, query=axis()
    )


DEAD = {"explained_variance": 0.5, "dead": 0.0}
TABLES = {
    "map": attention_map,
    "attributions": lambda: Attributions(np.eye(2, 7), axis=axis(), target=["=1+1", "b"]),
    "statistics": lambda: aw.statistics.head_statistics(attention_map()),
    "scorecard": scorecard,
    "agreement": lambda: aw.evaluate.agreement(
        [Attributions([1.0, 2, 3], axis=["a", "b", "c"])] * 2, names=["x", "y"]
    ),
    "features": lambda: FeatureActivations(np.eye(7, 9), axis=axis()),
    "graph": graph,
    "routes": lambda: graph().routes(6, threshold=0.01),
    "history": lambda: History(
        {}, [{"step": 0, "l0": 1.5} | DEAD, {"step": 10, "l0": 1.25, "loss": 0.5} | DEAD]
    ),
    "methods": aw.methods,
}
EXTRA = ("pandas", "jinja2", "tabulate", "bertviz", "captum")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed that the package does not require."""
    for name in EXTRA:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", TABLES)
def test_what_is_shown_needs_no_extra_package(name: str, recwarn: pytest.WarningsRecorder) -> None:
    shown = TABLES[name]()
    assert repr(shown)
    if hasattr(shown, "_repr_html_"):
        assert "<table" in shown._repr_html_()
    if hasattr(shown, "_repr_mimebundle_"):
        assert set(shown._repr_mimebundle_()) & {"text/html", "image/png"}
    assert not [item for item in recwarn if issubclass(item.category, RuntimeWarning)]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", [name for name in TABLES if name != "methods"])
def test_rows_and_files_need_no_pandas(name: str, tmp_path: Path) -> None:
    shown = TABLES[name]()
    rows = shown.to_rows()
    assert rows
    path = shown.to_csv(tmp_path / "table.csv")
    with path.open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(rows)
    for row, line in zip(rows, written, strict=True):
        assert list(row) == list(line)
        assert {type(value) for value in row.values()} <= {int, float, str, bool, type(None)}
        for value, text in zip(row.values(), line.values(), strict=True):
            if isinstance(value, float):
                assert np.array_equal(float(text), value, equal_nan=True)  # all digits
            else:
                assert text.removeprefix("'") == ("" if value is None else str(value))
    with pytest.raises(ImportError, match=r"pip install pandas.*\.to_rows\(\).*\.to_csv\(path\)"):
        shown.to_dataframe()


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("methods", "agreement")])
def test_rows_are_the_frames(name: str) -> None:
    shown = TABLES[name]()
    frame = shown.to_dataframe()
    rows = shown.to_rows()
    assert list(frame.columns) == list(rows[0])
    for row in (0, len(rows) // 2, len(rows) - 1):
        for value, expected in zip(rows[row].values(), frame.iloc[row], strict=True):
            assert pd.isna(expected) if pd.isna(value) else value == expected


def test_a_formula_is_not_run_by_a_spreadsheet(tmp_path: Path) -> None:
    path = TABLES["attributions"]().to_csv(tmp_path / "t.csv")
    assert "'=1+1" in path.read_text(encoding="utf-8")


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    routes = graph().routes(6, threshold=0)
    more = len(routes) - 20
    assert more > 0
    assert f"and {more:,} more rows: .to_rows()" in routes._repr_html_()


def test_a_map_without_heads_has_no_column_of_heads() -> None:
    made: Any = MixingMap(np.eye(2), query=["a", "b"])
    assert made.to_rows()[1] == {
        "layer": 0, "query_index": 0, "query": "a", "key_index": 1, "key": "b", "value": 0.0,
    }  # fmt: skip
