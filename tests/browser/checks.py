"""What must be true of a page of views, in any browser: functions that list where it is not."""

# What lies beside each other in the flow of a view may touch and must not cover.
OVERLAPS = """() => {
  const found = [];
  for (const root of document.querySelectorAll(".aw-root")) {
    for (const parent of [root, ...root.querySelectorAll(".aw-column, .aw-row, .aw-panel")]) {
      const boxes = [...parent.children]
        .filter((el) => !["absolute", "fixed"].includes(getComputedStyle(el).position))
        .map((el) => [el, el.getBoundingClientRect()])
        .filter(([, box]) => box.width > 1 && box.height > 1);
      boxes.forEach(([a, one], i) => boxes.slice(i + 1).forEach(([b, two]) => {
        const x = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const y = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (x > 1.5 && y > 1.5)
          found.push(`${a.className}, ${b.className} in ${parent.className}: ${x} x ${y}`);
      }));
    }
  }
  return found;
}"""

# Text that is cut off must be said in full elsewhere: a title or a label.
CLIPPED = """() => [...document.querySelectorAll(".aw-root *")]
  .filter((el) => el.childElementCount === 0 && el.textContent.trim() && el.clientWidth > 4)
  .filter((el) => getComputedStyle(el).overflowX === "hidden" && el.scrollWidth > el.clientWidth + 1)
  .filter((el) => !el.closest("[title], [aria-label], .aw-sr"))
  .map((el) => `${el.className}: ${el.textContent}`)"""

# Of several canvases over each other one must be painted; behind text that is not coloured none is.
BLANK = """() => [...new Set([...document.querySelectorAll(".aw-root canvas:not(.aw-underlay canvas)")]
    .filter((el) => el.width && el.height && el.checkVisibility({ visibilityProperty: true }))
    .map((el) => el.parentElement))]
  .filter((place) => ![...place.querySelectorAll("canvas")].some((el) => new Uint32Array(
    el.getContext("2d").getImageData(0, 0, el.width, el.height).data.buffer)
    .some((pixel, _, [first]) => pixel !== first)))
  .map((place) => place.closest(".aw-root").className + " > " + place.className)"""
