/** The parts of a query and of a key: two lists with shares, and lines for pairs of parts. */
import { h, on, setChildren, setFlag, setSizes, setStyles, walkList } from "../../../dom.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { decimal } from "../words.ts";
import { type Line, linesOf, type ShownWhy, type WhyRow } from "./why.ts";

export type Side = "asks" | "offers";
/** A row of a list. */
export interface At {
  side: Side;
  row: number;
}

export interface Lists {
  element: HTMLElement;
  /** Draw both lists; `unit` names their parts. */
  show(shown: ShownWhy, unit: string): void;
  /** Fit the lines to a width. */
  fit(width: number): void;
  /** Bring out the lines of a row. */
  point(at: At | null): void;
  /** The size from which all pairs have a line. */
  least(): number;
}

const ROW = 24;
/** Below this width, the lists are below each other, without lines. */
const NARROW = 380;
/** Largest share of the width between the lists, and its sizes in px. */
const [BETWEEN, CLOSEST, WIDEST] = [0.25, 40, 150];
/** Share of the width of the longest bar, and its sizes in px. */
const [BAR, SHORTEST, LONGEST] = [0.1, 24, 72];
/** Of a row, in px: a letter of a name, and the value with the gaps. */
const [LETTER, VALUE] = [6.4, 60];
const within = (least: number, size: number, most: number): number => Math.max(least, Math.min(most, Math.round(size)));

/** Width in px between the lists and of the longest bar: names come first. */
function sizesOf(width: number, letters: number): { between: number; bar: number } {
  const [names, most] = [LETTER * letters, within(SHORTEST, BAR * width, LONGEST)];
  if (width < NARROW) return { between: 0, bar: most };
  const between = within(CLOSEST, width - 2 * (names + most + VALUE), Math.min(WIDEST, BETWEEN * width));
  return { between, bar: within(SHORTEST, (width - between) / 2 - names - VALUE, most) };
}
const THICKEST = 9;
const SIDES: readonly Side[] = ["asks", "offers"];

/** A part as a row, and how many letters its name takes. */
function rowOf(side: Side, part: WhyRow, top: number, i: number): { row: HTMLElement; letters: number } {
  const bar = h("span.why-bar.meter-bar", { "aria-hidden": "true" }, h(`i.${kindOf(part)}`));
  setStyles(bar.firstElementChild as HTMLElement, { width: `${Math.min(100, (100 * Math.abs(part.value)) / top)}%` });
  const cancels = part.cancels?.every(Boolean) ? part.cancels.map((sum) => decimal(sum, 1, true)).join(" ") : "";
  const more = part.read ? `← ${part.read.replace(/[“”]/g, "")}` : cancels;
  const title = [part.name, part.read && `mostly read ${part.read}`, cancels && `${cancels} in all`]
    .filter(Boolean)
    .join(": ");
  const name = h("span.why-name.clip", { title, dir: "auto" }, h("bdi", part.name), more ? h("small", ` ${more}`) : "");
  const value = h("span.why-value", decimal(part.value, 2, true));
  const row = h(
    "div.why-row",
    {
      role: "listitem",
      "data-row": String(i),
      "data-kind": part.kind,
      "aria-label": `${title}: ${decimal(part.value, 2, true)}`,
      tabindex: i ? "-1" : "0",
    },
    ...(side === "asks" ? [name, value, bar] : [bar, value, name]),
  );
  return { row, letters: part.name.length + 1 + more.length };
}

export function createLists(signal: AbortSignal, hovered: (at: At | null) => void, chosen: (at: At) => void): Lists {
  const lines = svg("svg", { class: "aw-why-lines", role: "img" });
  const heads = { asks: h("div.why-head.fine"), offers: h("div.why-head.fine") };
  const rows = { asks: h("div.why-rows", { role: "list" }), offers: h("div.why-rows", { role: "list" }) };
  const element = h("div.why-lists", heads.asks, h("span"), heads.offers, rows.asks, lines, rows.offers);
  let [drawn, width, least, letters] = [null as ShownWhy | null, 0, 0, 0];
  let paths: { line: Line; path: SVGElement }[] = [];

  const drawLines = (): void => {
    if (!drawn) return;
    const sizes = sizesOf(width, letters);
    const room = sizes.between;
    setFlag(element, "data-narrow", width < NARROW);
    setSizes(element, sizes);
    const height = ROW * Math.max(drawn.asks.length, drawn.offers.length);
    setAttributes(lines, { width: room, height });
    const strongest = linesOf(drawn.pairs);
    least = strongest.least;
    const top = Math.abs(strongest.lines.at(-1)?.value ?? 1);
    paths = strongest.lines.map((line) => {
      const [a, b] = [ROW * line.from + ROW / 2, ROW * line.to + ROW / 2];
      const path = svg("path", {
        d: `M0 ${a} C${room * 0.4} ${a} ${room * 0.6} ${b} ${room} ${b}`,
        "stroke-width": Math.max(0.75, (THICKEST * Math.abs(line.value)) / top).toFixed(2),
        "data-of": line.value < 0 ? "against" : "for",
      });
      return { line, path };
    });
    lines.replaceChildren(...paths.map(({ path }) => path));
    lines.ariaLabel = `${paths.length} lines, for the pairs whose share is ${decimal(least)} or more`;
  };
  const pointOf = (event: Event): At | null => {
    const row = (event.target as Element).closest<HTMLElement>("[data-row]");
    const side = SIDES.find((side) => row && rows[side].contains(row));
    return row && side ? { side, row: Number(row.dataset.row) } : null;
  };
  for (const side of SIDES) {
    walkList(rows[side], signal);
    rows[side].dataset.awKeys = "↑ ↓: part, with its lines · Enter: show where it comes from";
    on(rows[side], signal, {
      pointerover: (event) => hovered(pointOf(event)),
      pointerleave: () => hovered(null),
      focusin: (event) => hovered(pointOf(event)),
      focusout: () => hovered(null),
      click(event) {
        const at = pointOf(event);
        if (at) chosen(at);
      },
    });
  }
  return {
    element,
    show(shown, unit) {
      if (drawn !== shown) {
        [drawn, letters] = [shown, 0];
        const top = Math.max(...[...shown.asks, ...shown.offers].map(({ value }) => Math.abs(value)), 1e-12);
        for (const [i, side] of SIDES.entries()) {
          setChildren(heads[side], h("b", `${shown.words[i]} ${side}`), h("span", ` by ${unit}`));
          rows[side].ariaLabel = `what ${shown.words[i]} ${side}, by ${unit}`;
          const parts = shown[side].map((part, at) => rowOf(side, part, top, at));
          letters = Math.max(letters, ...parts.map((item) => item.letters));
          setChildren(rows[side], ...parts.map(({ row }) => row));
        }
      }
      drawLines();
    },
    fit(now) {
      width = now;
      drawLines();
    },
    point(at) {
      setFlag(element, "data-pointed", at !== null);
      for (const { line, path } of paths) {
        const isOf = at !== null && (at.side === "asks" ? line.from : line.to) === at.row;
        setFlag(path as unknown as HTMLElement, "data-on", isOf);
      }
    },
    least: () => least,
  };
}

const kindOf = ({ kind, value }: WhyRow): string => (kind === "part" ? (value < 0 ? "against" : "for") : "special-sum");
