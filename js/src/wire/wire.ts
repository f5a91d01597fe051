/**
 * What travels between Python and the browser: the one place where both sides are spelled out.
 * Its Python twins are `attnwidgets/views/wire/store.py` (header, tiles), `selection.py` and `base.py`.
 */

/** An ordered list of display elements along one side of a map, in one unit. */
export interface Axis {
  unit: string;
  labels: string[];
  /** Token indices behind every element; `null` for tokens themselves. */
  spans: number[][] | null;
  /** 1 where the element is a special token ([CLS], </s>, ...). */
  special: number[];
  /** Index of the text an element belongs to (0, 1 for a pair). */
  segment: number[];
  /** First generated element, or null. */
  boundary: number | null;
  /** Patch grid (rows, columns) of an image, or null. */
  grid: [number, number] | null;
}

/** One family of matrices: a method in one unit and one stack. */
export interface Source {
  id: string; // `${method}/${unit}/${stack}`
  /**
   * Key used by Selection.method. "lrp" is about what the model predicts, "lrp@1" about the class or token 1,
   * "lrp@1-0" about 1 rather than 0; "lrp:layers" is what attributions say of every layer.
   */
  method: string;
  title: string; // "attention", "rollout", ... as shown
  unit: string;
  stack: string;
  query: string; // key into Header.axes
  key: string;
  layers: number[]; // original layer numbers
  /** Layers that can be had at once, of a method that computes a layer when it is looked at; null: all. */
  computed: number[] | null;
  heads: number[] | null; // original head numbers; null: no head axis
  /** Its matrices have more cells than travel at once: its tiles are `Coarse`. */
  coarse: boolean;
  /** Its thumbnails come a few heads at a time, as they are seen. */
  parts: boolean;
  causal: boolean;
  signed: boolean;
  /** Rows sum to one: the colour scale may say "share of the row". */
  stochastic: boolean;
  /** "map": rows are queries. "attributions": rows are targets, keys are the attributed tokens. */
  kind: "map" | "attributions";
  /** What was done, in words ("sum over key pieces, mean over query pieces"). */
  note: string;
  /** What a reader must know: "512 of 734 tokens", or a property that the method declares and does not have. */
  warning: string;
  /** Whether the method can be asked about another target. */
  targets: boolean;
  /** What the values of each target sum to, in words; empty where the method conserves nothing. */
  sums: string[];
  /** What is known of conservation in this architecture. */
  verdict: string;
}

/** Head of a tile: a layer's head by number, a reduction over heads by name, or "-" where there is no head axis. */
export type HeadKey = number | "mean" | "max" | "-";

export type Codec = "u8" | "u8tri" | "i8";

/** value = sign * (|code| / (signed ? 127 : 255)) ** (1 / gamma) * scale */
export interface TileMeta {
  source: string;
  layer: number;
  head: HeadKey;
  rows: number;
  cols: number;
  codec: Codec;
  gamma: number;
  scale: number;
}

/**
 * What a tile has besides whose matrix has more cells than travel at once: how many rows and columns that are. A code
 * stands for the largest of a block of cells; after the codes come the exact means of the columns, little-endian float32.
 */
export interface Coarse {
  whole: [number, number];
}

export type AnyTileMeta = TileMeta & Partial<Coarse>;

export interface Placed {
  offset: number;
  length: number;
}

/** Thumbnails of one source; their codes lie [layer][head][row][col]. */
export interface Thumbs {
  source: string;
  rows: number; // of one thumbnail, max-pooled
  cols: number;
  gamma: number;
  signed: boolean;
  /** Largest absolute value per [layer][head], the scale of that thumbnail; -1: there is no such head (pruned). */
  scale: number[][];
}

/** Where the heads of a reply belong that holds some of one layer: places of the layer and of the first of them. */
export interface Part {
  part: [number, number];
}

/** A class or token: its index among the logits, and its name. */
export interface Outcome {
  label: string;
  id: number;
}

