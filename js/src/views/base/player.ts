/** Playing through the layers, and waiting for those that are computed on demand. */
import type { ViewContext } from "../../context.ts";
import { atEnd } from "../../dom.ts";
import { moveLayer } from "./navigation.ts";

const PLAY_EVERY_MS = 500;

export interface Player {
  playing(): boolean;
  stop(): void;
  /** Start, stop, or (`still`) take a single step. */
  toggle(still: boolean): void;
  /** Tiles arrived: continue if play was waiting for them. */
  arrived(): void;
}

/**
 * Steps through the layers at a readable pace, waits for missing tiles, and stops at the last layer. Started at the
 * last layer, it begins again at the first.
 */
export function createPlayer(ctx: ViewContext, signal: AbortSignal, changed: () => void): Player {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let playing = false;
  let waiting = false;
  const stop = (): void => {
    clearTimeout(timer);
    [playing, waiting] = [false, false];
    changed();
  };
  const next = (): void => {
    const { source, layer, head } = ctx.layered();
    const to = source.layers[source.layers.indexOf(layer) + 1];
    if (to === undefined) {
      stop();
      return;
    }
    if (!ctx.tiles.get(source.id, to, head)) {
      const lost = ctx.tiles.failure(source.id, to, head) ?? (ctx.tiles.status().state === "no-kernel" ? "lost" : "");
      if (lost) {
        stop();
        return;
      }
      waiting = true;
      ctx.tiles.request(source.id, to, head, "play");
      return;
    }
    waiting = false;
    ctx.selection.set({ layer: to });
    timer = setTimeout(next, PLAY_EVERY_MS);
  };
  atEnd(signal, () => {
    clearTimeout(timer);
    playing = false;
  });
  return {
    playing: () => playing,
    stop: () => {
      if (playing) stop();
    },
    toggle(still) {
      if (playing) {
        stop();
        return;
      }
      const { source, layer } = ctx.layered();
      const again = layer === source.layers.at(-1);
      if (again) moveLayer(ctx, -Infinity);
      else if (still) moveLayer(ctx, 1);
      if (still) return;
      playing = true;
      changed();
      if (again) timer = setTimeout(next, PLAY_EVERY_MS);
      else next();
    },
    arrived() {
      if (playing && waiting) next();
    },
  };
}
