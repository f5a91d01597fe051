"""Every view, as notebooks/gallery.ipynb shows it: in its place, painted, and as screen readers find it."""

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


@pytest.fixture(scope="module")
def gallery(gallery_page):
    return gallery_page[1]


@pytest.fixture(scope="module")
def address(gallery_page):
    return gallery_page[0].as_uri()


def open_at(open_page, address, setting):
    page = open_page(address, **SETTINGS[setting])
    drawn(page)
    return page


def test_every_view_is_in_the_gallery(gallery):
    assert {*gallery.values()} == {*public_views(), "StudyView"}  # of aw.people
    assert [heading.split(":")[0] for heading in gallery] == [*gallery.values()]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_gallery_is_in_order(open_page, address, setting, screenshot):
    page = open_at(open_page, address, setting)
    screenshot(page, f"gallery-{setting}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(BLANK) == []


@pytest.mark.parametrize("setting", ["light", "dark"])
def test_axe_finds_nothing(open_page, address, setting, root):
    axe = root / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed (npm ci in js/; make test does it)")
    page = open_at(open_page, address, setting)
    page.evaluate(axe.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document.querySelector('main')).then((result) => result.violations)")
    told = [f"{v['id']}: {v['help']}: {[node['html'] for node in v['nodes']]}" for v in violations]
    assert told == []
