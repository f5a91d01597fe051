/** Small things every view needs from the page: elements, safe text, themes, keys, words for screen readers. */
import { luminance, type Rgb } from "./colour.ts";
import type { Theme } from "./context.ts";

type Attribute = string | number | boolean | null | undefined;

/** An element with attributes and children. Children that are strings become text, never markup. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Attribute> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    el.setAttribute(name, value === true ? "" : String(value));
  }
  el.append(...children);
  return el;
}

// Marks, embeddings, overrides and isolates turn text around or hide it; joiners are left: scripts need them.
const HIDDEN = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]/gu;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/gu;

/** Text that shows what it holds: control characters as their pictures, direction controls by code point. */
export function safeText(text: string): string {
  return text
    .toWellFormed()
    .replace(CONTROL, (c) => {
      const code = c.charCodeAt(0);
      if (code < 0x20) return String.fromCharCode(0x2400 + code);
      return code === 0x7f ? "␡" : "�";
    })
    .replace(HIDDEN, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** A label for an axis: safe, never invisible, and no longer than `most` characters. */
export function shortLabel(label: string, most = 32): string {
  if (label === "") return "∅";
  if (/^[ \u00a0]+$/u.test(label)) return "␣".repeat(Math.min(4, label.length));
  // Cut before it is made safe: a token of a megabyte must not be walked for every label.
  const points = [...label.slice(0, 2 * most + 2)];
  const cut = points.length > most || label.length > 2 * most + 2;
  return safeText(cut ? `${points.slice(0, most - 1).join("")}…` : label);
}

/** Indices of the labels that fit: every k-th of `count` when each has `size` px and needs `need` px. */
export function thinned(count: number, size: number, need: number): number[] {
  let step = 1;
  if (size < need) {
    const least = need / Math.max(size, 1e-6);
    const power = 10 ** Math.floor(Math.log10(least));
    step = ([1, 2, 5, 10].find((m) => m * power >= least) ?? 10) * power;
  }
  const shown: number[] = [];
  for (let i = 0; i < count; i += step) shown.push(i);
  return shown;
}

function parseColour(css: string): (Rgb & { alpha?: never }) | null {
  const parts = css
    .match(/^rgba?\(([^)]*)\)$/)?.[1]
    ?.split(/[\s,/]+/)
    .map(Number);
  if (!parts || parts.length < 3 || (parts[3] ?? 1) < 0.5) return null;
  return [parts[0] ?? 0, parts[1] ?? 0, parts[2] ?? 0];
}

/** Light or dark, by what really lies behind the element: notebooks, editors and pages all name it differently. */
export function themeOf(el: Element): Theme {
  let at: Element | null = el;
  while (at) {
    const rgb = parseColour(getComputedStyle(at).backgroundColor);
    if (rgb) return luminance(rgb) < 0.18 ? "dark" : "light";
    const root: Node = at.getRootNode();
    at = at.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
  }
  // Nothing is painted: the page's own text colour tells which side the browser is on.
  const text = parseColour(getComputedStyle(el).color);
  return text && luminance(text) > 0.5 ? "dark" : "light";
}

/** Call back when the theme may have changed. Themes load by stylesheet, so a change is looked at again later. */
export function watchTheme(el: Element, cb: () => void, signal: AbortSignal): void {
  const timers = new Set<ReturnType<typeof setTimeout>>();
  const soon = (): void => {
    for (const t of timers) clearTimeout(t);
    timers.clear();
    cb();
    for (const delay of [50, 400, 1500]) timers.add(setTimeout(cb, delay));
  };
  const observer = new MutationObserver(soon);
  const attributes = {
    attributes: true,
    attributeFilter: [
      "class",
      "style",
      "data-theme",
      "data-jp-theme-name",
      "data-jp-theme-light",
      "data-vscode-theme-kind",
      "data-color-mode",
    ],
  };
  observer.observe(document.documentElement, attributes);
  if (document.body) observer.observe(document.body, attributes);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon, { signal });
  whenShown(el, soon, signal);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    for (const t of timers) clearTimeout(t);
  });
}

/** Call once when the element is on the page and has a size: notebooks render before they attach. */
export function whenShown(el: Element, cb: () => void, signal: AbortSignal): void {
  const observer = new ResizeObserver(() => {
    if (!el.isConnected) return;
    observer.disconnect();
    cb();
  });
  observer.observe(el);
  signal.addEventListener("abort", () => observer.disconnect());
}

/** Width of an element in whole pixels, now and whenever it changes. Heights are never watched: no feedback. */
export function watchWidth(el: Element, cb: (width: number) => void, signal: AbortSignal): void {
  let last = -1;
  const observer = new ResizeObserver((entries) => {
    const width = Math.floor(entries[entries.length - 1]?.contentRect.width ?? 0);
    if (width === last || width <= 0) return;
    last = width;
    cb(width);
  });
  observer.observe(el);
  signal.addEventListener("abort", () => observer.disconnect());
}

export type KeyHandlers = Record<string, (event: KeyboardEvent) => void>;

/**
 * Keys of a focusable element, named "ArrowUp" or "Shift+ArrowUp". Handled keys do not scroll; and no key
 * reaches the notebook, whose command mode would take the arrows.
 */
export function keyboard(el: HTMLElement, handlers: KeyHandlers, signal: AbortSignal): void {
  el.dataset.lmSuppressShortcuts = "true";
  el.addEventListener(
    "keydown",
    (event) => {
      event.stopPropagation();
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const handler = handlers[(event.shiftKey ? "Shift+" : "") + event.key];
      if (!handler) return;
      event.preventDefault();
      handler(event);
    },
    { signal },
  );
}

/** A polite live region; what is said quickly one after the other is said once, at the end. */
export function liveRegion(root: HTMLElement): (text: string) => void {
  const region = h("div", { class: "aw-sr", role: "status", "aria-live": "polite" });
  root.append(region);
  let timer: ReturnType<typeof setTimeout> | undefined;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (region.textContent !== text) region.textContent = text;
    }, 150);
  };
}

/** Keep the keys of a plain control (a slider, a list) from the notebook, which would take the arrows. */
export function guardKeys(el: HTMLElement, signal: AbortSignal): void {
  el.dataset.lmSuppressShortcuts = "true";
  el.addEventListener("keydown", (event) => event.stopPropagation(), { signal });
}

/** Whether an event happened outside all views, also those in shadow roots. */
export function isOutside(event: Event): boolean {
  return !event.composedPath().some((at) => at instanceof Element && at.classList.contains("aw-root"));
}

/** A label in a sentence: safe, and never invisible. */
export function visible(label: string): string {
  return shortLabel(label, 60);
}

/** A label in quotes, isolated from the direction of its neighbours; numbered where it is not the only one. */
export function quoted(labels: readonly string[], index: number, base: number): string {
  const label = labels[index];
  if (label === undefined) return "–";
  const alone = labels.indexOf(label) === labels.lastIndexOf(label);
  const number = alone ? "" : [...String(index + base)].map((d) => "₀₁₂₃₄₅₆₇₈₉"[Number(d)]).join("");
  return `\u2068“${visible(label)}”\u2069${number}`;
}
