"""Every view of maps with bad input, and every view at every width: nothing overlaps or grows without end."""

from __future__ import annotations

import pytest

import attnwidgets as aw
from tests.sae import made
from tests.views.every import OTHERS, every_view, make

from .bad_input import BAD, OUTSIDE, OVERLAPS
from .settling import settle

TALLEST = {1200: 600, 760: 600, 200: 900}
REFUSED = {  # each with different words
    "CompareView": ("1 x 1,000",),  # a single explanation
    "FlowView": ("1 x 1,000",),
    "InterventionView": ("1 x 1,000",),  # no model
    "LayerProfile": ("one layer", "one of each"),
    "SentenceView": ("1 x 1,000",),
}
PROBLEMS = f"""(roots, tallest) => roots.flatMap((root, i) => {{
  const {{ height }} = root.getBoundingClientRect();
  return [...({OUTSIDE})(root), ...({OVERLAPS})(root), ...(height > tallest ? [`${{height}} px high`] : [])]
    .map((line) => `${{i}}: ${{line}}`);
}})"""
OF_MAPS = sorted(set(every_view()) - set(OTHERS) - {"Explorer"})


def check(page, screenshot, name):
    for width, tallest in TALLEST.items():
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        screenshot(page, f"bad-{name}-{width}.png", full_page=True)
        problems = page.locator(".aw-root").evaluate_all(PROBLEMS, tallest)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append("wider than the page")
        assert "\n".join(problems) == "", width


@pytest.mark.parametrize("name", OF_MAPS)
def test_bad_input_neither_overflows_nor_grows(page_of, screenshot, name):
    views = [
        getattr(aw, name)(draw()) for problem, draw in BAD.items() if problem not in REFUSED.get(name, ())
    ]
    check(page_of(*views), screenshot, name)


@pytest.mark.parametrize("name", OTHERS)
def test_no_width_is_too_small(page_of, screenshot, minilm, name):
    if name == "SteerView":
        sae = made.sae(d_in=384, site="blocks.3.hook_resid_post")
        view = aw.SteerView(aw.trace(*minilm, "the cat sat"), sae, maximum=3)
    else:
        view = make(name, None)
    check(page_of(view), screenshot, name)
