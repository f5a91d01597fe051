/** Helpers for working with the page: elements, safe text, themes, keys, text for screen readers. */

import type { Theme } from "./colour.ts";
import { luminance, type Rgb } from "./colour.ts";

type TagOf<S extends string> = S extends `${infer Tag}.${string}` ? Tag : S;
type ElementOf<S extends string> =
  TagOf<S> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[TagOf<S>] : HTMLElement;

/**
 * Create an element from "tag.class.class", attributes and children. The class "row" becomes "aw-row"; strings become
 * text.
 */
export function h<S extends string>(selector: S, ...parts: (Record<string, string> | Node | string)[]): ElementOf<S> {
  const [tag, ...classes] = selector.split(".");
  const el = document.createElement(tag as string);
  if (classes.length > 0) el.className = classes.map((name) => `aw-${name}`).join(" ");
  for (const part of parts) {
    if (typeof part === "string" || part instanceof Node) el.append(part);
    else for (const [name, value] of Object.entries(part)) el.setAttribute(name, value);
  }
  return el as ElementOf<S>;
}

type Events = HTMLElementEventMap & WindowEventMap;
type Handlers = { [K in keyof Events]?: (event: Events[K]) => void };

/** Listen to events by name until `signal` aborts. */
export function on(target: EventTarget, signal: AbortSignal, handlers: Handlers): void {
  for (const [name, handler] of Object.entries(handlers)) {
    target.addEventListener(name, handler as EventListener, { signal });
  }
}

/** A small button with a sign instead of words; `label` names it. */
export function iconButton(signal: AbortSignal, sign: string, label: string, click: () => void): HTMLButtonElement {
  const button = h("button.button.icon", { type: "button", "aria-label": label, title: label }, sign);
  on(button, signal, { click });
  return button;
}

/** Call once when a signal aborts. */
export function atEnd(signal: AbortSignal, cb: () => void): void {
  signal.addEventListener("abort", cb);
}

/** Set an element's text; returns whether it changed. */
export function setText(el: Element, text: string): boolean {
  if (el.textContent === text) return false;
  const node = el.firstChild as Text | null;
  // Changing the data of a text node is cheaper than replacing the node.
  if (text && node?.nodeType === 3 && !node.nextSibling) node.data = text;
  else el.textContent = text;
  return true;
}

/** Make an element wide enough for each of `texts`, so that nothing moves when its text changes. */
export function reserve(el: HTMLElement, ...texts: string[]): void {
  const room = texts.join("\n");
  if (el.dataset.room !== room) el.dataset.room = room;
}

/** Set only the properties that differ: writing an equal value would still make the page prepare a redraw. */
export function assign<E extends object>(el: E, values: Partial<E>): void {
  for (const name in values) if (el[name] !== values[name]) el[name] = values[name] as E[typeof name];
}

const CURRENT_STYLES = new WeakMap<HTMLElement, Record<string, string>>();

/** Set only the styles that differ from the last call for this element. */
export function setStyles(el: HTMLElement, styles: Record<string, string>): void {
  const current = CURRENT_STYLES.get(el) ?? {};
  CURRENT_STYLES.set(el, current);
  for (const name in styles) {
    if (current[name] === styles[name]) continue;
    current[name] = styles[name] as string;
    el.style.setProperty(name, styles[name] as string);
  }
}

/** Returns a function that compares its arguments with those of its previous call, and is true if they differ. */
export function createWatch(): (...values: unknown[]) => boolean {
  let before: readonly unknown[] = [];
  return (...values) => {
    const differs = values.length !== before.length || values.some((value, i) => value !== before[i]);
    before = values;
    return differs;
  };
}

/** Screen pixels per CSS pixel. */
export const density = (): number => globalThis.devicePixelRatio || 1;

/** Replace an element's children. */
export function setChildren(el: Element, ...children: (Node | string)[]): void {
  el.replaceChildren(...children);
}

/** Set or remove an attribute without a value. */
export function setFlag(el: Element, name: string, isSet: boolean): void {
  el.toggleAttribute(name, isSet);
}

// Marks, embeddings, overrides and isolates reverse or hide text. Joiners stay: some scripts need them.
const HIDDEN = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]/gu;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches control characters
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/gu;

/**
 * Text with its invisible characters made visible: control characters as pictures, direction controls by code point.
 */
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

