/** A line that says what is being fetched or computed. */
import { h, setText } from "../../dom.ts";
import type { Answers } from "../../wire/answers.ts";

/** A line for a request in progress, or for the reason why it failed. */
export function createFetchStatus(answers: () => Answers): {
  element: HTMLElement;
  show(topic: string, why?: string): void;
} {
  const [text, stop] = [h("span"), h("button.button", { type: "button" }, "Cancel")];
  const element = h("div.row.work", { role: "status" }, text, stop);
  let topic = "";
  element.hidden = true;
  stop.addEventListener("click", () => answers().cancel(topic));
  return {
    element,
    show(current, why) {
      topic = current;
      const job = answers().job(current);
      element.hidden = !job && !why;
      stop.hidden = !job?.text;
      const steps = job?.total ? ` ${job.done} of ${job.total}` : "";
      const waits = job?.text && job.done === null ? ": waits for the running cell" : "";
      setText(text, job ? `${job.text || "fetching"}${waits}${steps}` : (why ?? ""));
    },
  };
}
