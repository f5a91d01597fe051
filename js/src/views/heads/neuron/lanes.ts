/** A query and a key, dimension by dimension: q, k, their products and the running sum, in lanes. */
import { h, setText } from "../../../dom.ts";
import { tickText } from "../../../numbers.ts";
import { type Ink, largest, sharpContext } from "./ink.ts";
import { namesOf, PRODUCTS, type Row, type Step, vectorOf } from "./row.ts";

const LANE = 64;
const GAP = 12;
const NAMES = ["q", "k", PRODUCTS.lane, "sum"];
const PRODUCT = 2;
/** Width in px left of the numbers. */
export const ROOM = 46;
const HEIGHT = NAMES.length * (LANE + GAP) - GAP;

export interface Lanes {
  plot: HTMLElement;
  /** Draw the lanes of a step; `grown` (0 to 1) is the progress of the last lane. */
  draw(row: Row, step: Step, key: number, width: number, ink: Ink, grown: number): void;
  /** The dimension at a position on the page, or -1. */
  numberAt(event: MouseEvent): number;
  /** Mark a dimension; -1: none. */
  point(i: number): void;
}

/** Its elements, and the state that they show. */
interface LanesState {
  /** px of the names. */
  room: number;
}

export function createLanes(): Lanes {
  const canvas = h("canvas.neuron-lanes");
  const cursor = h("div.neuron-cursor");
  const [ranges, names] = [NAMES.map(() => h("small")), NAMES.map((name) => h("span", name))];
  const sides = names.map((name, i) => {
    const side = h("div.neuron-lane", name, ranges[i] as HTMLElement);
    side.style.top = `${i * (LANE + GAP)}px`;
    return side;
  });
  const role = { tabindex: "0", role: "application", "aria-roledescription": "query and key, number by number" };
  const plot = h("div.neuron-pair", role, canvas, cursor, ...sides);
  plot.style.height = `${HEIGHT}px`;
  let [count, room] = [0, 1];

  const state: LanesState = {
    room,
  };
  cursor.hidden = true;

  return {
    plot,
    draw(row, step, key, width, ink, grown) {
      const pen = sharpContext(canvas, width, HEIGHT);
      if (!pen) return;
      [count, state.room] = [row.dim, Math.max(1, width - ROOM)];
      setText(names[PRODUCT] as HTMLElement, namesOf(row).lane);
      const k = vectorOf(row, "vectors", key);
      const products = vectorOf(row, "product", key);
      let sum = 0;
      const sums = products.map((value) => {
        sum += value;
        return sum;
      });
      const reached = step === "vectors" ? 2 : step === "product" ? 3 : 4;
      // q and k share a scale for comparison; products have a scale, and their sums another.
      const top = Math.max(largest(row.q), largest(k));
      const lanes = [row.q, k, products, sums];
      for (const [i, values] of lanes.entries()) {
        const most = i < 2 ? top : largest(values);
        const isHere = i < reached;
        sides[i]?.toggleAttribute("data-later", !isHere);
        setText(ranges[i] as HTMLElement, isHere ? `±${tickText(most)}` : "");
        const middle = i * (LANE + GAP) + LANE / 2;
        pen.fillStyle = ink.line;
        pen.fillRect(ROOM, middle - 0.5, state.room, 1);
        if (!isHere || most === 0) continue;
        const last = i === reached - 1 ? grown : 1;
        if (i === 3) line(state, pen, values, middle, most, last, ink);
        else bars(state, pen, values, middle, (LANE / 2) * (i === PRODUCT ? last : 1), most, ink);
      }
    },
    numberAt(event) {
      const i = Math.floor(((event.clientX - plot.getBoundingClientRect().left - ROOM) / state.room) * count);
      return i >= 0 && i < count ? i : -1;
    },
    point(i) {
      cursor.hidden = i < 0;
      cursor.style.left = `${ROOM + (i * state.room) / Math.max(1, count)}px`;
      cursor.style.width = `${Math.max(1, state.room / Math.max(1, count))}px`;
    },
  };
}

function bars(
  state: LanesState,
  pen: CanvasRenderingContext2D,
  values: Float32Array,
  middle: number,
  height: number,
  most: number,
  ink: Ink,
): void {
  const cell = state.room / values.length;
  const inset = cell > 4 ? 1 : 0;
  for (const [i, value] of values.entries()) {
    const long = (value / most) * height;
    pen.fillStyle = value < 0 ? ink.negative : ink.positive;
    pen.fillRect(ROOM + i * cell, middle - Math.max(0, long), Math.max(0.5, cell - inset), Math.abs(long));
  }
}

function line(
  state: LanesState,
  pen: CanvasRenderingContext2D,
  sums: Float32Array,
  middle: number,
  most: number,
  share: number,
  ink: Ink,
): void {
  const { room } = state;
  const shown = Math.round(sums.length * share);
  const y = (value: number): number => middle - (value / most) * (LANE / 2 - 2);
  const cell = room / sums.length;
  pen.strokeStyle = ink.text;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(ROOM, middle);
  for (let i = 0; i < shown; i += 1) {
    pen.lineTo(ROOM + i * cell, y(sums[i] as number));
    pen.lineTo(ROOM + (i + 1) * cell, y(sums[i] as number));
  }
  pen.stroke();
  const end = sums[shown - 1] ?? 0;
  pen.fillStyle = end < 0 ? ink.negative : ink.positive;
  pen.beginPath();
  pen.arc(Math.min(ROOM + shown * cell, ROOM + room - 4), y(end), 4, 0, 7);
  pen.fill();
}
