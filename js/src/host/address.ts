/**
 * The address of a page: its part after `#` gives the method, layer, head and pin at which a view opens. It may come
 * from anywhere: names that the page lacks are ignored, and reported.
 */
import { markOf, NAMES, type Name } from "../link.ts";
import { MOST_PINS } from "../selection.ts";
import { baseKey, keyWithTargets } from "../wire/keys.ts";
import type { Cell, Header, Outcome, SelectionState, Span } from "../wire/wire.ts";

interface Model {
  get(key: string): unknown;
  set(key: string, value: unknown): void;
}

/** A view of a page that an address can name. */
export interface Addressed {
  el: HTMLElement;
  /** Its models, which are others for another text. */
  part(of: "selection" | "store"): Model;
  /**
   * The number of texts of the view, the index of the shown text, and a function that shows another; 0: the view has a
   * single text.
   */
  texts: number;
  shownText(): number;
  showText(index: number): Promise<void>;
}

/** The values that an address sets in a selection, if the page has them. */
export interface AddressValues {
  values: Partial<SelectionState>;
  /** The fields that the page lacks, as they are written in the address. */
  lacks: string[];
  /** Whether its pins and its span count another text. */
  ofAnother: boolean;
}

const LONGEST = 20_000; // characters
const MOST_LISTED = 5;

