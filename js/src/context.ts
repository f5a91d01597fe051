/**
 * The context of a view: the resolved state of its store and selection, and a single stream of changes.
 *
 * A view is a function `renderX(ctx, root) => cleanup`. It reads `ctx`, draws, and draws again when `ctx.onChange`
 * names something it depends on. It never talks to a model itself.
 */
import type { AnyModel, Host } from "@anywidget/types";
import type { Theme } from "./colour.ts";
import { atEnd, themeOf, watchTheme } from "./dom.ts";
import { counterpart, createSelection, layered, type Resolved, resolve, type SelectionStore } from "./selection.ts";
import type { Sheet } from "./sheet.ts";
import { asDeclared } from "./wire/binary.ts";
import { headerOf } from "./wire/eager.ts";
import { type EmbeddedAnswer, unpackAnswers } from "./wire/embeddedAnswers.ts";
import { joinStandIn, type StandInHolder, type StateOf } from "./wire/standIn.ts";
import type { TilePool } from "./wire/tilePool.ts";
import type { TileClient } from "./wire/tiles.ts";
import type { ViewOptions, ViewState } from "./wire/viewState.ts";
import type { Axis, Cell, Header, HeadKey, SelectionState, Source, Span, StoreState } from "./wire/wire.ts";

type Sets = "pins" | "heads" | "span";

/** Names given to `onChange`. "pinned" is all that the reader has chosen: the pinned cells, the heads and the span. */
export type Change = Exclude<keyof SelectionState, Sets> | "tiles" | "header" | "options" | "theme";

export interface ViewContext {
  readonly el: HTMLElement;
  readonly signal: AbortSignal;
  /** Resolves other models, for a view that contains whole views. */
  readonly host: Host;
  /** The model of this view, for requests that only its Python twin can answer (`answers.ts`). */
  readonly model: AnyModel<ViewState>;
  /** Answers that arrived together with the view. */
  readonly opening: readonly EmbeddedAnswer[];
  /** All loaded views by name, so that a view can contain a view of another part. */
  readonly views: Readonly<Record<string, RenderView>>;
  readonly options: ViewOptions;
  /** The style sheet of the views, for pictures of them. */
  readonly sheet: Pick<Sheet, "text">;
  /** Where a nested view writes its readout; nowhere by default. */
  readonly readout: Readout;
  readonly selection: SelectionStore;
  readonly tiles: TileClient;
  /** Hints that the reader has followed, in any view of this notebook or page. */
  readonly learned: Set<string>;
  /** State that survives a change to another text or selection, when the view is redrawn from scratch. */
  readonly lasting: Map<string, unknown>;
  readonly theme: Theme;
  header(): Header;
  source(): Source;
  resolved(): Resolved;
  /** For attributions, the selected layer of their by-layer values; for a map, the same as `resolved()`. */
  layered(): Resolved;
  /** For attributions at the input, the same attributions in a layer, and vice versa; null without such a pair. */
  counterpart(): Resolved | null;
  /** Axis by its key in `Header.axes` (`Source.query`, `Source.key`). */
  axisOf(id: string): Axis;
  /** Pinned or hovered cell in the indices of the shown source; null if there is none. */
  cell(which: "pinned" | "hover"): Cell | null;
  /** All pinned cells in the indices of the shown source. */
  pins(): Cell[];
  /** The elements on this side of the shown source that the span covers, as [start, stop), or null. */
  span(side: Span["side"]): [number, number] | null;
  /** Layer or head as shown: counted from `options.indexBase`. */
  layerName(layer: number): string;
  headName(head: HeadKey): string;
  /** Called once for all changes in one turn of the event loop, until `signal` aborts. */
  onChange(signal: AbortSignal, cb: (changed: ReadonlySet<Change>) => void): void;
  /** The same store, selection and changes with other options, for views inside a view. */
  child(options: Partial<ViewOptions>, readout?: Readout): ViewContext;
}

/** The objects that all views of a runtime share. */
export interface Common {
  /** Shares tile clients between the views of one kernel. */
  pool: TilePool;
  /** The views that a view may contain. */
  views: Readonly<Record<string, RenderView>>;
  /** The hints followed in any view of the page. */
  learned: Set<string>;
  /** The number of this page among those of the kernel, drawn at random. */
  page: number;
  sheet: Sheet;
  /** The stand-in for the kernel, and the objects that parts borrow from the core. */
  holder: StandInHolder;
  lent: readonly unknown[];
}

/** A view inside a root element; returns its cleanup. */
export type RenderView = (ctx: ViewContext, root: HTMLElement) => () => void;

/** The properties that anywidget or the standalone host passes to a view. */
export interface ViewProps {
  model: AnyModel<ViewState>;
  el: HTMLElement;
  signal: AbortSignal;
  host: Host;
}

