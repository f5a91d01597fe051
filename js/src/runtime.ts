/**
 * The model-only widget that carries the code: its `initialize` hands out the renderers, and every view's own
 * module is a stub that asks for one of them. Nothing is kept at module level.
 */
import type { Initialize } from "@anywidget/types";
import { createContext, type RenderView, type ViewContext, type ViewProps } from "./context.ts";
import { atEnd, fill, h, isOutside, on, whenShown } from "./dom.ts";
import { createPool, type TilePool } from "./pool.ts";
import { settleTableCell } from "./settle.ts";
import CSS from "./styles.css";
import { renderExplorer } from "./views/Explorer.ts";
import { renderHeadGrid } from "./views/HeadGrid.ts";
import { renderHeatmap } from "./views/Heatmap.ts";
import { renderLayerSlider } from "./views/LayerSlider.ts";
import { renderRelevanceMap } from "./views/RelevanceMap.ts";
import { renderTokenStrip } from "./views/TokenStrip.ts";

const STYLE_ID = "aw-style";

export type Renderer = (props: ViewProps) => Promise<void | (() => void)>;

/** One style sheet in every document or shadow root that holds a view. */
function addStyle(el: Element): void {
  const root = el.getRootNode();
  const place = root instanceof ShadowRoot ? root : document.head;
  const old = place.querySelector(`style#${STYLE_ID}`);
  if (!old) place.append(h("style", { id: STYLE_ID }, CSS));
  else if (old.textContent !== CSS) old.textContent = CSS; // left by an older version in this page
}

/** Draw a view into `props.el`: style, theme, context, and an error in words where something goes wrong. */
function mount(render: RenderView, pool: TilePool): Renderer {
  return async (props) => {
    const { model, signal } = props;
    const root = h("div.root");
    // No key may reach the notebook, whose command mode would take the arrows and delete cells. It listens before we
    // do, and leaves alone only what is marked; Notebook 7 looks for the mark on the focused element itself.
    on(root, signal, {
      keydown: (event) => event.stopPropagation(),
      focusin: ({ target }) => (target as Element).setAttribute("data-lm-suppress-shortcuts", "true"),
    });
    props.el.append(root);
    addStyle(root);
    whenShown(root, () => addStyle(root), signal);
    settleTableCell(root, signal);
    let end = new AbortController();
    const draw = async (): Promise<void> => {
      end.abort();
      end = new AbortController();
      const mine = AbortSignal.any([signal, end.signal]);
      try {
        const ctx = await createContext({ ...props, el: root, signal: mine }, pool);
        if (!mine.aborted) show(ctx, mine);
      } catch (error) {
        if (mine.aborted) return;
        const why = error instanceof Error ? error.message : String(error);
        fill(root, h("div.warning", { role: "alert" }, `This view could not be drawn: ${why}`));
        console.error(error);
      }
    };
    const show = (ctx: ViewContext, mine: AbortSignal): void => {
      const follow = (): void => {
        root.dataset.awTheme = ctx.theme;
      };
      follow();
      ctx.onChange((changed) => {
        if (changed.has("theme")) follow();
      }, mine);
      on(document, mine, {
        pointerdown: (event) => {
          if (ctx.selection.get("pinned") && isOutside(event)) ctx.selection.pin(null);
        },
      });
      atEnd(mine, render(ctx, root));
    };
    // `aw.link` gives a view that is on the page another selection, and a view shown again may have another store.
    for (const name of ["selection", "store"]) model.on(`change:${name}`, () => void draw());
    await draw();
    return () => end.abort();
  };
}

/** The renderers by the name of their Python class. One pool of tiles for all of them. */
export function createRenderers(): Record<string, Renderer> {
  const pool = createPool();
  return {
    Heatmap: mount(renderHeatmap, pool),
    HeadGrid: mount(renderHeadGrid, pool),
    TokenStrip: mount(renderTokenStrip, pool),
    LayerSlider: mount(renderLayerSlider, pool),
    RelevanceMap: mount(renderRelevanceMap, pool),
    Explorer: mount(renderExplorer, pool),
  };
}

const initialize: Initialize = () => createRenderers();

export default { initialize };
