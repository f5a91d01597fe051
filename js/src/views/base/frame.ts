/**
 * The frame of every view: toolbar, lead (chips, the text), the picture under its caption, footer with the readout. A
 * nested view has only the caption and the picture; its outer view has the rest.
 */
import type { Readout, ViewContext } from "../../context.ts";
import { h, on, onResize, reserve, setChildren, setFlag, setStyles, setText } from "../../dom.ts";
import type { Resolved } from "../../selection.ts";
import { createProgress, createVeil, type Missing, type Skeleton } from "./missing.ts";
import { fitToolbar } from "./toolbar.ts";
import { only } from "./view.ts";

export interface FrameParts {
  /** Controls of the toolbar, in the order method, stack, layer, head, unit. */
  controls?: readonly HTMLElement[];
  /** Rows between the toolbar and the picture. */
  lead?: readonly HTMLElement[];
  /** At the right of the caption. */
  legend?: HTMLElement;
  /** Next to the caption's words. */
  tags?: readonly HTMLElement[];
  body: readonly HTMLElement[];
  /** Components that lay out the body of a framed view (styles/components.css): `.column` by default. */
  layout?: string;
  /** The outline of the picture while it is on its way; rows by default. */
  skeleton?: Skeleton;
  /**
   * A first action to try, shown in the footer until the first click in any view with this hint; not in a nested view.
   */
  hint?: string;
  /** Whether the readout has text without a pointer: the hint is then next to it and does not replace it. */
  says?: boolean;
  /** Buttons of the footer. */
  actions?: readonly HTMLElement[];
  /** Whether the caption is among the controls instead of on its own line: for a view of a single strip. */
  plain?: boolean;
}

export interface Frame {
  /**
   * Show the position of the view; returns the title. If `where` is a function, it also gives the words for positions
   * that a click may show next, and the caption reserves room for them; `names` are other titles to reserve room for.
   */
  show(where: string | ((shown: Resolved) => string), title?: string, names?: readonly string[]): string;
  /**
   * Report that the picture is missing; null: it is complete. While numbers are awaited, or after a failure, the
   * earlier picture remains, dimmed, and the footer has the message; without an earlier picture, or with nothing to
   * show, the message takes the room of the picture.
   */
  lacks(missing: Missing | null): void;
  readonly readout: Readout;
}

/** Fill `root` with a frame around `body`. */
export function createFrame(ctx: ViewContext, root: HTMLElement, parts: FrameParts): Frame {
  const [title, about, note] = [h("b.title"), h("span.where"), h("span.note")];
  const caption = h("div.caption", title, ...(parts.tags ?? []), about, note, ...(parts.legend ? [parts.legend] : []));
  const [inBar, inBody] = parts.plain ? [[caption], []] : [[], [caption]];
  const veil = createVeil(ctx, caption, parts.skeleton ?? "rows");
  const body = h(`div.body${parts.layout ?? ".column"}`, ...inBody, ...parts.body, veil.element);
  const isInside = ctx.el !== root;
  const footer = withHint(ctx, root, createReadout(), parts.hint ?? "");
  const warning = h("div.warning", { role: "note" });
  const progress = createProgress(ctx.signal);
  const isPage = ctx.model.get("runtime") === "";
  let isDrawn = false;
  let missing: Missing | null = null;
  if (isInside) setChildren(root, caption, ...parts.body, veil.element);
  else {
    const kernel = createKernelNote(ctx, root);
    root.classList.add("aw-framed");
    const toolbar = h(`div.toolbar${parts.plain ? ".plain" : ""}`, ...inBar, ...(parts.controls ?? []), h("span.end"));
    setChildren(
      root,
      toolbar,
      warning,
      ...(parts.lead ?? []).map((row) => h("div.lead", row)),
      body,
      h(
        "div.footer",
        parts.says ? { "data-says": "" } : {},
        progress.element,
        ...footer.elements,
        kernel.element,
        h("span.end", ...(parts.actions ?? [])),
      ),
    );
    // The kernel may be lost, and a job may advance, without a change of anything that the view draws.
    ctx.onChange(ctx.signal, (changed) => {
      if (only(changed, "hover", "pinned")) return;
      kernel.show();
      showProgress();
    });
    kernel.show();
    // Controls appear and change later, too.
    onResize([toolbar, ...toolbar.children], ctx.signal, () => fitToolbar(toolbar));
  }
  /**
   * In the footer: the numbers that the dimmed picture waits for, or those that the kernel computes for any view of
   * this text.
   */
  const showProgress = (): void => {
    // Inside another view, and over the picture, this is redundant.
    const job = isInside || (missing?.job && !isDrawn) ? null : ctx.tiles.job();
    const pending = isDrawn && missing?.job !== null ? missing : null;
    progress.show(pending ?? (job && { kind: "awaited", words: "", job, cancel: () => ctx.tiles.cancel() }));
  };
  return {
    readout: isInside ? ctx.readout : footer,
    lacks(now) {
      // A page without a kernel will not receive more.
      missing = now && isPage ? { ...now, retry: undefined } : now;
      if (isInside && missing?.job && missing.job === ctx.tiles.job()) missing = { ...missing, job: undefined };
      if (!now || now.part) isDrawn = true;
      else if (now.kind === "none" || now.other) isDrawn = false;
      const isOld = Boolean(now && isDrawn && !now.part);
      setFlag(isInside ? root : body, "data-old", isOld && parts.skeleton !== "own");
      veil.show(isDrawn && !(isInside && isOld) ? null : missing, isDrawn);
      showProgress();
    },
    show(where, fallback, names = []) {
      const { height } = ctx.options;
      if (!isInside) setStyles(root, { "--aw-tall": height ? `${height}px` : "auto" });
      // A view of numbers without a text lacks a source.
      if (ctx.header().sources.length === 0) {
        const heading = ctx.options.title || (fallback ?? "");
        setText(title, heading);
        if (typeof where === "string") setText(about, where);
        return heading;
      }
      const shown = ctx.resolved();
      const { source, notes } = shown;
      const name = ctx.options.title || (fallback ?? source.title);
      setText(title, name);
      const words = (at: Resolved): string => {
        const text = typeof where === "string" ? where : where(at);
        return text && at.source.stack !== "self" ? `${at.source.stack} · ${text}` : text;
      };
      setText(about, words(shown));
      const other = ctx.counterpart();
      const next = [shown, ...(other ? [other] : [])];
      if (name === source.title) reserve(title, ...next.map((at) => at.source.title));
      else if (names.length > 0) reserve(title, ...names);
      reserve(about, ...next.map((at) => words({ ...at, layer: at.source.layers.at(-1) ?? at.layer })));
      const remark = [source.note, ...notes].filter(Boolean).join(" · ");
      if (setText(note, remark)) note.title = remark;
      setText(warning, source.warning);
      return name;
    },
  };
}

