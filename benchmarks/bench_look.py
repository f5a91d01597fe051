"""Measure what every view looks like: its height, its controls at rest, and the share of data in its area.

    python benchmarks/bench_look.py                     measures, and writes benchmarks/look.md
    python benchmarks/bench_look.py --quick             14 tokens only, and prints
    python benchmarks/bench_look.py --before            the same numbers into benchmarks/look_before.json

The page puts today's numbers beside those of `look_before.json`, measured before views had one frame.
To measure an older checkout, set PYTHONPATH to it. Only the page is read: elements, classes and sizes.

The rules:

- *Height*: of the view's root, in px, where the cell is 480, 760 and 1,200 px wide.
- *Controls*: visible `button`, `select`, `input`, `textarea`, `summary`, and the roles listbox, combobox and
  slider. Those of one `.aw-group`, `fieldset`, radiogroup, field, stepper or layer control count once: a
  number with its slider and steppers is one control, as is a segmented switch. Not counted: the text, chips,
  named patterns, the column of answers, tables, pictures, and what a closed menu holds.
- *Data*: the part of the view's area that canvases, SVG, coloured text and bars cover, by points 4 px apart.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers as hf
from browser import FLAGS, executable

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
BEFORE = HERE / "look_before.json"
LENGTHS, WIDTHS = (5, 14, 64, 256, 512), (480, 760, 1200)
MARGIN = 24  # of a page's main element, on each side
TEXT = "the student read the paper again since its last table did not say what she had understood before"
WORDS = tuple(TEXT.split(" "))

MEASURE = """() => {
  const root = document.querySelector(".aw-root");
  const box = root.getBoundingClientRect();
  const seen = (el) => el.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && el.getBoundingClientRect().width > 1;
  const CONTROLS = "button, select, input, textarea, summary, [role=listbox], [role=combobox], [role=slider]";
  const GROUPS = ".aw-group, fieldset, [role=radiogroup], .aw-stepper, .aw-layers, .aw-field, .aw-choice, "
    + ".aw-find";
  const APART = ".aw-chip, .aw-chips, .aw-pattern, .aw-patterns, .aw-answer, .aw-tokens, .aw-plot, table, "
    + "[role=grid], svg, .aw-menu, [popover]";
  const groups = new Set();
  for (const el of root.querySelectorAll(CONTROLS))
    if (seen(el) && !el.closest(APART)) groups.add(el.closest(GROUPS) ?? el);
  const DATA = "canvas, svg, .aw-tok, meter, [class*=aw-bar], [class*='-bar']";
  const [wide, tall] = [Math.ceil(box.width / 4), Math.ceil(box.height / 4)];
  const points = new Uint8Array(wide * tall);
  for (const el of root.querySelectorAll(DATA)) {
    if (!seen(el) || el.closest("button, .aw-toolbar") || el.matches(".aw-toolbar")) continue;
    const style = getComputedStyle(el);
    const clear = style.backgroundImage === "none" && /, 0\\)$|transparent/.test(style.backgroundColor);
    if (el.matches(".aw-tok") && clear) continue;
    const of = el.getBoundingClientRect();
    const part = (value, most) => Math.max(0, Math.min(most, Math.round(value / 4)));
    const [left, right] = [of.left - box.left, of.right - box.left].map((x) => part(x, wide));
    const [top, bottom] = [of.top - box.top, of.bottom - box.top].map((y) => part(y, tall));
    for (let y = top; y < bottom; y += 1) points.fill(1, y * wide + left, y * wide + right);
  }
  const covered = points.reduce((sum, point) => sum + point, 0) / points.length;
  return { height: Math.round(box.height), controls: groups.size, data: covered };
}"""


@functools.cache
def model(kind: str) -> tuple[Any, Any]:
    """Return a demo model, or a random encoder-decoder with the words of the demo encoder."""
    if kind != "encoder-decoder":
        return aw.demo_model(kind)
    _, tokenizer = aw.demo_model("encoder")
    sides = ("encoder", "decoder")
    layers: dict[str, Any] = {
        f"{side}_{name}": size for side in sides for name, size in (("layers", 2), ("attention_heads", 4))
    }
    widths: dict[str, Any] = {f"{side}_ffn_dim": 64 for side in sides}
    torch.manual_seed(0)
    config = hf.MarianConfig(
        **layers, **widths, vocab_size=len(tokenizer), d_model=32, pad_token_id=0, decoder_start_token_id=0
    )
    return hf.MarianMTModel(config).eval(), tokenizer


@functools.cache
def trace(kind: str, tokens: int) -> Any:
    """Return a trace of exactly this many tokens, special tokens included."""
    network, tokenizer = model(kind)
    extra = len(tokenizer("")["input_ids"])
    text = " ".join(WORDS[i % len(WORDS)] for i in range(tokens - extra))
    found = len(tokenizer(text)["input_ids"])
    if found != tokens:
        raise ValueError(
            f"{kind}: the text has {found} tokens, not {tokens}: choose words of one token each."
        )
    if kind == "encoder-decoder":
        return aw.trace(network, tokenizer, text, target_text=text)
    return aw.trace(network, tokenizer, text)


def features(tokens: int) -> tuple[Any, Any]:
    """Return the demo decoder's trace and random features of its third layer."""
    drawn = torch.randn(576, 256, generator=torch.Generator().manual_seed(0))
    sae = aw.SAE(
        drawn / 24,
        drawn.T.contiguous(),
        torch.zeros(576),
        b_enc=torch.zeros(256),
        site="blocks.2.hook_resid_post",
    )
    sae.maxima = torch.linspace(1, 5, 256)
    return trace("decoder", tokens), sae


