/** The differences between two texts in words: only what the numbers show. */

import { h, shortLabel } from "../../../dom.ts";
import { printed } from "../../../numbers.ts";
import { plural } from "../../base/navigation.ts";
import type { Columns, Rows } from "./texts.ts";

/** A number with its sign, to two or three digits, and at most `decimals` decimals. */
export function signedText(value: number, decimals = 3): string {
  if (!value) return "0";
  const size = Math.abs(value);
  const text =
    size >= 9.995
      ? size.toFixed(1)
      : size >= 0.0995
        ? size.toFixed(2)
        : size >= 0.5 * 10 ** -decimals
          ? size.toFixed(decimals)
          : decimals > 2
            ? size.toExponential(0)
            : "";
  if (!text) return "≈ 0";
  return (value < 0 ? "−" : "+") + text;
}

/** A number in a cell, to the decimals that the largest number has room for. */
export function cellText(value: number, top: number): string {
  if (Number.isNaN(value)) return "–";
  const decimals = top >= 10 ? 1 : top >= 0.05 ? 2 : 3;
  const text = Math.abs(value).toFixed(decimals);
  if (value && !Number(text)) return "≈ 0";
  return (value < 0 ? "−" : "") + text;
}

const bare = (label: string): string => `\u2068“${shortLabel(label.replace(/^[␣▁]/, "") || label, 24)}”\u2069`;

/** “keys” for “key”; a column of a single text names only its element. */
export function columnWords(
  { labels, same, elements }: Columns,
  column: number,
  names: readonly [string, string],
): string {
  const [first, second] = labels.map((side) => bare(side[column] ?? ""));
  const [has, hasOther] = elements[column] ?? [-1, -1];
  if (has < 0) return `${second} (only in ${names[1]})`;
  if (hasOther < 0) return `${first} (only in ${names[0]})`;
  return same[column] ? (first as string) : `${first} − ${second}`;
}

/** The differences between the texts, as the beginning of a sentence. */
function changeWords(columns: Columns, names: readonly [string, string]): string {
  const differing = columns.same.flatMap((same, i) => (same ? [] : [i]));
  const [only] = differing;
  if (only === undefined) return "What differs outside the text";
  if (differing.length !== 1) return `What differs in ${differing.length} places`;
  const [has, hasOther] = columns.elements[only] ?? [-1, -1];
  if (has < 0) return `${bare(columns.labels[1][only] ?? "")}, only in ${names[1]},`;
  if (hasOther < 0) return `${bare(columns.labels[0][only] ?? "")}, only in ${names[0]},`;
  return `${bare(columns.labels[0][only] ?? "")} for ${bare(columns.labels[1][only] ?? "")}`;
}

type Piece = string | HTMLElement;
const strong = (text: string): HTMLElement => h("b", text);

/** The column with the largest difference; -1: none differs. */
function largest(difference: Float32Array): number {
  let best = -1;
  for (let i = 0; i < difference.length; i += 1) {
    if (Math.abs(difference[i] ?? 0) > Math.abs(difference[best] ?? 0)) best = i;
  }
  return best;
}

const sum = (values: Float32Array): number => values.reduce((total, value) => total + value, 0);

/** How attributions differ: the target, the share that the tokens have, and the share that no token has. */
export function attributionSentence(
  columns: Columns,
  rows: Rows,
  rests: readonly [number, number] | null,
  target: string,
  unit: string,
  names: readonly [string, string],
): Piece[] {
  const inTokens = sum(rows[2]);
  const top = largest(rows[2]);
  if (top < 0 && !(rests && rests[0] - rests[1])) return ["Nothing differs."];
  const most = rows[2][top] ?? 0;
  const where = top < 0 ? "" : columnWords(columns, top, names);
  const isMost = most * inTokens > 0 && Math.abs(most) > Math.abs(inTokens) / 2;
  const largestPart: Piece[] = [
    isMost ? ", most of that in " : ", the largest difference in ",
    strong(where),
    ` (${signedText(most)}).`,
  ];
  const units = plural(unit);
  const begin = changeWords(columns, names);
  if (!rests) return [`${begin}: the ${units} sum to `, strong(signedText(inTokens)), " more", ...largestPart];
  const rest = rests[0] - rests[1];
  const total = inTokens + rest;
  const isWhole = Math.abs(rest) <= 1e-3 * Math.max(Math.abs(total), Math.abs(inTokens));
  const pieces: Piece[] = [`${begin} moves ${target} by `, strong(signedText(total)), ": "];
  if (isWhole) return [...pieces, `all of it lies in ${units}`, ...largestPart];
  pieces.push(strong(signedText(inTokens)), ` of it lies in ${units}`, ...largestPart);
  const larger = Math.abs(rest) > Math.abs(inTokens);
  pieces.push(larger ? " The larger part, " : " The rest, ", strong(signedText(rest)), `, lies in no ${unit}.`);
  return pieces;
}

/** How a row of a map differs. */
export function rowSentence(
  columns: Columns,
  rows: Rows,
  query: string,
  shares: boolean,
  names: readonly [string, string],
): Piece[] {
  const top = largest(rows[2]);
  if (top < 0) return [`The row of ${query} is the same in both.`];
  const most: Piece[] = [strong(columnWords(columns, top, names)), ` (${signedText(rows[2][top] ?? 0)})`];
  if (!shares) return [`In the row of ${query}, the largest difference is at `, ...most, "."];
  const size = (keep: (i: number) => boolean): number =>
    rows[2].reduce((total, value, i) => total + (keep(i) ? Math.abs(value) / 2 : 0), 0);
  const moved = size(() => true);
  const alone = size((i) => Boolean(columns.elements[i]?.includes(-1)));
  const share = (value: number): string => `${(100 * value).toFixed(1)} %`;
  const pieces: Piece[] = [strong(share(moved)), ` of what ${query} reads moves, most at `, ...most];
  if (alone > 0) pieces.push(`; ${share(alone)} is on what only one text has`);
  return [...pieces, "."];
}

/** The pinned or hovered column: its difference, and both values. */
export function readout(columns: Columns, rows: Rows, column: number, names: readonly [string, string]): string {
  const [first, second, difference] = rows.map((row) => row[column] ?? Number.NaN) as [number, number, number];
  const [has, hasOther] = columns.elements[column] ?? [-1, -1];
  const value = (side: number, number: number): string =>
    `${names[side as 0 | 1]} ${side ? (hasOther < 0 ? "has none" : printed(number, true)) : has < 0 ? "has none" : printed(number, true)}`;
  const sign = difference > 0 ? "+" : "";
  return `${columnWords(columns, column, names)} ${sign}${printed(difference, true)} · ${value(0, first)} · ${value(1, second)}`;
}
