"""Checks of a page of views, in any browser: functions that list the violations."""

# Elements beside each other in the flow of a view may touch and must not cover each other.
OVERLAPS = """() => {
  const overlaps = [];
  for (const root of document.querySelectorAll(".aw-root")) {
    for (const parent of [root, ...root.querySelectorAll(".aw-column, .aw-row, .aw-panel")]) {
      const boxes = [...parent.children]
        .filter((el) => !["absolute", "fixed"].includes(getComputedStyle(el).position))
        .map((el) => [el, el.getBoundingClientRect()])
        .filter(([, box]) => box.width > 1 && box.height > 1);
      boxes.forEach(([a, first], i) => boxes.slice(i + 1).forEach(([b, second]) => {
        const x = Math.min(first.right, second.right) - Math.max(first.left, second.left);
        const y = Math.min(first.bottom, second.bottom) - Math.max(first.top, second.top);
        if (x > 1.5 && y > 1.5)
          overlaps.push(`${a.className}, ${b.className} in ${parent.className}: ${x} x ${y}`);
      }));
    }
  }
  return overlaps;
}"""

# Text that is cut off must be said in full elsewhere: a title or a label.
CLIPPED = """() => [...document.querySelectorAll(".aw-root *")]
  .filter((el) => el.childElementCount === 0 && el.textContent.trim() && el.clientWidth > 4)
  .filter((el) => getComputedStyle(el).overflowX === "hidden" && el.scrollWidth > el.clientWidth + 1)
  .filter((el) => !el.closest("[title], [aria-label], .aw-sr"))
  .map((el) => `${el.className}: ${el.textContent}`)"""

# Of several canvases over each other at least one is painted; without colour behind text none is there.
BLANK = """() => [...new Set([...document.querySelectorAll(".aw-root canvas:not(.aw-underlay canvas)")]
    .filter((el) => el.width && el.height && el.checkVisibility({ visibilityProperty: true }))
    .map((el) => el.parentElement))]
  .filter((holder) => ![...holder.querySelectorAll("canvas")].some((el) => new Uint32Array(
    el.getContext("2d").getImageData(0, 0, el.width, el.height).data.buffer)
    .some((pixel, _, [first]) => pixel !== first)))
  .map((holder) => holder.closest(".aw-root").className + " > " + holder.className)"""
