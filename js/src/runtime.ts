/**
 * The model-only widget with the code: its `initialize` returns the renderers, and the module of every view is a stub
 * that requests its renderer. Nothing is stored at module level.
 */
import type { AnyModel, Initialize } from "@anywidget/types";
import { type Common, createContext, type RenderView, type ViewContext, type ViewProps } from "./context.ts";
import { atEnd, h, isOutside, on, setChildren, setStyles } from "./dom.ts";
import { shared } from "./shared.ts";
import { createSheet } from "./sheet.ts";
import CSS from "./styles/core.css";
import { settleTableCell } from "./tableCells.ts";
import { createBlank } from "./views/base/blank.ts";
import { renderHeatmap } from "./views/maps/Heatmap.ts";
import { renderLayerSlider } from "./views/maps/LayerSlider.ts";
import { renderTokenStrip } from "./views/text/TokenStrip.ts";
import type { StandIn } from "./wire/standIn.ts";
import { createPool } from "./wire/tilePool.ts";
import type { RuntimeState } from "./wire/wire.ts";

/** CSS pixels across a sheet of A4 inside the margins of a browser and a page. */
const PAPER = 660;

export type Renderer = (props: ViewProps) => Promise<void | (() => void)>;

/** Draw a view into `props.el` with its style, theme and context; show a message if that fails. */
function mount(name: string, common: Common): Renderer {
  return async (props) => {
    const { model, signal } = props;
    const root = h("div.root");
    // No key may reach the notebook, whose command mode would take the arrows and delete cells. The notebook listens
    // before this handler, and ignores only marked elements; Notebook 7 looks for the mark on the focused element
    // itself.
    on(root, signal, {
      keydown: (event) => event.stopPropagation(),
      // A right click that a view handles must not open the page's context menu as well.
      contextmenu: (event) => event.defaultPrevented && event.stopPropagation(),
      focusin: ({ target }) => (target as Element).setAttribute("data-lm-suppress-shortcuts", "true"),
    });
    // Paper is white, and narrower than the screen for which the view was laid out: it is printed smaller.
    on(window, signal, {
      beforeprint() {
        const wide = root.offsetWidth;
        setStyles(root, { width: `${wide}px`, zoom: `${Math.min(1, PAPER / wide)}` });
        root.style.zoom = `min(1, 100cqi / ${wide}px)`; // exact, where the browser supports it
        root.dataset.paper = "";
      },
      afterprint() {
        setStyles(root, { width: "", zoom: "" });
        delete root.dataset.paper;
      },
    });
    props.el.append(root);
    common.sheet.dress(root, signal);
    settleTableCell(root, signal);
    const lasting = new Map<string, unknown>();
    let end = new AbortController();
    let latest = end;
    const showError = (error: unknown): void => {
      const why = error instanceof Error ? error.message : String(error);
      const { height } = model.get("options");
      root.classList.add("aw-framed");
      setStyles(root, { "--aw-tall": height ? `${height}px` : "auto" });
      const words = `This view could not be drawn: ${why}`;
      const advice = "If trying again does not help, run the cell again.";
      setChildren(root, createBlank(signal, { words, advice, retry: () => void redraw().catch(showError) }));
      console.error(error);
    };
    /** Rejects if the store or the selection does not arrive. The old drawing stays until the new drawing is ready. */
    const redraw = async (): Promise<void> => {
      const next = new AbortController();
      if (latest !== end) latest.abort();
      latest = next;
      const drawSignal = AbortSignal.any([signal, next.signal]);
      let ctx: ViewContext | undefined;
      try {
        ctx = await createContext({ ...props, el: root, signal: drawSignal }, common, lasting);
        if (drawSignal.aborted) return;
        end.abort();
        end = next;
        renderView(ctx, drawSignal);
      } catch (error) {
        if (drawSignal.aborted) return;
        if (!ctx) {
          end.abort();
          throw error;
        }
        showError(error);
      }
    };
    const renderView = (ctx: ViewContext, signal: AbortSignal): void => {
      const follow = (): void => {
        root.dataset.awTheme = ctx.theme;
      };
      follow();
      ctx.onChange(signal, (changed) => {
        if (changed.has("theme")) follow();
      });
      on(document, signal, {
        pointerdown: (event) => {
          if (isOutside(event)) ctx.selection.clear();
        },
      });
      const { views } = common;
      const render = views[name];
      if (!render) throw new Error(`unknown view ${name}`);
      atEnd(signal, render(ctx, root));
      const corner = h("div");
      (root.querySelector(":scope > .aw-toolbar > .aw-end") ?? root).append(corner);
      views.Tools?.(ctx, corner);
    };
    // Another text has another store and selection, `aw.link` gives a view another selection: both may change together.
    let isDue = false;
    const soon = (): void => {
      if (isDue) return;
      isDue = true;
      queueMicrotask(() => {
        isDue = false;
        redraw().catch(showError);
      });
    };
    for (const name of ["selection", "store"]) model.on(`change:${name}`, soon);
    await redraw(); // the stub of the view shows a static copy if this fails
    return () => {
      end.abort();
      latest.abort();
    };
  };
}

/** Views that are sent separately from the core. */
export interface Part {
  style: string;
  /** Style rules for elements around the views. */
  around?: string;
  views: Record<string, RenderView>;
  /** The answers of small models when the kernel is gone. */
  standIn?(): StandIn;
}

/** A part as it is sent: it refers to the core's functions by number. */
export type PartCode = (lent: readonly unknown[]) => Part;

/** Resolves when the page has drawn a frame; soon where it draws none: in a tab behind others, or out of sight. */
function frame(): Promise<void> {
  return new Promise((done) => {
    requestAnimationFrame(() => setTimeout(done));
    setTimeout(done, 99);
  });
}

export interface Renderers {
  /** Draw the view with this name, after loading the parts it needs. */
  render(props: ViewProps, name: string, ...parts: string[]): ReturnType<Renderer>;
  add(code: PartCode): void;
}

/** The views by the name of their Python class, with a shared pool of tiles. */
export function createRenderers(runtime?: AnyModel<RuntimeState>): Renderers {
  const added = new Set<PartCode>();
  const views: Record<string, RenderView> = {
    Heatmap: renderHeatmap,
    TokenStrip: renderTokenStrip,
    LayerSlider: renderLayerSlider,
  };
  const page = Math.floor(Math.random() * 2 ** 40);
  const sheet = createSheet(String(page), CSS);
  const common = { pool: createPool(), views, learned: new Set<string>(), page, sheet, holder: {}, lent: shared };
  const add = (code: PartCode): void => {
    if (added.has(code)) return;
    added.add(code);
    const part = code(shared);
    sheet.add(part.style, part.around);
    Object.assign(views, part.views);
  };
  return {
    add,
    async render(props, name, ...parts) {
      // The stub has drawn an empty frame of the view's height. If the code is loaded already, the view would be built
      // in the same task, and the reader would see neither until that is done.
      if (runtime) await frame();
      // A standalone page has already added all its parts.
      for (const part of runtime ? parts : []) {
        const { exports } = await props.host.getWidget<{ code: PartCode }>(runtime?.get("parts")[part] ?? part);
        add(exports.code);
      }
      return mount(name, common)(props);
    },
  };
}

const initialize: Initialize<RuntimeState> = ({ model }) => createRenderers(model);

export default { initialize };
