/** The canvas of a HeadView: lines between tokens, and a bar for each head behind the tokens of one side. */
import { type Mode, place, valueAt } from "../../colour.ts";
import { density } from "../../dom.ts";
import type { Token } from "./numbers.ts";
import type { Edges, Side, Values } from "./pairs.ts";

/** The number of line strengths that are drawn: each is one stroke for all lines of a head. */
const LEVELS = 10;
/** Weaker lines would be invisible. */
const FAINTEST = 0.03;

/** Geometry in px. */
export interface Layout {
  width: number;
  height: number;
  row: number;
  /** Lines from `left` to `right`. */
  left: number;
  right: number;
  /** Width of the bars beyond the tokens, at both edges. */
  lane: number;
}

export interface Style {
  /** By index among the shown heads. */
  colours: readonly string[];
  /** Colours of negative and positive values, if values are signed. */
  signs: readonly [string, string] | null;
  /** The value of the strongest line. */
  top: number;
  mode: Mode | "";
  /** The only head that is drawn in full; -1: all. */
  only: number;
}

/** By strength and colour: triples of query, key and offset from the middle of their rows. */
type Lines = number[][];

interface Scroll {
  query: number;
  key: number;
}

export function createLines(canvas: HTMLCanvasElement) {
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  let layout: Layout = { width: 1, height: 1, row: 20, left: 0, right: 1, lane: 0 };
  let style: Style = { colours: [], signs: null, top: 1, mode: "", only: -1 };

  let range: readonly [number, number] = [0, 1];
  /** The size of the faintest line. */
  let least = 0;

  const strength = (value: number): number => place(Math.abs(value), range, style.mode || "sqrt");
  const colours = (): readonly string[] => style.signs ?? style.colours;
  /** Index of a value's colour. */
  const colourOf = (head: number, value: number): number => (style.signs ? Number(value > 0) : head);
  /** Lines of different heads start side by side. */
  const shift = (head: number): number => {
    const heads = style.colours.length;
    const gap = Math.min(1.8, (layout.row - 7) / Math.max(1, heads - 1));
    return heads > 1 ? (head - (heads - 1) / 2) * gap : 0;
  };

  /** Lines of one strength and colour are one stroke; the weakest come first, so that none covers a stronger one. */
  const stroke = (lines: Lines, scroll: Scroll, soft: number): void => {
    const { left, right, row } = layout;
    const bend = (right - left) * 0.42;
    lines.forEach((pairs, place) => {
      const share = (Math.floor(place / colours().length) + 0.5) / LEVELS;
      pen.strokeStyle = colours()[place % colours().length] as string;
      pen.globalAlpha = Math.min(1, soft * (0.1 + 0.9 * share));
      pen.lineWidth = 0.5 + 2.7 * share;
      pen.beginPath();
      for (let i = 0; i < pairs.length; i += 3) {
        const offset = pairs[i + 2] as number;
        const from = ((pairs[i] as number) + 0.5) * row - scroll.query + offset;
        const to = ((pairs[i + 1] as number) + 0.5) * row - scroll.key + offset;
        pen.moveTo(left, from);
        pen.bezierCurveTo(left + bend, from, right - bend, to, right, to);
      }
      pen.stroke();
    });
    pen.globalAlpha = 1;
  };

  const add = (lines: Lines, head: number, value: number, query: number, key: number, offset: number): void => {
    const level = Math.min(LEVELS - 1, Math.floor(strength(value) * LEVELS));
    const at = level * colours().length + colourOf(head, value);
    const line = lines[at];
    if (line) line.push(query, key, offset);
    else lines[at] = [query, key, offset];
  };

  const inView = (index: number, top: number): boolean =>
    (index + 1) * layout.row > top && index * layout.row < top + layout.height;

  const bars = (values: Values, side: Side, scroll: Scroll): void => {
    const { width, row, height, lane } = layout;
    const laneWidth = lane - 6;
    const start = side === "query" ? 0 : width - laneWidth;
    const heads = values.length;
    const slot = laneWidth / Math.max(1, heads);
    const top = scroll[side];
    const tall = row - 5;
    const first = Math.max(0, Math.floor(top / row));
    const last = Math.ceil((top + height) / row);
    const wide = slot > 5 ? slot - 2 : Math.max(1, slot - 0.6);
    pen.fillStyle = "#888";
    pen.globalAlpha = 0.35;
    for (let i = first; i < last; i += 1) {
      // A bar of zero is a thin line; masked or hidden values have none.
      if (values.some((headValues) => headValues && !Number.isNaN(headValues[i] ?? Number.NaN))) {
        pen.fillRect(start, (i + 1) * row - top - 3, laneWidth - 2, 1);
      }
    }
    values.forEach((headValues, head) => {
      if (!headValues) return;
      const x = start + head * slot;
      pen.globalAlpha = style.only < 0 || style.only === head ? 1 : 0.15;
      for (let i = first; i < Math.min(last, headValues.length); i += 1) {
        const value = headValues[i] as number;
        const size = strength(value);
        if (!(size > 0.02)) continue;
        pen.fillStyle = colours()[colourOf(head, value)] as string;
        const bottom = (i + 1) * row - top - 2;
        if (heads === 1) pen.fillRect(x, bottom - tall + 3, size * laneWidth, tall - 4);
        else pen.fillRect(x, bottom - size * tall, wide, size * tall);
      }
    });
    pen.globalAlpha = 1;
  };

  return {
    /** Set the geometry; this clears the canvas. */
    layout(now: Layout): void {
      layout = now;
      const dots = Math.min(2, density());
      [canvas.width, canvas.height] = [Math.round(now.width * dots), Math.round(now.height * dots)];
      canvas.style.width = `${now.width}px`;
      canvas.style.height = `${now.height}px`;
      pen.setTransform(dots, 0, 0, dots, 0, 0);
    },
    /** Set the style of what is drawn next. */
    style(now: Style): void {
      style = now;
      range = [0, now.top];
      least = valueAt(FAINTEST, range, now.mode || "sqrt");
    },
    clear(): void {
      pen.clearRect(0, 0, layout.width, layout.height);
    },
    /** One token: all its lines, and the bars of the other side. */
    look({ side, index, other }: Token, values: Values, scroll: Scroll): void {
      const otherSide = side === "query" ? "key" : "query";
      bars(values, otherSide, scroll);
      const [plain, strong]: [Lines, Lines] = [[], []];
      values.forEach((received, head) => {
        if (!received || (style.only >= 0 && style.only !== head)) return;
        const offset = shift(head);
        for (let i = 0; i < received.length; i += 1) {
          const value = received[i] as number;
          if (!(Math.abs(value) >= least)) continue;
          const [query, key] = side === "query" ? [index, i] : [i, index];
          add(other === i ? strong : plain, head, value, query, key, offset);
        }
      });
      stroke(plain, scroll, other < 0 ? 1 : 0.22);
      stroke(strong, scroll, 1);
    },
    /** Many pairs, drawn faintly, and bars for what keys receive. */
    edges({ shown, received }: Edges, scroll: Scroll): void {
      bars(received, "key", scroll);
      const lines: Lines = [];
      for (const { head, value, query, key } of shown) {
        if ((style.only >= 0 && style.only !== head) || !(Math.abs(value) >= least)) continue;
        if (inView(query, scroll.query) || inView(key, scroll.key)) add(lines, head, value, query, key, shift(head));
      }
      stroke(lines, scroll, 0.75);
    },
  };
}
