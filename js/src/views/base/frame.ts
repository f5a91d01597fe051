/**
 * The frame of every view: toolbar, what leads the picture (chips, the text), the picture under its caption, footer with
 * the readout. A view inside another view has the caption and the picture only; its outer view has the rest.
 */
import type { Readout, ViewContext } from "../../context.ts";
import { assign, h, on, reserve, setChildren, setStyles, setText } from "../../dom.ts";
import type { Resolved } from "../../selection.ts";

export interface FrameParts {
  /** Controls of the toolbar, in the order method, stack, layer, head, unit. */
  controls?: readonly HTMLElement[];
  /** Rows between the toolbar and the picture. */
  lead?: readonly HTMLElement[];
  /** At the right of the caption. */
  legend?: HTMLElement;
  /** Beside the caption's words. */
  tags?: readonly HTMLElement[];
  body: readonly HTMLElement[];
  /** What to try first: it stands in the footer until the first click, in this notebook or page. */
  hint?: string;
  /** Buttons of the footer. */
  actions?: readonly HTMLElement[];
  /** Whether the caption stands among the controls, in place of a line of its own: for a view of one strip. */
  plain?: boolean;
}

export interface Frame {
  /**
   * Show where the view looks; returns the title. If `where` is a function, it also gives the words for what a click
   * may show next, and the caption reserves room for them.
   */
  show(where: string | ((shown: Resolved) => string), title?: string): string;
  readonly readout: Readout;
}

/** Fill `root` with a frame around `body`. */
export function createFrame(ctx: ViewContext, root: HTMLElement, parts: FrameParts): Frame {
  const [title, place, note] = [h("b.title"), h("span.where"), h("span.note")];
  const caption = h("div.caption", title, ...(parts.tags ?? []), place, note, ...(parts.legend ? [parts.legend] : []));
  const [inBar, inBody] = parts.plain ? [[caption], []] : [[], [caption]];
  const body = h("div.body", ...inBody, ...parts.body);
  const isInside = ctx.el !== root;
  const footer = withHint(ctx, root, createReadout(), parts.hint ?? "");
  const notices = createNotices(ctx);
  if (isInside) setChildren(root, caption, ...parts.body);
  else {
    root.classList.add("aw-framed");
    setChildren(
      root,
      h(`div.toolbar${parts.plain ? ".plain" : ""}`, ...inBar, ...(parts.controls ?? []), h("span.end")),
      notices.element,
      ...(parts.lead ?? []).map((row) => h("div.lead", row)),
      body,
      h("div.footer", ...footer.elements, h("span.end", ...(parts.actions ?? []))),
    );
  }
  return {
    readout: isInside ? ctx.readout : footer,
    show(where, fallback) {
      const { height } = ctx.options;
      if (!isInside) setStyles(root, { "--aw-tall": height ? `${height}px` : "auto" });
      // A view of numbers that belong to no text has no source.
      if (ctx.header().sources.length === 0) {
        const own = ctx.options.title || (fallback ?? "");
        setText(title, own);
        if (typeof where === "string") setText(place, where);
        return own;
      }
      const shown = ctx.resolved();
      const { source, notes } = shown;
      const name = ctx.options.title || (fallback ?? source.title);
      setText(title, name);
      const words = (at: Resolved): string => {
        const text = typeof where === "string" ? where : where(at);
        return text && at.source.stack !== "self" ? `${at.source.stack} · ${text}` : text;
      };
      setText(place, words(shown));
      const other = ctx.counterpart();
      const next = [shown, ...(other ? [other] : [])];
      if (name === source.title) reserve(title, ...next.map((at) => at.source.title));
      reserve(place, ...next.map((at) => words({ ...at, layer: at.source.layers.at(-1) ?? at.layer })));
      const said = [source.note, ...notes].filter(Boolean).join(" · ");
      if (setText(note, said)) note.title = said;
      notices.show();
      return name;
    },
  };
}

/** Warnings about the input, whether the kernel answers, and the progress of what it computes. */
function createNotices(ctx: ViewContext): { element: HTMLElement; show(): void } {
  const warning = h("div.warning", { role: "note" });
  const status = h("div.warning.status", { role: "status" });
  const [doing, steps, bar] = [h("span", { role: "status" }), h("span", { "aria-hidden": "true" }), h("progress")];
  const stop = h("button.button", { type: "button" }, "Cancel");
  const work = h("div.row.work", { hidden: "" }, doing, bar, steps, stop);
  on(stop, ctx.signal, { click: () => ctx.tiles.cancel() });
  return {
    element: h("div.notices", work, warning, status),
    show() {
      setText(warning, ctx.source().warning);
      setText(status, ctx.tiles.status().message);
      const job = ctx.tiles.job();
      assign(work, { hidden: !job });
      setText(doing, job ? `${job.text}${job.done === null ? ": waits for the running cell" : ""}` : "");
      assign(bar, { hidden: !job?.total, max: job?.total ?? 1, value: job?.done ?? 0 });
      setText(steps, job?.total ? `${job.done} of ${job.total}` : "");
    },
  };
}

type Footer = Readout & { elements: HTMLElement[] };

/** A readout that says what to try first while nobody points at anything here or in a linked view, until the first click. */
function withHint(ctx: ViewContext, root: HTMLElement, inner: Footer, hint: string): Footer {
  if (!hint) return inner;
  let last = "";
  const isHinting = (): boolean =>
    !ctx.learned.has(hint) && !ctx.cell("pinned") && !ctx.cell("hover") && !root.matches(":hover, :focus-within");
  const show: Footer["show"] = (text, aloud) => {
    last = text;
    if (isHinting()) inner.show(hint, false);
    else inner.show(text, aloud);
  };
  on(root, ctx.signal, {
    click() {
      ctx.learned.add(hint);
      show(last, false);
    },
    pointerenter: () => show(last, false),
    pointerleave: () => show(last, false),
  });
  return { elements: inner.elements, show };
}

/** A line of text, and a polite live region that announces only the last of several quick changes. */
export function createReadout(): Footer {
  const line = h("div.readout", { "aria-hidden": "true" });
  const region = h("div.sr", { role: "status" });
  let timer: ReturnType<typeof setTimeout> | undefined;
  return {
    elements: [line, region],
    show(text, aloud) {
      if (!setText(line, text)) return;
      line.title = text;
      if (!aloud) return;
      clearTimeout(timer);
      timer = setTimeout(() => setText(region, text), 150);
    },
  };
}