/** The direction in which most letters of some labels are written. */
export function directionOf(labels: readonly string[]): "rtl" | "ltr" {
  const count = (letters: RegExp): number => labels.join("").match(letters)?.length ?? 0;
  return count(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/gu) * 2 > count(/\p{L}/gu) ? "rtl" : "ltr";
}

/** A label for an axis: safe, never invisible, and no longer than `most` characters. */
export function shortLabel(label: string, most = 32): string {
  if (label === "") return "∅";
  if (/^[ \u00a0]+$/u.test(label)) return "␣".repeat(Math.min(4, label.length));
  // Cut before escaping: a token of a megabyte must not be walked for every label.
  const points = [...label.slice(0, 2 * most + 2)];
  const cut = points.length > most || label.length > 2 * most + 2;
  return safeText(cut ? `${points.slice(0, most - 1).join("")}…` : label);
}

/** Indices of the labels that fit: every k-th of `count`, if each has `size` px and needs `need` px. */
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

function parseColour(css: string): Rgb | null {
  const [r = 0, g = 0, b = 0, alpha = 1] = css.match(/[\d.]+/g)?.map(Number) ?? [];
  return css.startsWith("rgb") && alpha >= 0.5 ? [r, g, b] : null;
}

/**
 * Light or dark, judged by the actual background of the element, since notebooks, editors and pages all name it
 * differently.
 */
export function themeOf(el: Element): Theme {
  let at: Element | null = el;
  while (at) {
    const rgb = parseColour(getComputedStyle(at).backgroundColor);
    if (rgb) return luminance(rgb) < 0.18 ? "dark" : "light";
    const root: Node = at.getRootNode();
    at = at.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
  }
  // No background is set: the page's text colour indicates the colour scheme of the browser.
  const text = parseColour(getComputedStyle(el).color);
  return text && luminance(text) > 0.5 ? "dark" : "light";
}

const THEME_ATTRIBUTES = [
  "class",
  "style",
  "data-theme",
  "data-jp-theme-name",
  "data-vscode-theme-kind",
  "data-color-mode",
];

/**
 * Call back when the theme may have changed. Themes load as style sheets, so the callback runs again a little later.
 */
export function watchTheme(el: Element, signal: AbortSignal, cb: () => void): void {
  const timers = new Set<ReturnType<typeof setTimeout>>();
  const soon = (): void => {
    for (const t of timers) clearTimeout(t);
    timers.clear();
    cb();
    for (const delay of [50, 400, 1500]) timers.add(setTimeout(cb, delay));
  };
  const observer = new MutationObserver(soon);
  for (const element of [document.documentElement, document.body]) {
    if (element) observer.observe(element, { attributeFilter: THEME_ATTRIBUTES });
  }
  on(matchMedia("(prefers-color-scheme: dark)"), signal, { change: soon });
  on(window, signal, { beforeprint: cb, afterprint: cb });
  whenShown(el, signal, soon);
  atEnd(signal, () => {
    observer.disconnect();
    for (const t of timers) clearTimeout(t);
  });
}

/** Call with the content box of an element, now and on every resize. */
export function onResize(
  el: Element | readonly Element[],
  signal: AbortSignal,
  cb: (box: DOMRectReadOnly) => void,
): void {
  const observer = new ResizeObserver((entries) => cb((entries.at(-1) as ResizeObserverEntry).contentRect));
  for (const each of [el].flat()) observer.observe(each);
  atEnd(signal, () => observer.disconnect());
}

/** Call once when the element is on the page and has a size: notebooks render views before attaching them. */
export function whenShown(el: Element, signal: AbortSignal, cb: () => void): void {
  let seen = false;
  const check = (): void => {
    if (seen || !el.isConnected) return;
    seen = true;
    cb();
  };
  onResize(el, signal, check);
}

/**
 * Call with the width of an element in whole pixels, now and on every change. Heights are not watched, which rules out
 * feedback.
 */
export function watchWidth(el: Element, signal: AbortSignal, cb: (width: number) => void): void {
  let last = 0;
  const measure = (box: DOMRectReadOnly): void => {
    const width = Math.floor(box.width);
    if (width === last || width <= 0) return;
    last = width;
    cb(width);
  };
  onResize(el, signal, measure);
}

