/** The kinds of answers: their words, parser and Python code; twin of attnwidgets/ask/kinds.py. */
import { quoted, safeText } from "../../dom.ts";
import type { AnswerRecord, AskedQuestion } from "../../wire/questions.ts";
import type { Choices } from "./choices.ts";

/** The first step of the reader, and the form of a typed answer. */
export const HOW: Record<string, { act: string; form: string; code: string }> = {
  head: { act: "Click a head in the view.", form: "layer.head", code: "(layer, head)" },
  layer: { act: "Move the view to a layer.", form: "layer", code: "layer" },
  tokens: { act: "Click tokens in the view, more with Shift.", form: "positions: 3, 5-7", code: "[3, 5]" },
  span: { act: "Drag over the text in the view.", form: "first-last", code: "(start, stop)" },
  cell: { act: "Click a cell of the map.", form: "row, column", code: "(query, key)" },
  order: { act: "Drag into order, or use the arrows.", form: "", code: '["first", "second"]' },
  number: { act: "Type a number.", form: "number", code: "0.5" },
  choice: { act: "Choose.", form: "", code: '"…"' },
  text: { act: "Write your answer.", form: "", code: '"…"' },
};

const NAMED = 12;
/** As in the Python side of the question, which refuses longer texts. */
export const MOST_CHARACTERS = 20_000;

const isNested = (value: unknown): value is number[][] => Array.isArray(value) && Array.isArray(value[0]);
const nameOf = (labels: readonly string[], position: number): string =>
  labels[position] === undefined ? `token ${position}` : quoted(labels, position, 0);

/** An answer in words, which can be shown as they are. */
export function answerText({ kind, value, unit }: AnswerRecord, choices: Choices): string {
  const { base, queries, keys } = choices;
  const longer = queries.length >= keys.length ? queries : keys;
  if (kind === "head") {
    const heads = isNested(value) ? value : [value as number[]];
    return `head${heads.length > 1 ? "s" : ""} ${heads.map((head) => head.map((n) => n + base).join(".")).join(", ")}`;
  }
  if (kind === "layer") {
    const layers = [value].flat() as number[];
    return `layer${layers.length > 1 ? "s" : ""} ${layers.map((n) => n + base).join(", ")}`;
  }
  if (kind === "cell") {
    const [query = 0, key = 0] = value as number[];
    return `${nameOf(queries, query)} → ${nameOf(keys, key)}`;
  }
  if (kind === "tokens" || kind === "span") {
    const given = value as number[];
    const [start = 0, stop = 0] = given;
    const all = kind === "span" ? Array.from({ length: stop - start }, (_, i) => start + i) : given;
    const more = all.length > NAMED ? ` and ${all.length - NAMED} more` : "";
    return all.length
      ? all
          .slice(0, NAMED)
          .map((position) => nameOf(longer, position))
          .join(" ") + more
      : "no token";
  }
  if (kind === "number") return safeText(`${value}${unit ? ` ${unit}` : ""}`);
  if (kind === "order") return safeText((value as unknown[]).map((item) => [item].flat().join(" = ")).join(" > "));
  if (kind === "choice") return safeText([value].flat().join(", ")) || "none of them";
  return safeText(String(value).replace(/\s+/g, " ").trim());
}

/** An answer as Python writes it. */
export function codeOf(kind: string, value: unknown): string {
  const isPair = Array.isArray(value) && !isNested(value) && ["head", "cell", "span"].includes(kind);
  const inside = (item: unknown): string =>
    Array.isArray(item) ? `[${item.map(inside).join(", ")}]` : JSON.stringify(item);
  return isPair ? `(${value.join(", ")})` : inside(value);
}

/** The answer in a typed line; a string describes an error, null: not answered yet. */
export function typed(question: AskedQuestion, line: string, choices: Choices): { value: unknown } | string | null {
  const { kind, unit } = question.record;
  const text = line.trim();
  if (!text) return null;
  if (kind === "number") {
    const digits = unit && text.toLowerCase().endsWith(unit.toLowerCase()) ? text.slice(0, -unit.length).trim() : text;
    const value = Number(digits.replace(/^([-−+]?\d*),(\d+)$/, "$1.$2").replace("−", "-"));
    if (!digits || !Number.isFinite(value)) return "This is not a number.";
    const { least } = question;
    if (least !== null && value < least) return safeText(`The answer is at least ${least}${unit ? ` ${unit}` : ""}.`);
    return { value: Number(value.toPrecision(6)) };
  }
  const numbers = (text.match(/\d+/g) ?? []).map(Number);
  const { base, layers, heads, queries, keys } = choices;
  const size = Math.max(queries.length, keys.length);
  const within = (name: string, number: number, allowed: readonly number[]): string =>
    allowed.length === 0 || allowed.includes(number)
      ? ""
      : `Out of range: ${name} ${number + base}. Valid: ${(allowed[0] ?? 0) + base} to ${(allowed.at(-1) ?? 0) + base}.`;
  const below = (number: number, length: number): string =>
    length === 0 || number < length ? "" : `Out of range: position ${number}. Valid: 0 to ${length - 1}.`;
  const [first, second] = numbers;
  if (first === undefined || /[^\d.,;:()[\]\s–-]/.test(text)) return `Type ${HOW[kind]?.form ?? "an answer"}.`;
  if (kind === "layer") {
    const layer = first - base;
    return within("layer", layer, layers) || { value: layer };
  }
  if (kind === "tokens") {
    const all = text.split(/[^\d–-]+/).flatMap((part) => {
      const [from, to = from] = part.split(/[–-]/).filter(Boolean).map(Number);
      if (from === undefined || to === undefined || to - from > 10_000) return [];
      return Array.from({ length: Math.max(0, to - from) + 1 }, (_, i) => from + i);
    });
    const value = [...new Set(all)].sort((a, b) => a - b);
    return below(value.at(-1) ?? 0, size) || { value };
  }
  if (second === undefined || numbers.length > 2) return `Type ${HOW[kind]?.form ?? "two numbers"}.`;
  if (kind === "head") {
    const [layer, head] = [first - base, second - base];
    return within("layer", layer, layers) || within("head", head, heads) || { value: [layer, head] };
  }
  if (kind === "cell") return below(first, queries.length) || below(second, keys.length) || { value: [first, second] };
  if (second < first) return "The last position comes before the first.";
  return below(second, size) || { value: [first, second + 1] };
}
