"""Measure how the cost of views grows with the text: rows of bench_growth.py.

Run alone, `python benchmarks/growth_views.py [--tokens 1024 2048]` prints the MB that each view sends at
once: header, eager bytes and embedded answers; for a page, the size of the file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = (1024, 2048, 4096, 8192)
LAYERS, HEADS, WIDTH = 2, 16, 128


def opened(name: str) -> Callable[[Any], Any]:
    """Return a step that makes a view of a trace and displays it, as a notebook cell does."""

    def step(trace: Any) -> Any:
        import attnwidgets as aw

        view = getattr(aw, name)(trace)
        view._repr_mimebundle_()
        return view

    return step


def made(name: str) -> Callable[[Any], Any]:
    """Return a step that makes a view without displaying it."""

    def step(trace: Any) -> Any:
        import attnwidgets as aw

        return getattr(aw, name)(trace)

    return step


def page(trace: Any) -> int:
    """Write an Explorer as a page; return its size in bytes."""
    import attnwidgets as aw

    with tempfile.TemporaryDirectory() as folder:
        view = aw.Explorer(aw.attention(trace), methods=["attention"])
        return int(view.to_html(Path(folder) / "page.html").stat().st_size)


VIEWS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "heatmap": ("Heatmap", made("Heatmap")),
    "head_grid": ("HeadGrid", made("HeadGrid")),
    "explorer": ("Explorer", made("Explorer")),
    "explorer_shown": ("Explorer and its mimebundle", opened("Explorer")),
    "page": ("Explorer of attention, to_html", page),
}
"""Steps: the name in the table, and a function of a trace."""


def sent(result: Any) -> float:
    """Return the MB that a view sends at once, or the size of a page in MB."""
    if isinstance(result, int):
        return result / 1e6
    store = result.store
    return (len(store.eager) + len(json.dumps(store.header)) + len(result.opening or b"")) / 1e6


def main() -> None:
    """Print a table: one row per view, one column per length."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import attnwidgets as aw

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--steps", nargs="+", choices=VIEWS, default=list(VIEWS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "max_position_embeddings": 20_000}
    counts = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=500, **sizes, **counts)).eval()
    print("MB sent at once |" + "".join(f" n = {count:,} |" for count in options.tokens))
    rows = {name: f"| {VIEWS[name][0]} |" for name in options.steps}
    for count in options.tokens:
        trace = aw.trace(model, None, input_ids=torch.randint(10, 400, (count,)))
        for name in options.steps:
            result = VIEWS[name][1](trace)
            rows[name] += f" {sent(result):.2f} |"
            if not isinstance(result, int):
                result.close()
    print("\n".join(rows.values()))


if __name__ == "__main__":
    main()
