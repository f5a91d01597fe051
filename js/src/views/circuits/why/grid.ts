/** A score by groups of components: rows are parts of the query, columns parts of the key, sums are at the margins. */
import { setAttributes, svg } from "../../charts/svg.ts";
import { decimal } from "../words.ts";

const [NAMES, SUMS, ROW] = [104, 52, 20];
/** Of a slanted name: px a letter, in height, and below it. */
const [LETTER, BELOW] = [5, 18];
/** Sizes of a column in px. */
const [NARROWEST, WIDEST] = [34, 46];
/** Share of the largest cell from which a cell has its number. */
const WRITTEN = 0.12;

export function drawGrid(
  picture: SVGElement,
  names: readonly string[],
  values: readonly (readonly number[])[],
  width: number,
): void {
  const count = names.length;
  const head = BELOW + LETTER * Math.max(0, ...names.map((name) => name.length));
  const cell = Math.max(NARROWEST, Math.min(WIDEST, (width - NAMES - SUMS) / Math.max(1, count)));
  const [right, bottom] = [NAMES + cell * count, head + ROW * count];
  const top = Math.max(...values.flat().map(Math.abs), 1e-12);
  const text = (x: number, y: number, words: string, attributes: Record<string, string> = {}): SVGElement =>
    svg("text", { x, y, ...attributes }, words);
  const sum = (row: readonly number[]): number => row.reduce((total, value) => total + value, 0);
  const drawn: SVGElement[] = [];
  names.forEach((name, i) => {
    const [x, y] = [NAMES + cell * (i + 0.5) + 4, head - 6];
    drawn.push(
      text(x, y, name, { transform: `rotate(-42 ${x} ${y})` }),
      text(NAMES - 8, head + ROW * i + 14, name, { "text-anchor": "end" }),
      text(right + 8, head + ROW * i + 14, decimal(sum(values[i] ?? []), 2, true), { class: "aw-why-sum" }),
      text(NAMES + cell * (i + 0.5), bottom + 16, decimal(sum(values.map((row) => row[i] ?? 0)), 1, true), {
        class: "aw-why-sum",
        "text-anchor": "middle",
      }),
    );
  });
  values.forEach((row, i) => {
    row.forEach((value, j) => {
      const [x, y] = [NAMES + cell * j, head + ROW * i];
      const share = Math.abs(value) / top;
      const box = svg("rect", {
        x: x + 0.5,
        y: y + 0.5,
        width: cell - 1,
        height: ROW - 1,
        rx: 2,
        "data-of": value < 0 ? "against" : "for",
        "fill-opacity": (0.75 * share).toFixed(3),
      });
      box.append(svg("title", {}, `${names[i]} × ${names[j]}: ${decimal(value, 3, true)}`));
      drawn.push(box);
      if (share >= WRITTEN)
        drawn.push(
          text(x + cell / 2, y + 14, decimal(value, 1, true), { "text-anchor": "middle", class: "aw-why-number" }),
        );
    });
  });
  setAttributes(picture, { width: right + SUMS, height: bottom + 20 });
  picture.replaceChildren(...drawn);
  picture.ariaLabel = `by groups of components: ${names
    .map(
      (name, i) =>
        `${name} asks ${decimal(sum(values[i] ?? []), 2, true)}, offers ${decimal(sum(values.map((row) => row[i] ?? 0)), 2, true)}`,
    )
    .join("; ")}`;
}