/**
 * Call with the size of an element's content in whole pixels, now and when its width changes; with `data-box`, which
 * marks an element with a given height, also when the height changes.
 */
export function watchBox(
  el: HTMLElement,
  signal: AbortSignal,
  cb: (box: { width: number; height: number }) => void,
): void {
  let last = "";
  onResize(el, signal, (rect) => {
    const [width, height] = [Math.floor(rect.width), Math.floor(rect.height)];
    const now = `${width} ${el.dataset.box === undefined ? "" : height}`;
    if (now === last || width <= 0) return;
    last = now;
    cb({ width, height });
  });
}

export type KeyHandlers = Record<string, () => void>;

/**
 * Handle keys of a focusable element, named "ArrowUp" or "Shift+ArrowUp". Handled keys do not scroll. `words` describe
 * the keys in the list that "?" opens: "← →: head · Enter: pin".
 */
export function keyboard(el: HTMLElement, signal: AbortSignal, handlers: KeyHandlers, words = ""): void {
  if (words) el.dataset.awKeys = words;
  on(el, signal, {
    keydown: (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const handler = handlers[(event.shiftKey ? "Shift+" : "") + event.key];
      if (!handler) return;
      event.preventDefault();
      handler();
    },
  });
}

/** Move along a list by arrow keys. A single child, or its button, is in the tab order; Enter and Space click. */
export function walkList(list: HTMLElement, signal: AbortSignal): void {
  on(list, signal, {
    keydown(event) {
      const child = [...list.children].find((item) => item.contains(event.target as Node));
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!child || !(step || event.key === "Enter" || event.key === " ")) return;
      event.preventDefault();
      const next = (step ?? 0) > 0 ? child.nextElementSibling : child.previousElementSibling;
      if (!step) (event.target as HTMLElement).click();
      else if (next) (next.querySelector<HTMLElement>("[tabindex]") ?? (next as HTMLElement)).focus();
    },
  });
}

/** Move and resize an overlay of a picture, in px; a negative position hides it. */
export function setBox(el: HTMLElement, x: number, y: number, width: number, height: number): void {
  const hidden = x < 0 || y < 0;
  assign(el, { hidden });
  if (hidden) return;
  const [across, down] = [Math.max(1, width), Math.max(1, height)];
  setStyles(el, { transform: `translate(${x}px, ${y}px)`, width: `${across}px`, height: `${down}px` });
}

/** Set sizes in px, which style sheets read as `--aw-<name>`. */
export function setSizes(el: HTMLElement, sizes: Record<string, number>): void {
  for (const [name, size] of Object.entries(sizes)) el.style.setProperty(`--aw-${name}`, `${size}px`);
}

/** Row and column under the pointer in a picture of rows x cols equal cells; null outside it. */
export function spotAt(event: MouseEvent, el: Element, rows: number, cols: number): [number, number] | null {
  const box = el.getBoundingClientRect();
  const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
  const col = Math.floor(((event.clientX - box.left) / box.width) * cols);
  return row >= 0 && col >= 0 && row < rows && col < cols ? [row, col] : null;
}

/** Whether an event happened outside all views, including those in shadow roots. */
export function isOutside(event: Event): boolean {
  return !event.composedPath().some((at) => at instanceof Element && at.classList.contains("aw-root"));
}

/** The number of a label that occurs more than once, as small digits. */
function numberOf(labels: readonly string[], index: number, base: number): string {
  const label = labels[index] as string;
  if (labels.indexOf(label) === labels.lastIndexOf(label)) return "";
  return [...String(index + base)].map((d) => "₀₁₂₃₄₅₆₇₈₉"[Number(d)]).join("");
}

/** A label for a list, isolated from the text direction around it; numbered if it occurs more than once. */
export function listed(labels: readonly string[], index: number, base: number): string {
  const label = labels[index];
  return label === undefined ? "–" : `\u2068${shortLabel(label)}\u2069${numberOf(labels, index, base)}`;
}

/** A label in quotes, isolated from the text direction around it; numbered if it occurs more than once. */
export function quoted(labels: readonly string[], index: number, base: number): string {
  const label = labels[index];
  return label === undefined ? "–" : `\u2068“${shortLabel(label, 60)}”\u2069${numberOf(labels, index, base)}`;
}