def counted(tokens: int) -> Any:
    """Return the statistics of these features over one text, as a panel needs them."""
    text = " ".join(WORDS[i % len(WORDS)] for i in range(tokens))
    return aw.feature_stats(*model("decoder"), features(tokens)[1], [text])


def scorecard() -> Any:
    """Return a scorecard of two methods with two metrics on three texts."""
    values = torch.rand(3, 2, 2, 5, generator=torch.Generator().manual_seed(0)).tolist()
    return aw.results.Scorecard(
        values,
        metrics=["comprehensiveness", "sufficiency"],
        methods=["attention", "lrp"],
        x=[1, 5, 10, 20, 50],
    )


def of_encoder(view: str) -> Callable[[int], Any]:
    """Return a function that builds a view of the demo encoder's trace."""
    return lambda tokens: getattr(aw, view)(trace("encoder", tokens))


VIEWS: dict[str, Callable[[int], Any]] = {
    **{
        f"Explorer ({kind})": functools.partial(lambda kind, tokens: aw.Explorer(trace(kind, tokens)), kind)
        for kind in ("encoder", "classifier", "decoder", "encoder-decoder")
    },
    **{
        view: of_encoder(view)
        for view in (
            "Heatmap",
            "HeadGrid",
            "HeadView",
            "TokenStrip",
            "FlowView",
            "LayerProfile",
            "LayerSlider",
        )
    },
    "NeuronView": of_encoder("NeuronView"),
    "CompareView": lambda tokens: aw.compare(trace("encoder", tokens)),
    "RelevanceMap": lambda tokens: aw.views.RelevanceMap(trace("classifier", tokens)),
    "Predictions": lambda tokens: aw.Predictions(trace("classifier", tokens)),
    "RemovalView": lambda tokens: aw.RemovalView(trace("classifier", tokens)),
    "InterventionView": lambda tokens: aw.InterventionView(trace("classifier", tokens)),
    "FeatureStrip": lambda tokens: aw.FeatureStrip(aw.sae_features(*features(tokens))),
    "FeatureTable": lambda tokens: aw.FeatureTable(aw.sae_features(*features(tokens))),
    "FeaturePanel": lambda tokens: aw.FeaturePanel(counted(tokens)),
    "SteerView": lambda tokens: aw.SteerView(*features(tokens)),
    "ScorecardView": lambda _: aw.views.ScorecardView(scorecard()),
}

