/**
 * A weight of a kernel as a table of steps: the value that the key wrote, and how much of it each later token leaves.
 */
import { h, setChildren, setFlag, setText } from "../../../dom.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { QueryAddress, Row } from "./row.ts";

/** The twin of `Step` in chains.py: value = before × factor − erased. */
interface ChainStep {
  first: number;
  last: number;
  factor: number;
  erased: number;
  value: number;
}

/** The twin of `ShownChain.described`. */
export interface ShownChain {
  formula: string;
  start: number;
  skip: number;
  total: number;
  weight: number;
  steps: ChainStep[];
  erases: boolean;
  words: string;
  note: string;
}

/** The steps of a weight of a row of a kernel, if they have arrived; otherwise they are requested. */
export function chainAt(
  answers: Answers,
  address: QueryAddress,
  { kernel }: Row,
  key: number,
): ShownChain | string | undefined {
  const { stack, layer, head, query } = address;
  const channel = kernel?.channel ?? null;
  const args = { stack, layer, head, query, key, ...(channel === null ? {} : { channel }) };
  return answers.get<ShownChain>("kernel_chain", args)?.meta ?? answers.failure("kernel_chain", args);
}

export interface ChainTable {
  element: HTMLElement;
  /** Show a chain; null leaves the earlier chain, dimmed. */
  draw(chain: ShownChain | null, name: (token: number) => string, key: number): void;
}

/** A number with three digits, as the sentence and the figure have it: the twin of `number` in chain_words.py. */
function short(value: number): string {
  const size = Math.abs(Number(value.toPrecision(3)));
  const isPlain = size === 0 || (size >= 1e-4 && size < 1e5);
  return (value < 0 ? "−" : "") + (isPlain ? String(size) : size.toExponential().replace("+", ""));
}

const percent = (share: number): string => `${(100 * Math.max(0, Math.min(1, share || 0))).toFixed(2)}%`;

export function createChain(): ChainTable {
  const table = h("table.neuron-steps-table");
  const note = h("p.neuron-note.fine");
  const element = h("div.neuron-chain", { tabindex: "0", role: "group" }, table, note);
  let [shown, drawn]: [ShownChain | null, number] = [null, -1];

  const line = (name: string, bar: Node | string, factor: string, erased: string, value: number): HTMLElement => {
    const cells = shown?.erases ? [h("td", erased)] : [];
    return h(
      "tr",
      h("th", { scope: "row" }, h("bdi", name)),
      h("td", bar),
      h("td", factor),
      ...cells,
      h("td", short(value)),
    );
  };
  /** The remaining value before a step, and next to it the erased part. */
  const bar = (step: ChainStep, before: number): HTMLElement => {
    const lost = before ? step.erased / before : 0;
    const [remaining, erased] = [h("i"), h("i.neuron-erased")];
    remaining.style.width = percent(step.factor - Math.max(0, lost));
    erased.style.width = percent(Math.min(lost, step.factor));
    return h("span.neuron-kept", { "aria-hidden": "true" }, remaining, erased);
  };

  return {
    element,
    draw(chain, name, key) {
      setFlag(element, "data-old", chain === null);
      if (!chain || (chain === shown && key === drawn)) return;
      [shown, drawn] = [chain, key];
      const names = ["token", "keeps", "", ...(chain.erases ? ["erases"] : []), "reads"];
      const head = h("thead", h("tr", ...names.map((text) => h("th", { scope: "col" }, text))));
      const rows = [line(`${name(key)} writes`, "", chain.formula, "", chain.start)];
      let before = chain.start;
      for (const step of chain.steps) {
        const count = step.last - step.first + 1;
        const label = count === 1 ? name(step.first) : `${count} tokens, ${name(step.first)} to ${name(step.last)}`;
        const erased = step.erased ? `${step.erased < 0 ? "+" : "−"} ${short(Math.abs(step.erased))}` : "";
        rows.push(line(label, bar(step, before), `× ${short(step.factor)}`, erased, step.value));
        before = step.value;
      }
      if (chain.skip) rows.push(line("skip connection", "", `+ ${short(chain.skip)}`, "", before + chain.skip));
      if (chain.total !== 1) rows.push(line("total of the row", "", `/ ${short(chain.total)}`, "", chain.weight));
      (rows.at(-1) as HTMLElement).dataset.last = "";
      setChildren(table, head, h("tbody", ...rows));
      setText(note, chain.note);
      note.hidden = !chain.note;
    },
  };
}
