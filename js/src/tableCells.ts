/** A fix for table cells that keep an outdated height. */

/**
 * Chromium keeps the height of a scrolling table cell when its content grows later. nbconvert puts every output into
 * such a cell, and the height of a view is set only after its width: force a new layout of the cell.
 */
export function settleTableCell(root: HTMLElement, signal: AbortSignal): void {
  const observer = new ResizeObserver(() => {
    for (let at = root.parentElement; at; at = at.parentElement) {
      if (getComputedStyle(at).display !== "table-cell") continue;
      if (at.scrollHeight <= at.clientHeight + 1) return;
      const { minHeight } = at.style;
      at.style.minHeight = "1px";
      void at.offsetHeight; // forces layout
      at.style.minHeight = minHeight;
      return;
    }
  });
  observer.observe(root);
  signal.addEventListener("abort", () => observer.disconnect());
}
