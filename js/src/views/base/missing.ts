/** The placeholder of a missing picture: its skeleton while it is on the way, otherwise the reason. */
import type { ViewContext } from "../../context.ts";
import { assign, atEnd, h, on, onResize, setChildren, setFlag, setSizes, setText } from "../../dom.ts";
import type { Answers } from "../../wire/answers.ts";
import { ANNOUNCED_AFTER, type Job } from "../../wire/jobs.ts";
import { createBlank } from "./blank.ts";
import { addressWords } from "./navigation.ts";

/** Why the picture of a view is missing. */
export interface Missing {
  /** On its way; nothing to show; or failed. */
  kind: "awaited" | "none" | "failed";
  /** The data on the way, or the reason for a failure. */
  words: string;
  /** Advice for the reader. */
  advice?: string;
  /** The job that computes it, null before it takes longer than a moment. */
  job?: Job | null | undefined;
  cancel?(): void;
  retry?: (() => void) | undefined;
  /** Whether the previous picture would be wrong, even dimmed. */
  other?: boolean;
  /** Whether the picture is complete and something next to it is missing. */
  part?: boolean;
}

/** The state of a missing answer; `subject` names its content. */
export function missingAnswer(
  answers: Answers,
  topic: string,
  args: Record<string, unknown>,
  subject: string,
): Missing {
  const why = answers.failure(topic, args);
  if (why) return failed(subject, why, () => answers.again(topic));
  const job = answers.job(topic);
  return { kind: "awaited", words: `waiting for ${subject}`, job, cancel: () => answers.cancel(topic) };
}

/** The state after a failed request, with the reason. */
export function failed(subject: string, why: string, retry?: () => void): Missing {
  return { kind: "failed", words: `No ${subject}`, advice: why, retry };
}

/** The selected matrix is missing. */
export function missingTile(ctx: ViewContext, { source, layer, head } = ctx.resolved()): Missing {
  const { state, message } = ctx.tiles.status();
  const where = addressWords(ctx, layer, head);
  const why = ctx.tiles.failure(source.id, layer, head);
  const lost = why || (state === "no-kernel" ? message : "");
  if (lost) return { kind: "failed", words: `${where} is missing`, advice: lost };
  const job = ctx.tiles.job();
  return { kind: "awaited", words: `loading ${where}`, ...(job && { job, cancel: () => ctx.tiles.cancel() }) };
}

/**
 * The outline of a picture: cells, rows of names and bars, or a chart; or the view's own outline, over which the words
 * lie.
 */
export type Skeleton = "cells" | "rows" | "chart" | "own";

/** The progress of a computation, in words with a total, and a button that stops it. */
export function createProgress(signal: AbortSignal): {
  element: HTMLElement;
  show(missing: Missing | null): void;
} {
  const [doing, bar, act] = [
    h("span", { role: "status" }),
    h("progress", { value: "0" }),
    h("button.button", { type: "button" }),
  ];
  const steps = h("span", { "aria-hidden": "true" });
  const element = h("div.row.work", { hidden: "" }, doing, bar, steps, act);
  let click: (() => void) | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  atEnd(signal, () => clearTimeout(timer));
  on(act, signal, { click: () => click?.() });
  return {
    element,
    show(missing) {
      const job = missing?.job;
      // Answers that arrive at once need no words.
      const isSoon = missing?.kind === "awaited" && !missing.job;
      if (isSoon && element.hidden && missing.job !== null) {
        timer ??= setTimeout(() => assign(element, { hidden: false }), ANNOUNCED_AFTER);
      } else {
        clearTimeout(timer);
        timer = undefined;
        assign(element, { hidden: !missing || (isSoon && missing.job === null) });
      }
      click = missing?.retry ?? (job?.text ? missing?.cancel : undefined);
      const waits = job?.text && job.done === null ? ": waits for the running cell" : "";
      const words = missing && (job?.text || [missing.words, missing.advice].filter(Boolean).join(": "));
      if (words && setText(doing, `${words}${waits}`)) doing.title = doing.textContent;
      assign(bar, { hidden: !job?.total, max: job?.total ?? 1, value: job?.done ?? 0 });
      assign(steps, { hidden: !job?.total });
      setText(steps, job?.total ? `${job.done ?? 0} of ${job.total}` : "");
      assign(act, { hidden: !click });
      setText(act, missing?.retry ? "Retry" : "Cancel");
    },
  };
}

/** A layer over the body of a view, below its caption. */
export function createVeil(
  ctx: ViewContext,
  caption: HTMLElement,
  skeleton: Skeleton,
): { element: HTMLElement; show(missing: Missing | null, isOver: boolean): void } {
  const progress = createProgress(ctx.signal);
  const element = h("div.veil", { hidden: "" });
  let [drawnKey, isMeasured] = ["", false];
  const measure = (): void => setSizes(element, { top: caption.offsetTop + caption.offsetHeight });
  const blankOf = ({ kind, words, advice, retry }: Missing): HTMLElement =>
    createBlank(ctx.signal, {
      words,
      role: kind === "none" ? "note" : "alert",
      ...(advice && { advice }),
      ...(retry && { retry }),
    });
  return {
    element,
    show(missing, isOver) {
      assign(element, { hidden: !missing });
      const host = element.parentElement;
      if (!missing) {
        delete host?.dataset.missing;
        progress.show(null);
        drawnKey = "";
        return;
      }
      if (!isMeasured && caption.isConnected) onResize(caption, ctx.signal, measure);
      isMeasured ||= caption.isConnected;
      const isAwaited = missing.kind === "awaited";
      const isWithin = isOver || (isAwaited && skeleton === "own");
      if (host) host.dataset.missing = isWithin ? "over" : "instead";
      element.dataset.skeleton = isWithin ? "own" : skeleton;
      setFlag(element, "data-awaited", isAwaited);
      progress.show(isAwaited ? missing : null);
      const { kind, words, advice, retry } = missing;
      const key = JSON.stringify([kind, isAwaited || [words, advice, Boolean(retry)]]);
      if (key === drawnKey) return;
      drawnKey = key;
      setChildren(element, isAwaited ? progress.element : blankOf(missing));
    },
  };
}