const GONE = "No kernel answers: what is loaded still works.";

/**
 * Whether the kernel answers, in the footer. While it does not, controls with `data-needs-kernel` are disabled and
 * explain why.
 */
function createKernelNote(ctx: ViewContext, root: HTMLElement): { element: HTMLElement; show(): void } {
  const element = h("div.status", { role: "status" });
  const isGone = (): boolean => ctx.tiles.status().state === "no-kernel";
  let wasGone = false;
  const stop = (event: Event): void => {
    if (!isGone() || !(event.target as Element).closest("[data-needs-kernel]")) return;
    if (event instanceof KeyboardEvent && event.key === "Tab") return;
    event.preventDefault();
    event.stopPropagation();
  };
  for (const name of ["pointerdown", "mousedown", "click", "dblclick", "keydown"])
    root.addEventListener(name, stop, { capture: true, signal: ctx.signal });
  return {
    element,
    show() {
      const { message } = ctx.tiles.status();
      const words = message || (isGone() ? GONE : "");
      if (setText(element, words)) element.title = words;
      // Most changes find a kernel that answers, as it did before.
      if (!isGone() && !wasGone) return;
      wasGone = isGone();
      setFlag(root, "data-no-kernel", wasGone);
      for (const control of root.querySelectorAll<HTMLElement>("[data-needs-kernel]")) {
        if (wasGone) [control.ariaDisabled, control.ariaDescription] = ["true", words];
        else [control.ariaDisabled, control.ariaDescription] = [null, null];
      }
    },
  };
}

type Footer = Readout & { elements: HTMLElement[] };

/** A readout that shows the hint while nobody points at an element here or in a linked view. */
function withHint(ctx: ViewContext, root: HTMLElement, readout: Footer, words: string): Footer {
  if (!words || ctx.el !== root) return readout;
  const hint = h("div.hint", { title: words }, words); // on a narrow page it is cut off
  const show = (): void => {
    const isPointed = ctx.header().sources.length > 0 && (ctx.cell("pinned") ?? ctx.cell("hover"));
    const isShown = !ctx.learned.has(words) && !isPointed;
    hint.hidden = !isShown || root.matches(":hover, :focus-within");
  };
  on(root, ctx.signal, {
    click() {
      ctx.learned.add(words);
      show();
    },
    pointerenter: show,
    pointerleave: show,
    focusin: show,
    focusout: () => queueMicrotask(show),
  });
  ctx.onChange(ctx.signal, show);
  show();
  return { elements: [hint, ...readout.elements], show: readout.show };
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
