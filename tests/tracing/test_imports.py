"""The modules of tracing import each other in one direction, imports inside functions included."""

from __future__ import annotations

import graphlib

import grimp
import pytest


def imports_within(package: str) -> dict[str, set[str]]:
    """The imports of each module of a package from it, without type-only imports."""
    graph = grimp.build_graph("attnwidgets", exclude_type_checking_imports=True, cache_dir=None)
    modules = {package} | graph.find_descendants(package)
    return {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}


def test_no_module_of_tracing_imports_itself_in_a_circle():
    graphlib.TopologicalSorter(imports_within("attnwidgets.tracing")).prepare()  # CycleError names the circle


def test_a_planted_circle_is_found():
    imports = imports_within("attnwidgets.tracing")
    imports["attnwidgets.tracing.layers"].add("attnwidgets.tracing.trace")
    with pytest.raises(graphlib.CycleError, match=r"tracing\.layers"):
        graphlib.TopologicalSorter(imports).prepare()