export interface Prediction extends Outcome {
  probability: number;
}

/** A method that can be chosen, and is made then; or that cannot be, with the reason. */
export interface Offer {
  method: string; // Source.method of what is made
  title: string;
  summary: string;
  cost: string;
  refusal: string;
  /** What a reader must know before using it, such as a property that it declares and does not have. */
  mark: string;
  targets: boolean;
}

export interface Header {
  version: 1;
  model: string;
  text: string;
  axes: Record<string, Axis>;
  sources: Source[];
  /** What is not among the sources yet. */
  methods: Offer[];
  /** Thumbnails that lie in the eager bytes; the others are asked for. */
  thumbs: (Thumbs & Placed)[];
  /** Tiles that lie in the eager bytes. */
  tiles: (AnyTileMeta & Placed)[];
  predictions: { title: string; items: Prediction[] };
}

/** Traits of the tile store. `eager` holds thumbnails and the first tiles, at the places the header names. */
export interface StoreState {
  header: Header;
  eager: DataView;
}

/**
 * Messages from a view to the store. One in flight, the latest wins; `id` comes back in the reply. "method" has a
 * method of `Header.methods` (`source`) made, with the layer looked at; "cancel" stops what `job` asked for.
 */
export type Request =
  | { kind: "tile"; id: number; source: string; layer: number; head: HeadKey }
  | { kind: "layer"; id: number; source: string; layer: number; heads: HeadKey[] }
  | { kind: "row"; id: number; source: string; layer: number; head: HeadKey; row: number }
  | { kind: "thumbs"; id: number; source: string; from?: readonly [number, number] }
  | { kind: "method"; id: number; source: string; layer: number }
  | { kind: "cancel"; id: number; job: number }
  | { kind: "ping"; id: number };

/**
 * "tile", "thumbs": one buffer of codes; of a source in `parts` as many heads of one layer as are made in a moment, beginning
 * `from` the place of a layer and of a head. "layer": one buffer with the tiles of several heads, and why others cannot be had;
 * what would make it too large is left out, to be asked for again. "row": one buffer of little-endian float32, exact. What takes the model waits
 * until no cell is running (`done` is null), tells its progress, and ends with what was asked for, "made",
 * "cancelled" or "error".
 */
export type Reply =
  | ({ kind: "tile"; id: number } & AnyTileMeta)
  | {
      kind: "layer";
      id: number;
      source: string;
      layer: number;
      tiles: (AnyTileMeta & Placed)[];
      refused: { head: HeadKey; message: string }[];
    }
  | { kind: "row"; id: number; source: string; layer: number; head: HeadKey; row: number }
  | ({ kind: "thumbs"; id: number } & Thumbs & Partial<Part>)
  | { kind: "pong"; id: number }
  | { kind: "progress"; id: number; text: string; done: number | null; total: number | null }
  | { kind: "made"; id: number; source: string }
  | { kind: "cancelled"; id: number; superseded: boolean }
  | { kind: "error"; id: number; message: string; needsKernel?: boolean };

/** From a view to its own Python twin: a topic that the twin knows, and its arguments. */
export type Question =
  | { kind: "ask"; id: number; topic: string; args: Record<string, unknown> }
  | { kind: "cancel"; id: number; job: number };

/** The answer, with any buffers; what runs a model waits, tells its progress and can be stopped, as above. */
export type QuestionReply =
  | { kind: "answer"; id: number; meta: unknown }
  | Extract<Reply, { kind: "progress" | "cancelled" | "error" }>;

/** A cell of a map. `unit` says what the indices count; -1: none. */
export interface Cell {
  unit: string;
  query: number;
  key: number;
}

/** A head without what it writes. Its twin, with the fields in this order, is `attnwidgets/views/interventions/specs.py`. */
export interface Ablated {
  kind: "ablate";
  stack: string;
  layer: number;
  head: number;
  how: "zero" | "mean";
}

