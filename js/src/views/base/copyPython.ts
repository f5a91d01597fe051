/** "Copy as Python": the expression that returns the pinned number, in the names that the reader gave. */

import type { ViewContext } from "../../context.ts";
import { assign, h, on, reserve, setFlag, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { toClipboard } from "./clipboard.ts";

/** The address of a number: the arguments of `expression` in attnwidgets/views/base/expressions.py, with its kind. */
export type NumberAddress = { of: string } & Record<string, unknown>;

/** The twin of `expression` in attnwidgets/views/base/expressions.py. */
export interface Expression {
  code: string;
  /** The names that must be defined before the code runs, or "". */
  note: string;
}

export interface CopyButton {
  /** The button, with its messages. */
  element: HTMLElement;
  /** Whether there is a number to copy; call after every change of the selection. */
  show(): void;
}

const LABEL = "Copy as Python";
const COPIED = "Copied";
const COPIED_MS = 1600;

/**
 * A button that copies the expression of the number at `pinned()`; it is disabled while that is null. A button with a
 * label of its own reports the text it copied.
 */
export function createCopyButton(
  ctx: ViewContext,
  signal: AbortSignal,
  pinned: () => NumberAddress | null = () => pinnedCell(ctx),
  label = LABEL,
  title = "Copy the Python that returns this number",
): CopyButton {
  const button = h("button.button.copy", { type: "button", title }, label);
  const text = h("input.copy-text", { readonly: "", spellcheck: "false", "aria-label": "Python" });
  const note = h("div.copy-note");
  const panel = h("div.copy-told", note, text);
  const region = h("div.sr", { role: "status" });
  const element = h("span.copy-place", button, panel, region);
  const answers = createAnswers(ctx, signal, () => receive());
  let requested: NumberAddress | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  panel.hidden = true;
  button.disabled = true;
  reserve(button, label, COPIED);

  const close = (): void => assign(panel, { hidden: true });
  /** Show a message next to the button, with the text to copy by hand. */
  const tell = (words: string, code: string): void => {
    const view = element.closest(".aw-root") ?? document.body;
    const [box, whole] = [element, view].map((el) => el.getBoundingClientRect()) as [DOMRect, DOMRect];
    setFlag(panel, "data-left", box.left + box.right < whole.left + whole.right);
    assign(panel, { hidden: false });
    assign(text, { value: code });
    setText(note, words);
    setText(region, words);
  };
  const deliver = async ({ code, note: missing }: Expression): Promise<void> => {
    const copied = code !== "" && (await toClipboard(code));
    if (signal.aborted) return;
    // For a claim, its sentence: the first text in quotes.
    const about = missing || (label === LABEL ? "" : code.split("'")[1]);
    if (!copied || about) tell([copied ? COPIED : "Copy this by hand", about].filter(Boolean).join(": "), code);
    else setText(region, `${COPIED}: ${code}`);
    if (!copied) {
      text.select();
      return;
    }
    setText(button, COPIED);
    clearTimeout(timer);
    timer = setTimeout(() => {
      setText(button, label);
      setText(region, "");
    }, COPIED_MS);
  };
  const receive = (): void => {
    if (!requested) return;
    const answer = answers.get<Expression>("expression", requested)?.meta;
    const failure = answers.failure("expression", requested);
    if (!answer && !failure) return;
    const address = requested;
    requested = null;
    if (answer) void deliver(answer);
    else void withoutKernel(address, failure ?? "");
  };
  const withoutKernel = async (address: NumberAddress, why: string): Promise<void> => {
    const code = general(ctx, address);
    if (code) await deliver({ code, note: "no kernel answers: the view is called “view” here" });
    else {
      setText(region, why);
      tell(why, "");
    }
  };

  on(button, signal, {
    click() {
      close();
      requested = pinned();
      if (!requested) return;
      // Names change: the answer of an earlier click does not count.
      answers.retry("expression", ctx.tiles.status().state === "ok");
      receive();
    },
  });
  on(panel, signal, {
    keydown: (event) => event.key === "Escape" && close(),
    focusout: (event) => element.contains(event.relatedTarget as Node | null) || close(),
  });
  return {
    element,
    show() {
      const isOff = !pinned();
      if (button.disabled === isOff) return;
      button.disabled = isOff;
      close();
    },
  };
}

/** The pinned cell of the shown matrix; attributions of a single target have one row. */
export function pinnedCell(ctx: ViewContext): NumberAddress | null {
  const cell = ctx.cell("pinned");
  const { source, layer, head } = ctx.resolved();
  const single = source.kind === "attributions" && ctx.axisOf(source.query).labels.length === 1;
  const query = single ? 0 : (cell?.query ?? -1);
  if (!cell || query < 0 || cell.key < 0) return null;
  return { of: "cell", source: source.id, layer, head, query, key: cell.key };
}

/** The expression of a cell without the kernel, which has the reader's names; "" for another kind of number. */
function general(ctx: ViewContext, { of, source: id, layer, head, query, key }: NumberAddress): string {
  const source = ctx.header().sources.find((source) => source.id === id);
  if (of !== "cell" || !source) return "";
  const text = JSON.stringify;
  const stack = source.stack === "self" ? "" : `, stack=${text(source.stack)}`;
  const unit = source.unit === "token" ? "" : `, unit=${text(source.unit)}`;
  const start = `view.explanation(${text(source.method)}${stack})`;
  if (source.kind === "attributions" && !source.method.endsWith(":layers")) {
    const several = ctx.axisOf(source.query).labels.length > 1;
    return `${start}.value(${key}${several ? `, target=${query}` : ""}${unit})`;
  }
  const named = head === "-" ? "" : `, head=${text(head)}`;
  return `${start}.value(${query}, ${key}, layer=${layer}${named}${unit})`;
}