/** A line of words about a picture. */
export interface Readout {
  /** Show a line; `aloud` also announces it to screen readers. */
  show(text: string, aloud: boolean): void;
  /** Whether the readout is hidden: its words need not be computed. */
  isSilent?: boolean;
}

const SILENT: Readout = { show: () => undefined, isSilent: true };

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
  height: null,
  makesClaims: false,
  below: "",
};

type OnChange = ViewContext["onChange"];

/** The stream of changes: all changes in one turn of the event loop are passed on together. */
function createChanges(signal: AbortSignal) {
  const callbacks = new Set<(changed: ReadonlySet<Change>) => void>();
  let pending: Set<Change> | null = null;
  /** Incremented whenever something changes that `resolved` depends on. */
  let version = 0;
  const subscribe: OnChange = (until, cb) => {
    callbacks.add(cb);
    atEnd(until, () => callbacks.delete(cb));
  };
  const notify = (change: Change): void => {
    if (change !== "hover" && change !== "pinned") version += 1;
    if (pending) {
      pending.add(change);
      return;
    }
    pending = new Set([change]);
    // One message may change several traits: views draw once, after all of them are set.
    queueMicrotask(() => {
      const changed = pending ?? new Set<Change>();
      pending = null;
      if (signal.aborted) return;
      for (const cb of callbacks) cb(changed);
    });
  };
  return { notify, subscribe, version: () => version };
}

/**
 * Connect a view to its store and selection. `lasting` is the state that survives when the view is redrawn from
 * scratch.
 */
export async function createContext(
  props: ViewProps,
  { pool, views, learned, page, sheet, holder, lent }: Common,
  lasting: Map<string, unknown> = new Map(),
): Promise<ViewContext> {
  const { el, signal, host } = props;
  const modelOf = async <T>(ref: string): Promise<AnyModel<StateOf<T>>> =>
    holder.standIn?.modelOf(ref, signal) ?? host.getModel<StateOf<T>>(ref);
  const declared = asDeclared(props.model as unknown as AnyModel<StateOf<ViewState>>);
  const model = declared as unknown as AnyModel<ViewState>;
  const opening = unpackAnswers(model.get("opening"));
  const storeRef = model.get("store");
  const [given, selectionModel] = await Promise.all([
    modelOf<StoreState>(storeRef),
    modelOf<SelectionState>(model.get("selection")),
  ]);
  const store = asDeclared(given);
  const tiles = pool(storeRef, store, signal);
  await joinStandIn({ props, model: declared, given, store, selection: selectionModel, tiles }, holder, lent);
  const selection = createSelection(asDeclared(selectionModel), page);
  let theme = themeOf(el);
  const changes = createChanges(signal);
  const { notify } = changes;
  selection.subscribe(signal, (key) => notify(key === "pins" || key === "heads" || key === "span" ? "pinned" : key));
  tiles.subscribe(signal, () => notify("tiles"));
  store.on("change:header", () => notify("header"));
  model.on("change:options", () => notify("options"));
  watchTheme(el, signal, () => {
    const now = themeOf(el);
    if (now === theme) return;
    theme = now;
    notify("theme");
  });

  const header = (): Header => headerOf(store);
  const make = (overrides: Partial<ViewOptions>, readout: Readout): ViewContext => {
    let [read, options] = [{} as ViewOptions, DEFAULT_OPTIONS];
    let cached: Resolved | null = null;
    let cachedVersion = 0;
    const ctx: ViewContext = {
      el,
      signal,
      host,
      model,
      opening,
      views,
      sheet,
      readout,
      selection,
      tiles,
      learned,
      lasting,
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
        const version = changes.version();
        if (!cached || cachedVersion !== version)
          [cached, cachedVersion] = [resolve(header(), ctx.options, selection), version];
        return cached;
      },
      layered: () => layered(header(), ctx.resolved(), selection),
      counterpart: () => counterpart(header(), ctx.resolved(), selection),
      source: () => ctx.resolved().source,
      axisOf(id) {
        const axis = header().axes[id];
        if (!axis) throw new Error(`attnwidgets: unknown axis in the store: ${JSON.stringify(id)}`);
        return axis;
      },
      cell: (which) => selection.cellIn(which, header(), ctx.source()),
      pins: () => selection.pinsIn(header(), ctx.source()),
      span: (side) => selection.spanIn(side, header(), ctx.source()),
      layerName: (layer) => String(layer + ctx.options.indexBase),
      headName: (head) => (typeof head === "number" ? String(head + ctx.options.indexBase) : head),
      onChange: changes.subscribe,
      child: (more, inner = SILENT) => make({ ...overrides, ...more }, inner),
    };
    return ctx;
  };
  return make({}, SILENT);
}
