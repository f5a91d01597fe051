"""anywidget's classes, from the version that is installed.

Colab imports an older anywidget before the first cell runs, and installing this
package upgrades only the files. Widgets made of the older version keep it.
"""

from __future__ import annotations

import sys

if "anywidget" in sys.modules and not hasattr(sys.modules["anywidget"], "WidgetTrait"):
    for _name in [name for name in sys.modules if name.partition(".")[0] == "anywidget"]:
        del sys.modules[_name]

try:
    from anywidget import AnyWidget, WidgetTrait
except ImportError as error:
    raise ImportError(
        "attnwidgets needs anywidget 0.11 or newer: run `pip install --upgrade anywidget`"
    ) from error

__all__ = ["AnyWidget", "WidgetTrait"]
