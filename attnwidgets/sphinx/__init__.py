"""A Sphinx extension: views on the pages of a course or a documentation, without kernel and network.

In `conf.py`, `extensions = ["myst_nb", "attnwidgets.sphinx"]`. Views that notebooks display are then drawn in
the built pages, and a directive draws those of saved explanations:

    ```{attnwidgets} rollout.safetensors
    :view: Heatmap
    :layer: 3
    ```

Views of one trace are linked within a page, and follow the colours of its theme; see docs/course_pages.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the extension to Sphinx, which calls this.

    Raises:
        ModuleNotFoundError: Sphinx is not installed.
    """
    try:
        from attnwidgets.sphinx.extension import connect
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"sphinx", "docutils"}:
            raise
        raise ModuleNotFoundError(
            "attnwidgets.sphinx needs Sphinx, which is not installed: pip install sphinx", name=error.name
        ) from error
    return connect(app)
