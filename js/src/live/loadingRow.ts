/** A model in the page's folder, with the progress of its download: it is loaded when the reader requests it. */
import { assign, createWatch, h, on, setChildren, setFlag, setText } from "../dom.ts";
import type { Answers } from "../wire/answers.ts";
import type { About } from "./session.ts";

const TOPIC = "load";

export interface LoadingRow {
  element: HTMLElement;
  /** Show the progress of the download; returns the description of the model once it has arrived. */
  show(about: About | undefined, name: string): About | null;
}

/** A part of a size in megabytes, as exact as the size is given. */
const megabytes = (bytes: number, of = bytes): string => (bytes / 1e6).toFixed(of < 10e6 ? 1 : 0);

export function createLoadingRow(signal: AbortSignal, answers: Answers, changed: () => void): LoadingRow {
  const load = h("button.button", { type: "button" }, "Compute here");
  const size = h("span");
  const bar = h("progress", { value: "0", "aria-label": "loading the model" });
  const state = h("span", { role: "status" });
  const stop = h("button.button", { type: "button" }, "Stop");
  const again = h("button.button", { type: "button" }, "Try again");
  const element = h("div.live-row", { hidden: "" });
  /** Whether the reader requested the model, and requested it from the start of the part that does not arrive. */
  let [isRequested, isAgain] = [false, false];
  const begin = (): void => {
    answers.retry(TOPIC, true);
    isRequested = true;
    changed();
  };
  on(load, signal, { click: begin });
  on(stop, signal, { click: () => answers.cancel(TOPIC) });
  on(again, signal, {
    click() {
      if (answers.failure(TOPIC) !== undefined) begin();
      else {
        isAgain = true;
        answers.cancel(TOPIC);
      }
    },
  });
  const isOther = createWatch();
  return {
    element,
    show(about, name) {
      const loaded = isRequested ? answers.get<About>(TOPIC)?.meta : undefined;
      const here = [loaded, about].find((news) => news?.state === "here");
      assign(element, { hidden: !about || Boolean(here) });
      if (!about || here) return here ?? null;
      const failure = isRequested ? answers.failure(TOPIC) : undefined;
      const job = answers.job(TOPIC);
      const isStopped = failure === "stopped";
      if (isStopped && isAgain) {
        isAgain = false;
        queueMicrotask(begin);
      }
      const isComing = isRequested && failure === undefined;
      const total = about.bytes as number;
      const done = job?.done ?? 0;
      setText(size, `${name}, ${megabytes(total)} MB`);
      assign(bar, { max: total, value: done });
      const trouble = isComing ? job?.text : isStopped ? "" : failure;
      setText(state, trouble || `Loading the model: ${megabytes(done, total)} of ${megabytes(total)} MB`);
      setFlag(element, "data-wrong", Boolean(trouble));
      const late = trouble ? [again] : [];
      const parts = isComing ? [bar, state, ...late, stop] : trouble ? [state, again] : [load, size];
      if (isOther(isComing, Boolean(trouble))) setChildren(element, ...parts);
      return null;
    },
  };
}