/** A row of attention that is set; query and key are counted in tokens. */
export interface SetRow {
  kind: "row";
  stack: string;
  layer: number;
  head: number;
  query: number;
  to: "uniform" | "one_hot" | "free";
  /** Of "one_hot". */
  key?: number;
  /** Of "free": the share, 0 to 1, of what can move. */
  amount?: number;
}

/** One active intervention. */
export type Spec = Ablated | SetRow;

/** Traits of the shared selection. `hover` is set in the browser and never saved to the kernel. */
export interface SelectionState {
  layer: number;
  head: HeadKey;
  unit: string;
  method: string;
  stack: string;
  pinned: Cell | null;
  /** What the reader chose among the predictions, for methods that explain a target. */
  target: Outcome | null;
  foil: Outcome | null;
  /** Attributions are shown inside the model: what they say of `layer`, instead of the input. */
  inside: boolean;
  /** A feature of a sparse autoencoder. */
  feature: number | null;
  /** The active interventions, in the order in which they apply. */
  interventions: readonly Spec[];
  hover: Cell | null;
}

/** Traits of the runtime: where the parts are that a view may need, by name. */
export interface RuntimeState {
  parts: Record<string, string>;
}

/** Every view carries these four traits and no more. References have the form "anywidget:<model id>". */
export interface ViewState {
  runtime: string;
  store: string;
  selection: string;
  options: ViewOptions;
  /** `Opening[]` in JSON after its length in four bytes, then all buffers; null where nothing travels along. */
  opening: DataView | null;
}

/** A question that a view asks as it opens, answered. */
export interface Opening {
  topic: string;
  args: Record<string, unknown>;
  meta: unknown;
  /** Bytes of each of its buffers. */
  lengths: number[];
}

export interface ViewOptions {
  /** Fixed method / unit / stack of this view; null: follow the selection. */
  method: string | null;
  unit: string | null;
  stack: string | null;
  /** Heads and layers are shown counted from 0 or 1. */
  indexBase: 0 | 1;
  title: string;
  /** Outlined cells (Heatmap: [query, key]) or elements (TokenStrip: index). */
  marks: [number, number][] | number[];
  /** What an Explorer offers. Empty: everything the store has. */
  methods: string[];
  units: string[];
  filters: Partial<Filters>;
}

/** What a HeadGrid's options have besides. */
export interface HeadGridOptions extends ViewOptions {
  grid: GridOptions;
}

/** How heads stand, and which: by which statistic, in which order, from which value on, and by name. */
export interface GridOptions {
  sort: string;
  order: string;
  lowest: boolean;
  /** The least value shown, or (lowest first) the greatest; null: all. */
  only: number | null;
  heads: string;
}

/** What a TokenStrip's options have besides. */
export interface TokenStripOptions extends ViewOptions {
  ranks: Ranks | null;
}

/** From which rank to which every element moves over versions of what is shown, and which change places with another. */
export interface Ranks {
  unit: string;
  low: number[];
  high: number[];
  unsettled: number[];
  versions: number;
}

/** What a HeadView's options have besides. */
export interface HeadViewOptions extends ViewOptions {
  /** Heads shown; null: all. */
  heads: number[] | null;
  /** Of a pair of texts, whose pairs are shown: "all", or "A-B" for what the first reads in the second, ... */
  between: string;
}

/** What a view leaves out of its maps, and how it colours them; "": as the view does by itself. */
export interface Filters {
  /** Special tokens are shown; left out; left out, and the rest of every row divided by its sum. */
  special: "show" | "hide" | "renormalise";
  /** Share of every row's mass that is shown, the largest values first. */
  mass: number;
  /** Smaller values are not shown. */
  least: number;
  scale: "" | "linear" | "sqrt" | "log";
  /** One colour range for all layers and heads, or one for each map. */
  extent: "" | "map" | "all";
  palette: string;
}