/** The names and texts of an address; null if it names no view. */
export function readAddress(hash: string): URLSearchParams | null {
  const fields = new URLSearchParams(hash.slice(0, LONGEST).replace(/^#/, ""));
  return hash.includes("=") && NAMES.some((name) => fields.has(name)) ? fields : null;
}

const whole = (text: string): number | null => (/^\d{1,9}$/.test(text) ? Number(text) : null);

/** The pins of an address, all in the same unit; pins that do not fit are added to `lacks`. */
function readPins(fields: URLSearchParams, pin: (text: string) => Cell | null, lacks: string[]): Cell[] {
  const pins: Cell[] = [];
  for (const text of fields.getAll("pin").slice(-MOST_PINS)) {
    const cell = pin(text);
    if (cell && cell.unit === (pins[0] ?? cell).unit) pins.push(cell);
    else lacks.push(`pin=${text}`);
  }
  return pins;
}

/** The values that an address sets in a selection whose views show `header`. */
export function valuesOf(
  fields: URLSearchParams,
  header: Header,
  now: Pick<SelectionState, "method" | "unit" | "stack">,
): AddressValues {
  const { sources } = header;
  const lacks: string[] = [];
  const read = <T>(name: Name, parse: (text: string) => T | null): T | null => {
    const text = fields.get(name);
    const value = text === null ? null : parse(text);
    if (text !== null && value === null) lacks.push(`${name}=${text}`);
    return value;
  };
  const offered = (field: "unit" | "stack") => (text: string) => (sources.some((s) => s[field] === text) ? text : null);
  const isLayer = (layer: number): boolean => sources.some(({ layers }) => layers.includes(layer));
  const isHead = (head: number): boolean => sources.some(({ heads }) => heads?.includes(head));
  const outcome = (text: string): Outcome | null => {
    const prediction = header.predictions.items.find(({ id }) => id === whole(text));
    return prediction ? { id: prediction.id, label: prediction.label } : null;
  };

  let target = read("target", outcome);
  let foil = read("foil", (text) => (text === fields.get("target") ? null : target && outcome(text)));
  const method = read("method", (text) => sources.find((source) => source.method === text)?.method ?? null);
  const shown = method ?? baseKey(now.method);
  const key = keyWithTargets(shown, target, foil);
  const has = (name: string): boolean => sources.some((source) => source.method === name);
  if (target && !has(key) && sources.some((source) => source.method === shown && source.targets)) {
    // The page has only the explanation of the prediction, which is not that of this target.
    lacks.push(`target=${target.id}`);
    [target, foil] = [null, null];
  }
  const values: Partial<SelectionState> = { target, foil };
  const methodKey = [keyWithTargets(shown, target, foil), shown].find(has);
  if (methodKey) values.method = methodKey;
  const [unit, stack] = [read("unit", offered("unit")), read("stack", offered("stack"))];
  if (unit !== null) values.unit = unit;
  if (stack !== null) values.stack = stack;
  const layer = read("layer", (text) => {
    const number = whole(text);
    return number !== null && isLayer(number) ? number : null;
  });
  if (layer !== null) values.layer = layer;
  const head = read("head", (text): SelectionState["head"] | null => {
    if (text === "mean" || text === "max") return sources.some(({ heads }) => heads) ? text : null;
    const number = whole(text);
    return number !== null && isHead(number) ? number : null;
  });
  if (head !== null) values.head = head;
  values.heads =
    read("heads", (text) => {
      const heads = text.split(",").map((head) => head.split(".").map(whole));
      const good = heads.every(([at, of, ...rest]) => isLayer(at ?? -1) && isHead(of ?? -1) && rest.length === 0);
      return good && heads.length <= MOST_PINS ? (heads as [number, number][]) : null;
    }) ?? [];
  values.inside = read("inside", (text) => (text === "1" && has(`${shown}:layers`) ? true : null)) ?? false;
  const feature = read("feature", whole);
  if (feature !== null) values.feature = feature;

  const shownUnit = unit ?? now.unit;
  /** Numbers of queries and keys that are counted in a unit. */
  const sizes = (counted: string): [number, number] =>
    sources
      .filter((source) => source.unit === counted)
      .map(({ query, key }) => [query, key].map((axis) => header.axes[axis]?.labels.length ?? 0))
      .reduce<[number, number]>(([a, b], [c = 0, d = 0]) => [Math.max(a, c), Math.max(b, d)], [0, 0]);
  const pin = (text: string): Cell | null => {
    const [query = "", key = "", counted = shownUnit, at, ...rest] = text.split(",");
    const indices = [query, key].map((index) => (index === "-1" ? -1 : whole(index)));
    const [row, column] = indices as [number | null, number | null];
    const [rows, columns] = sizes(counted);
    if (row === null || column === null || row >= rows || column >= columns || row + column < -1) return null;
    const cell = { unit: counted, query: row, key: column };
    if (at === undefined) return cell;
    const number = whole(at);
    return number !== null && isLayer(number) && rest.length === 0 ? { ...cell, layer: number } : null;
  };
  const pins = readPins(fields, pin, lacks);
  let span = read("span", (text): Span | null => {
    const [from = "", to = "", counted = shownUnit, side = "query", ...rest] = text.split(",");
    const [start, stop] = [whole(from), whole(to)];
    if (start === null || stop === null || start >= stop || rest.length > 0) return null;
    if (side !== "query" && side !== "key") return null;
    return stop <= sizes(counted)[side === "query" ? 0 : 1] ? { start, stop, unit: counted, side } : null;
  });
  const counted = pins[0]?.unit ?? span?.unit;
  const mark = counted && markOf(header, counted, stack ?? now.stack);
  const ofAnother = Boolean(mark) && fields.has("of") && fields.get("of") !== mark;
  if (ofAnother) {
    pins.length = 0;
    span = null;
  }
  Object.assign(values, { pins, pinned: pins.at(-1) ?? null, span });
  for (const [name, text] of fields) if (!NAMES.includes(name as Name)) lacks.push(`${name}=${text}`);
  return { values, lacks, ofAnother };
}

/** The note of the page about an address; "" if the page has everything that the address names. */
export function noteOf({ lacks, ofAnother }: Pick<AddressValues, "lacks" | "ofAnother">): string {
  const short = (text: string): string => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
  const more = lacks.length > MOST_LISTED ? `, and ${lacks.length - MOST_LISTED} more` : "";
  return [
    lacks.length &&
      `The address names what this page lacks: ${lacks.slice(0, MOST_LISTED).map(short).join(", ")}${more}.`,
    ofAnother && "It was made for another text: nothing is pinned.",
  ]
    .filter(Boolean)
    .join(" ");
}

/** The state that an address restores; hovering and interventions are excluded. */
const MOVED = [
  ...["method", "unit", "stack", "layer", "head", "inside", "target", "foil", "feature"],
  ...["heads", "pins", "pinned", "span"],
];

/**
 * Open the views of a page at its address, now and whenever the address changes: edited by the reader, or with Back. A
 * view that an address moved before returns to the state in which the page opened it. Resolves, once the views have
 * opened, to a function that scrolls to the named view.
 */
export async function followAddress(views: readonly Addressed[], selections: readonly Model[]): Promise<() => void> {
  const opening = new Map(
    selections.map((selection) => [selection, new Map(MOVED.map((name) => [name, selection.get(name)]))]),
  );
  const texts = new Map(views.map((view) => [view, view.shownText()]));
  const note = document.createElement("p");
  note.className = "aw-link-note";
  note.role = "status";
  let moved: Addressed | undefined;
  let turn = 0;

  const go = async (): Promise<void> => {
    const fields = readAddress(location.hash);
    // A plain anchor is about the page, and not about a view.
    if (!fields && location.hash.length > 1) return;
    turn += 1;
    const mine = turn;
    const show = async (view: Addressed | undefined, text: number): Promise<void> => {
      if (view && view.shownText() !== text) await view.showText(text);
    };
    const left = moved?.part("selection");
    for (const [name, value] of (left && opening.get(left)) ?? []) left?.set(name, value);
    note.remove();
    const number = fields?.get("view") ?? "1";
    const view = fields ? views[(whole(number) ?? 0) - 1] : undefined;
    if (moved && moved !== view) await show(moved, texts.get(moved) ?? 0);
    moved = view;
    if (!fields || mine !== turn) return;
    let request: AddressValues = { values: {}, lacks: [`view=${number}`], ofAnother: false };
    if (view) {
      const text = fields.get("text");
      const index = text === null ? (texts.get(view) ?? 0) : whole(text);
      const hasText = index !== null && (index < view.texts || text === null);
      if (hasText) await show(view, index);
      if (mine !== turn) return;
      const selection = view.part("selection");
      const now = (name: string): string => String(selection.get(name));
      const header = view.part("store").get("header") as Header;
      request = valuesOf(fields, header, { method: now("method"), unit: now("unit"), stack: now("stack") });
      if (!hasText) request.lacks.push(`text=${text}`);
      for (const [name, value] of Object.entries(request.values)) selection.set(name, value);
    }
    note.textContent = noteOf(request);
    if (note.textContent) (view ?? views[0])?.el.before(note);
  };
  const scroll = (): void => {
    if (readAddress(location.hash)?.has("view")) moved?.el.scrollIntoView();
  };
  await go();
  addEventListener("hashchange", () => void go().then(scroll));
  return scroll;
}