Look = dict[str, Any]


def measured(names: list[str], lengths: list[int]) -> dict[str, dict[str, Look]]:
    """Return the look of each view at each length, or why it has none."""
    from playwright.sync_api import sync_playwright

    looks: dict[str, dict[str, Look]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        for tokens in lengths:
            for name in names:
                try:
                    view = VIEWS[name](tokens)
                    path = view.to_html(Path(folder) / "view.html", budget=4_000_000)
                    view.close()
                    look = look_of(browser, path)
                except (ValueError, TypeError, RuntimeError, IndexError) as error:
                    look = {"failed": str(error).splitlines()[0][:120]}
                looks[name][str(tokens)] = look
                print(name, tokens, look, flush=True)
            trace.cache_clear()
        browser.close()
    return looks


def look_of(browser: Any, path: Path) -> Look:
    """Return the look of a page's view at all widths."""
    by_width = {}
    # Our standalone pages forbid eval, which playwright waits with.
    page = browser.new_context(bypass_csp=True).new_page()
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.goto(path.resolve().as_uri())
    page.wait_for_function("() => document.querySelector('.aw-root > *')", polling=100)
    page.add_style_tag(content="main { padding: 0 !important; max-width: none !important }")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(700)
        by_width[str(width)] = page.evaluate(MEASURE)
    page.context.close()
    return {
        "height": [by_width[str(width)]["height"] for width in WIDTHS],
        "controls": by_width["760"]["controls"],
        "data": round(by_width["760"]["data"], 3),
    }


def cells(look: Look | None) -> list[str]:
    """Return heights, controls and share of data as cells."""
    if look is None or "failed" in look:
        return ["-"] * 3
    return [
        " / ".join(f"{height:,}" for height in look["height"]),
        str(look["controls"]),
        f"{look['data']:.0%}",
    ]


def report(now: dict[str, dict[str, Look]], before: dict[str, dict[str, Look]]) -> str:
    """Return the page: one row for each view and length, before beside now."""
    rows = [
        f"| {name} | {tokens} | {' | '.join(cells(before.get(name, {}).get(tokens)) + cells(look))} |"
        for name, by_length in now.items()
        for tokens, look in by_length.items()
    ]
    failed = [
        f"- {name}, {tokens} tokens: {look['failed']}"
        for name, by_length in now.items()
        for tokens, look in by_length.items()
        if "failed" in look
    ]
    rules = (__doc__ or "").split("The rules:\n\n")[1].strip()
    head = "| view | tokens | height before | controls | data | height now | controls | data |"
    missing = "\n\nNot measured:\n\n" + "\n".join(failed) if failed else ""
    table = "\n".join((head, "|---|---:|---:|---:|---:|---:|---:|---:|", *rows))
    return f"""\
# What views look like, before and now

`python benchmarks/bench_look.py` writes this page. Heights are in px at 480 / 760 / 1,200 px of width;
controls and the share of data are those at 760. *Before* is the state before views had one frame (cb70743).

{rules}

{table}{missing}
"""


def main() -> None:
    """Measure; write the page, the numbers before it, or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--views", nargs="+", default=list(VIEWS), help="names in the table's first column")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--quick", action="store_true", help="14 tokens only, and write nothing")
    parser.add_argument("--before", action="store_true", help="write look_before.json instead of the page")
    options = parser.parse_args()
    before = json.loads(BEFORE.read_text()) if BEFORE.exists() else {}
    if options.before:
        for tokens in options.lengths:
            for name, look in measured(options.views, [tokens]).items():
                before[name] = before.get(name, {}) | look
            BEFORE.write_text(json.dumps(before, indent=1) + "\n")
        return
    looks = measured(options.views, [14] if options.quick else options.lengths)
    text = report(looks, before)
    if options.quick:
        print(text)
    else:
        (HERE / "look.md").write_text(text)


if __name__ == "__main__":
    main()
