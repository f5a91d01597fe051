/**
 * Which participant sees which items, in which order: the twin of attnwidgets/people/responses.py, which explains it.
 */

const CODE_LENGTH = 8;
const ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789";
/** Where the two halves of a digest begin. */
const [FIRST, SECOND] = [0x811c9dc5, 0x1b873593];

export interface Assignment {
  shift: number;
  side: number;
  mirrored: number;
  row: number;
}

/** An item for a participant; `side` 1: the first of a pair is shown second. */
export interface Turn {
  item: number;
  cell: number;
  side: number;
}

/** A hash of 32 bits. */
export function hashed(text: string, start: number = FIRST): number {
  let value = start;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

/** 16 hexadecimal digits that change with the text. */
export const digest = (text: string): string =>
  [FIRST, SECOND].map((start) => hashed(text, start).toString(16).padStart(8, "0")).join("");

/** The assignment of a code in the study with this hash (`salt`). */
export function assignmentOf(code: string, salt: string, items: number, cells: number): Assignment {
  const number = hashed(`${salt}:${code}`) % (4 * items * cells);
  const rest = Math.floor(number / cells);
  return { shift: number % cells, side: rest % 2, mirrored: (rest >> 1) % 2, row: rest >> 2 };
}

/** The items of a person in their order. */
export function turnsOf(assignment: Assignment, items: number, cells: number, between: boolean): Turn[] {
  const order = Array.from({ length: items }, (_, k) => {
    const step = k % 2 ? (k + 1) / 2 : (items - k / 2) % items;
    return (step + assignment.row) % items;
  });
  if (assignment.mirrored) order.reverse();
  return order.map((item) => ({
    item,
    cell: between ? assignment.shift : (item + assignment.shift) % cells,
    side: (Math.floor(item / cells) + assignment.side) % 2,
  }));
}

/** The number of items before each attention check. */
export const checkPositions = (items: number, checks: number): number[] =>
  Array.from({ length: checks }, (_, j) => Math.round(((j + 1) * items) / (checks + 1)));

/** A random code: it reveals nothing about the participant. */
export function randomCode(): string {
  const numbers = crypto.getRandomValues(new Uint32Array(CODE_LENGTH));
  return Array.from(numbers, (number) => ALPHABET[number % ALPHABET.length]).join("");
}
