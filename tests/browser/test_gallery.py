"""Every view, as notebooks/gallery.ipynb shows it: in its cell, painted, and as screen readers read it."""

from __future__ import annotations

import pytest

from tests.views.every import public_views

from .checks import BLANK, CLIPPED, OVERLAPS
from .conftest import drawn

SETTINGS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 340, "height": 900}},
    "wide": {"color_scheme": "dark", "viewport": {"width": 1600, "height": 900}},
    "forced-colours": {"forced_colors": "active"},
}


@pytest.fixture(scope="module", params=SETTINGS)
def page(open_page_for_all, gallery_page, request):
    """The gallery, in each setting."""
    page = open_page_for_all(gallery_page[0].as_uri(), **SETTINGS[request.param])
    page.setting = request.param
    drawn(page)
    return page


def test_every_view_is_in_the_gallery(gallery_page):
    gallery = gallery_page[1]
    assert {*gallery.values()} == {*public_views(), "StudyView"}  # of aw.people
    assert [heading.split(":")[0] for heading in gallery] == [*gallery.values()]


def test_the_gallery_is_in_order(page, screenshot):
    screenshot(page, f"gallery-{page.setting}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(BLANK) == []


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_axe_finds_nothing(page, root):
    axe = root / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed (npm ci in js/; make test does it)")
    page.evaluate(axe.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document.querySelector('main')).then((result) => result.violations)")
    told = [f"{v['id']}: {v['help']}: {[node['html'] for node in v['nodes']]}" for v in violations]
    assert told == []
