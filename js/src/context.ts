/**
 * What every view is given: the resolved state of its store and selection, and one stream of changes.
 *
 * A view is a function `renderX(ctx, root) => cleanup`. It reads `ctx`, draws, and draws again when
 * `ctx.onChange` names something it depends on. It never talks to a model itself.
 */
import type { AnyModel, Host } from "@anywidget/types";
import { atEnd, themeOf, watchTheme } from "./dom.ts";
import { createSelection, layered, resolve } from "./selection.ts";
import { type Opened, opened } from "./wire/opening.ts";
import type { TilePool } from "./wire/pool.ts";
import type {
  AnyTileMeta,
  Axis,
  Cell,
  Header,
  HeadKey,
  SelectionState,
  Source,
  StoreState,
  Thumbs,
  ViewOptions,
  ViewState,
} from "./wire/wire.ts";

/** Int16Array: a filtered tile's. */
export type Codes = Uint8Array | Int8Array | Int16Array;
export type Theme = "light" | "dark";

/**
 * One decoded matrix: codes unpacked to meta.rows * meta.cols, row-major (the masked part of a causal map is 0). That is a
 * code for each of rows * cols cells, unless it is coarse (`meta.whole`): then cells share one.
 */
export interface Tile {
  readonly meta: AnyTileMeta;
  readonly rows: number;
  readonly cols: number;
  readonly codes: Codes;
  /** Approximate value of a cell, within the error of the encoding. */
  value(row: number, col: number): number;
  /** The value with no more digits than the encoding supports, such as "0.12". */
  text(row: number, col: number): string;
  /** Largest absolute value. */
  peak(): number;
  /** By key, the mean of what queries give it; cells without a number do not count. */
  received(): Float32Array;
}

/** The thumbnails of one source: `codes` holds [layer][head][row][col]. */
export interface ThumbSheet {
  readonly meta: Thumbs;
  readonly codes: Codes;
}

/** "ok": answers arrive. "waiting": a request is unanswered. "no-kernel": given up for now; any answer recovers. */
export interface Status {
  state: "ok" | "waiting" | "no-kernel";
  /** Words for the user, empty when all is well. Says what still works. */
  message: string;
}

/** What the kernel computes for a view, or will when no cell is running. */
export interface Job {
  text: string;
  /** Steps done; null before it began. */
  done: number | null;
  /** Steps in all, where that is known. */
  total: number | null;
}

/** Matrices of one store, shared by all views of it. Sources are named by `Source.id`. */
export interface TileClient {
  /** The tile if it is in the browser. Synchronous; never sends anything. */
  get(source: string, layer: number, head: HeadKey): Tile | undefined;
  /**
   * Ask for a tile; returns at once, "tiles" is announced when it is there. Within a `slot` the latest request
   * replaces older ones that were not sent yet. Views that need several tiles at a time name a slot for each.
   */
  request(source: string, layer: number, head: HeadKey, slot?: string): void;
  /**
   * Ask for several heads of a layer in one message. What does not fit into one is asked for again when "tiles" is
   * announced, until every head is here or `failure` says why not.
   */
  requestHeads(source: string, layer: number, heads: HeadKey[]): void;
  /**
   * Exact float32 values of one row, or null where nobody can tell (no kernel, not in the file). A `quiet` wish that is
   * in vain is not told.
   */
  row(source: string, layer: number, head: HeadKey, row: number, quiet?: boolean): Promise<Float32Array | null>;
  /** Why the store refused this tile (without layer and head: these thumbnails), if it did. */
  failure(source: string, layer?: number, head?: HeadKey): string | undefined;
  /**
   * Max-pooled thumbnails. Those that are not here are asked for; "tiles" is announced when they are. Of a source in parts
   * those `from` the places of a layer and a head on are asked for; null: none.
   */
  thumbs(source: string, from?: readonly [number, number] | null): ThumbSheet | undefined;
  /** Have a method made, with the layer looked at, unless it is here; then `done` is called. The latest wins. */
  make(method: string, layer: number, done: () => void): void;
  /** What is computed now, once it takes longer than a moment. */
  job(): Job | null;
  /** Stop that. */
  cancel(): void;
  /** Called when a tile arrived or was refused, and when the status changed. */
  subscribe(cb: () => void, signal: AbortSignal): void;
  status(): Status;
}

/** The shared selection, as one view sees it. */
export interface SelectionStore {
  get<K extends keyof SelectionState>(key: K): SelectionState[K];
  /** Set and save to the kernel (layer, head, unit, method, stack, pinned). */
  set(values: Partial<Omit<SelectionState, "hover">>): void;
  /** Preview a cell; stays in the browser. */
  hover(cell: Cell | null): void;
  /** Pin a cell; pinning the pinned cell again, or null, unpins. */
  pin(cell: Cell | null): void;
  subscribe(cb: (key: keyof SelectionState) => void, signal: AbortSignal): void;
}

/** What a view shows now, after its options and the selection were matched with what the store has. */
export interface Resolved {
  source: Source;
  layer: number;
  head: HeadKey;
  /** Said in the header line when the selection could not be followed: "layer 11 is not in rollout: showing 5". */
  notes: string[];
}

/** Names given to `onChange`. */
export type Change = keyof SelectionState | "tiles" | "header" | "options" | "theme";

