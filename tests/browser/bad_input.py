"""Maps that are too long, too small or too empty, and problems of a page with them."""

from __future__ import annotations

import numpy as np

import attnwidgets as aw

# Controls and parts stay inside the frame or scroll.
OUTSIDE = """root => {
  const frame = root.getBoundingClientRect();
  return [...root.querySelectorAll('button, select, input, summary, canvas, .aw-tok, .aw-readout')]
    .filter((el) => el.checkVisibility() && !el.closest('.aw-menu, .aw-sr'))
    .filter((el) => {
      const { right, width } = el.getBoundingClientRect();
      if (!width || right <= frame.right + 1) return false;
      for (let up = el.parentElement; up !== root; up = up.parentElement)
        if (getComputedStyle(up).overflowX !== 'visible') return false;
      return true;
    })
    .map((el) => `${el.localName}.${el.className} ${el.textContent.slice(0, 20)}`);
}"""

# Controls beside each other do not cover each other.
OVERLAPS = """root => [...root.querySelectorAll('.aw-toolbar, .aw-footer, .aw-caption')].flatMap((row) => {
  const isShown = (el) => el.checkVisibility() && !el.matches('.aw-sr, .aw-menu');
  const all = [...row.children].filter(isShown)
    .map((el) => [el, el.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  return all.flatMap(([el, a], i) => all.slice(i + 1)
    .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
    .map(([other]) => `${row.className}: ${el.className} and ${other.className}`));
})"""


def softmax(*shape):
    return np.random.default_rng(0).dirichlet(np.ones(shape[-1]), shape[:-1]).astype("float32")


def with_zeros():
    numbers = softmax(2, 2, 6, 6)
    numbers[:, :, 1:4] = 0
    return aw.from_attentions(numbers, [f"t{i}" for i in range(6)])


BAD = {
    "labels of 500 characters": lambda: aw.from_attentions(
        softmax(2, 3, 5, 5), ["x" * 500, "a b " * 125, "c", "d", "e"]
    ),
    "one token": lambda: aw.from_attentions(softmax(2, 3, 1, 1), ["a"]),
    "one head": lambda: aw.from_attentions(softmax(4, 1, 5, 5), list("abcde")),
    "one layer": lambda: aw.from_attentions(softmax(1, 4, 5, 5), list("abcde")),
    "one of each": lambda: aw.from_attentions(softmax(1, 1, 5, 5), list("abcde")),
    "rows of zeros": with_zeros,
    "1 x 1,000": lambda: aw.results.MixingMap(
        softmax(2, 2, 1, 1000),
        query=["q"],
        key=[f"k{i}" for i in range(1000)],
        layers=range(2),
        heads=range(2),
        method="mine",
    ),
}
