/** Continuations: greedy, sampled, or by beam search; computed on request, each with its probability. */

import type { ViewContext } from "../../../context.ts";
import { assign, h, on, setChildren, setText, shortLabel } from "../../../dom.ts";
import { percent, tickText } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { SamplingOptions } from "./decoding.ts";

interface ContinuationsAnswer {
  items: { tokens: string[]; logs: number[]; ended: boolean }[];
}

const TOPIC = "continuations";
const WAYS = { greedy: "greedy", sample: "sampled", beam: "beam search" };

export function createContinuations(
  _: ViewContext,
  answers: Answers,
  signal: AbortSignal,
  drawing: () => SamplingOptions,
): { element: HTMLElement; show(offered: boolean): void } {
  const how = h(
    "select.button",
    { "aria-label": "how" },
    ...Object.entries(WAYS).map(([value, name]) => h("option", { value }, name)),
  );
  const number = (name: string, value: string, max: string): HTMLInputElement =>
    h("input.button.small", { type: "number", min: "1", max, value, "aria-label": name });
  const [many, length] = [number("how many", "5", "20"), number("tokens", "20", "200")];
  const write = h("button.button", { type: "button", "data-needs-kernel": "" }, "write");
  const stop = h("button.button", { type: "button" }, "Cancel");
  const several = h("label.field", many, "texts of");
  const [message, note, list] = [h("div.line", { role: "status" }), h("div.line"), h("ol.written")];
  const bar = h("progress", { hidden: "" });
  const element = h(
    "section.predicted",
    { "aria-label": "continuations" },
    h("div.row", how, several, h("label.field", length, "tokens"), write, bar, stop),
    note,
    message,
    list,
  );
  /** The arguments of the last request. */
  let request: Record<string, unknown> | null = null;
  let seed = 0;
  let drawnKey = "";

  const number_ = (field: HTMLInputElement): number =>
    Math.max(1, Math.min(Number(field.max), Math.round(Number(field.value) || 1)));
  const ask = (): void => {
    const { temperature, topK, topP } = drawing();
    const way = how.value === "sample" && temperature === 0 ? "greedy" : how.value;
    const n = way === "greedy" ? 1 : number_(many);
    request = { how: way, n, length: number_(length) };
    if (way === "sample") request = { ...request, temperature, top_k: topK, top_p: topP, seed: seed++ };
    answers.retry(TOPIC);
    show(true);
    // Requested on demand, not on every redraw.
    answers.get(TOPIC, request);
    show(true);
  };
  const words = (): string => {
    const { temperature, topK, topP } = drawing();
    if (how.value !== "sample") return "";
    if (temperature === 0) return "At temperature 0 nothing is sampled.";
    return `Sampled at temperature ${temperature}${topK ? `, top k ${topK}` : ""}${topP < 1 ? `, top p ${topP}` : ""}, as chosen above.`;
  };
  const item = ({ tokens, logs, ended }: ContinuationsAnswer["items"][number]): HTMLElement => {
    const sum = logs.reduce((total, value) => total + value, 0);
    const text = h(
      "bdi.continued",
      ...tokens.map((token, i) =>
        h("span", { title: `${shortLabel(token, 40)}: ${percent(Math.exp(logs[i] as number))}` }, plain(token)),
      ),
    );
    return h("li", text, h("span.value", `p ${tickText(Math.exp(sum))}${ended ? ", ended" : ""}`));
  };
  const show = (offered: boolean): void => {
    if (!offered) return;
    several.hidden = how.value === "greedy";
    setText(note, words());
    const job = request && answers.job(TOPIC);
    const answer = request && !job ? answers.get<ContinuationsAnswer>(TOPIC, request) : undefined;
    stop.hidden = !job;
    assign(bar, { hidden: !job?.total, max: job?.total ?? 1, value: job?.done ?? 0 });
    write.disabled = Boolean(job);
    setText(write, how.value === "sample" && answer ? "sample again" : "write");
    const failure = (request && answers.failure(TOPIC, request)) ?? "";
    const waits =
      job?.done === null
        ? "writing: waits for the running cell"
        : `writing: ${job?.done ?? 0} of ${job?.total ?? "?"} tokens`;
    setText(message, job ? waits : failure);
    const stateKey = JSON.stringify(answer?.meta ?? null);
    if (stateKey === drawnKey || (!answer && !failure)) return;
    drawnKey = stateKey;
    setChildren(list, ...(answer?.meta.items ?? []).map(item));
  };
  on(write, signal, { click: ask });
  on(stop, signal, { click: () => answers.cancel(TOPIC) });
  on(how, signal, { change: () => show(true) });
  return { element, show };
}

/** A token as running text, with its whitespace signs replaced by real whitespace. */
function plain(token: string): string {
  return shortLabel(token.replace(/[␣▁]/gu, " "), 80).replace(/␣/gu, " ");
}