export interface ViewContext {
  readonly el: HTMLElement;
  readonly signal: AbortSignal;
  /** The view's own model, for what only its Python twin knows (`answers.ts`). */
  readonly model: AnyModel<ViewState>;
  /** What it told already. */
  readonly opening: readonly Opened[];
  /** Every view there is, by name: what a view holds of another part's. */
  readonly views: Readonly<Record<string, RenderView>>;
  readonly options: ViewOptions;
  readonly selection: SelectionStore;
  readonly tiles: TileClient;
  readonly theme: Theme;
  header(): Header;
  source(): Source;
  resolved(): Resolved;
  /** Of attributions, where in what they say of every layer the view looks; of a map, `resolved()`. */
  layered(): Resolved;
  /** Axis by its key in `Header.axes` (`Source.query`, `Source.key`). */
  axisOf(id: string): Axis;
  /** Pinned or hovered cell in the indices of the shown source; null where there is none. */
  cell(which: "pinned" | "hover"): Cell | null;
  /** Layer or head as shown: counted from `options.indexBase`. */
  layerName(layer: number): string;
  headName(head: HeadKey): string;
  /** One call for all changes of one turn of the event loop, until `signal` ends it. */
  onChange(cb: (changed: ReadonlySet<Change>) => void, signal: AbortSignal): void;
  /** The same store, selection and changes with other options, for views inside a view. */
  child(options: Partial<ViewOptions>): ViewContext;
}

/** A view inside a root element; returns its cleanup. */
export type RenderView = (ctx: ViewContext, root: HTMLElement) => () => void;

/** What anywidget, or the standalone host, gives to a view. */
export interface ViewProps {
  model: AnyModel<ViewState>;
  el: HTMLElement;
  signal: AbortSignal;
  host: Host;
}

const DEFAULT_OPTIONS: ViewOptions = {
  method: null,
  unit: null,
  stack: null,
  indexBase: 0,
  title: "",
  marks: [],
  methods: [],
  units: [],
  filters: {},
};

/**
 * Connect a view to its store and selection. `pool` shares tile clients between the views of one kernel, `views` are
 * those that it may hold.
 */
export async function createContext(
  props: ViewProps,
  pool: TilePool,
  views: ViewContext["views"],
): Promise<ViewContext> {
  const { model, el, signal, host } = props;
  const opening = opened(model.get("opening"));
  const storeRef = model.get("store");
  const [store, selectionModel] = await Promise.all([
    host.getModel<StoreState & Record<string, unknown>>(storeRef),
    host.getModel<SelectionState & Record<string, unknown>>(model.get("selection")),
  ]);
  const tiles = pool(storeRef, store, signal);
  const selection = createSelection(selectionModel);
  const callbacks = new Set<(changed: ReadonlySet<Change>) => void>();
  let pending: Set<Change> | null = null;
  let theme = themeOf(el);

  /** Counts what `resolved` depends on. */
  let version = 0;

  const notify = (what: Change): void => {
    if (what !== "hover" && what !== "pinned") version += 1;
    if (pending) {
      pending.add(what);
      return;
    }
    pending = new Set([what]);
    // Several traits may change in one message: views draw once, with all of them set.
    queueMicrotask(() => {
      const changed = pending ?? new Set<Change>();
      pending = null;
      if (signal.aborted) return;
      for (const cb of callbacks) cb(changed);
    });
  };
  selection.subscribe(notify, signal);
  tiles.subscribe(() => notify("tiles"), signal);
  store.on("change:header", () => notify("header"));
  model.on("change:options", () => notify("options"));
  watchTheme(
    el,
    () => {
      const now = themeOf(el);
      if (now === theme) return;
      theme = now;
      notify("theme");
    },
    signal,
  );

  const header = (): Header => store.get("header");
  const make = (overrides: Partial<ViewOptions>): ViewContext => {
    let [read, options] = [{} as ViewOptions, DEFAULT_OPTIONS];
    let found: Resolved | null = null;
    let foundAt = 0;
    const ctx: ViewContext = {
      el,
      signal,
      model,
      opening,
      views,
      selection,
      tiles,
      get options() {
        const now = model.get("options");
        if (now !== read) [read, options] = [now, { ...DEFAULT_OPTIONS, ...now, ...overrides }];
        return options;
      },
      get theme() {
        return theme;
      },
      header,
      resolved() {
        if (!found || foundAt !== version) [found, foundAt] = [resolve(header(), ctx.options, selection), version];
        return found;
      },
      layered: () => layered(header(), ctx.resolved(), selection),
      source: () => ctx.resolved().source,
      axisOf(id) {
        const axis = header().axes[id];
        if (!axis) throw new Error(`attnwidgets: the store has no axis ${JSON.stringify(id)}`);
        return axis;
      },
      cell: (which) => selection.cellIn(which, header(), ctx.source()),
      layerName: (layer) => String(layer + ctx.options.indexBase),
      headName: (head) => (typeof head === "number" ? String(head + ctx.options.indexBase) : head),
      onChange(cb, until) {
        callbacks.add(cb);
        atEnd(until, () => callbacks.delete(cb));
      },
      child: (more) => make({ ...overrides, ...more }),
    };
    return ctx;
  };
  return make({});
}
