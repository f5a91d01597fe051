/** Pages that lay a view out once and do not look again. */

/**
 * Chromium keeps the height of a scrolling table cell when what is in it grows later. nbconvert puts every output
 * into such a cell, and a view takes its height only when it knows its width: lay the cell out again.
 */
export function settleTableCell(root: HTMLElement, signal: AbortSignal): void {
  const observer = new ResizeObserver(() => {
    for (let at = root.parentElement; at; at = at.parentElement) {
      if (getComputedStyle(at).display !== "table-cell") continue;
      if (at.scrollHeight <= at.clientHeight + 1) return;
      const { minHeight } = at.style;
      at.style.minHeight = "1px";
      void at.offsetHeight; // lays out
      at.style.minHeight = minHeight;
      return;
    }
  });
  observer.observe(root);
  signal.addEventListener("abort", () => observer.disconnect());
}
