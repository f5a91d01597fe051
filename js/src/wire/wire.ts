/**
 * The messages and traits between Python and the browser. The Python twins are in `attnwidgets/views/wire/` and
 * `attnwidgets/views/base/`.
 */

/** An ordered list of display elements along a side of a map, in a unit. */
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
  /** The patch that each element is, counted row by row, or -1; null: those that are not special are the patches in order. */
  cells: number[] | null;
  /**
   * When an element of a sound begins: at `start` seconds, and every next element `step` later, for `width`; or null.
   */
  times: { start: number; step: number; width: number } | null;
}

/** A family of matrices: a method in a unit and a stack. */
export interface Source {
  id: string; // `${method}/${unit}/${stack}`
  /**
   * Key used by Selection.method. "lrp" explains the prediction, "lrp@1" class or token 1, "lrp@1-0" 1 rather than 0;
   * "lrp:layers" holds the values in every layer.
   */
  method: string;
  title: string; // "attention", "rollout", ... as shown
  /** The question that the method answers, under which menus list it, and its answer in a few words; "": no method. */
  question: string;
  gist: string;
  unit: string;
  stack: string;
  query: string; // key into Header.axes
  key: string;
  /** The AxisWords of Python: the names of rows and columns, the relation between them, and the question about {}. */
  words: [row: string, column: string, verb: string, back: string, question: string, askedBack: string];
  layers: number[]; // original layer numbers
  /**
   * Values of states: each layer number refers to that layer's input, and `output`, the number of layers, to the output
   * of the last. `input` names the state before the first layer ("embedding"); "": it is the first layer's input.
   */
  states: { input: string; output: number } | null;
  /** Layers that are ready, for a method computed layer by layer on demand; null: all. */
  computed: number[] | null;
  heads: number[] | null; // original head numbers; null: no head axis
  /** How every layer's block mixes tokens; null in models of attention alone. */
  mixers: Mixers | null;
  /** Its matrices have more cells than a message may hold: its tiles are `Coarse`. */
  coarse: boolean;
  /** Its thumbnails are sent a few heads at a time, as they scroll into view. */
  parts: boolean;
  causal: boolean;
  signed: boolean;
  /** Rows sum to one, including the weight on a sink: the colour scale may have the label "share of the row". */
  stochastic: boolean;
  /** A part of a row may go to no element: `RowFacts.sink`. */
  sink: boolean;
  /** "map": rows are queries. "attributions": rows are targets, keys are the attributed tokens. */
  kind: "map" | "attributions";
  /** How the values were aggregated ("sum over key pieces, mean over query pieces"). */
  note: string;
  /** A warning for the reader: "512 of 734 tokens", or a declared property that does not hold. */
  warning: string;
  /** Whether the method can explain a chosen target. */
  targets: boolean;
  /** How much of each target the elements account for, in a sentence; empty if the method conserves nothing. */
  accounts: string[];
  /** The name of the sum of the values of each target, term by term. */
  sums: string[];
  /**
   * The part of each target that the tokens hold, and the part that no token holds; empty if the method conserves
   * nothing.
   */
  balance: [number, number][];
  /** The word with the most evidence for every target, in words; empty for maps. */
  findings: string[];
  /** A note on conservation in this architecture. */
  verdict: string;
}

/** Some heads of a block, or its mixer without heads: the HeadGroup of Python. */
export interface HeadGroup {
  /** "gated delta rule", or "convolution, reaches back 2 tokens". */
  name: string;
  /** 0: the block has a single map of all channels. */
  heads: number;
  /** The meaning of its values: an index of `meanings`. */
  meaning: number;
  attends: boolean;
  /** Why no head of it can be knocked out, or "". */
  fixed: string;
}

/** The blocks of a model, of which not all attend. */
export interface Mixers {
  layers: Record<number, HeadGroup[]>;
  /** The meaning of values, in words; "" for attention weights. */
  meanings: string[];
}

/** Head of a tile: a head by number, a reduction over heads by name, or "-" without a head axis. */
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
 * Additional fields of a tile whose matrix is too large for a message: its full number of rows and columns. A code is
 * the largest of a block of cells; the codes are followed by the exact means of the columns, little-endian float32.
 */
export interface Coarse {
  whole: [number, number];
}

/** Additional fields of a tile with facts about its rows. */
export interface RowFacts {
  /** The weight of every row on no element, 0 to 1; absent without a sink. */
  sink: number[];
  /**
   * Which keys every row may read: bits in base64, one for each cell, row-major, the lowest of a byte first. Absent
   * where these are all, or all but the later keys.
   */
  compared: string;
}

/** An additional field of a tile that a page computes: by how many codes a cell may be off, beyond rounding to a code. */
export interface Inexact {
  slack: number;
}

export type AnyTileMeta = TileMeta & Partial<Coarse & RowFacts & Inexact>;

export interface Placed {
  offset: number;
  length: number;
}

/** Thumbnails of a source; their codes are ordered [layer][head][row][col]. */
export interface Thumbs {
  source: string;
  rows: number; // of a thumbnail, max-pooled
  cols: number;
  gamma: number;
  signed: boolean;
  /** Largest absolute value per [layer][head], the scale of that thumbnail; -1: the head does not exist (pruned). */
  scale: number[][];
  /** Whether special tokens are among rows and columns; false if there are none that stand apart. */
  special: boolean;
}

/** For a reply with some heads of a layer: the indices of the layer and of the first head. */
export interface Part {
  part: [number, number];
}

/** A class or token: its index among the logits, and its name. */
export interface Outcome {
  label: string;
  id: number;
}

export interface Prediction extends Outcome {
  /** null: a number, which its label spells. */
  probability: number | null;
}

/** A method that can be computed on demand, or the reason why it cannot. */
export interface Offer {
  method: string; // Source.method of the result
  title: string;
  summary: string;
  question: string;
  gist: string;
  /** Its cost beyond the recorded pass: in words, and about how long. */
  cost: string;
  speed: "instant" | "seconds" | "minutes";
  refusal: string;
  /** A warning to show before it is used, such as a declared property that does not hold. */
  mark: string;
  targets: boolean;
}

export interface Header {
  version: 1;
  model: string;
  text: string;
  axes: Record<string, Axis>;
  sources: Source[];
  /** Methods that are not among the sources yet. */
  methods: Offer[];
  /** Thumbnails in the eager bytes; the others are requested. */
  thumbs: (Thumbs & Placed)[];
  /** Tiles in the eager bytes. */
  tiles: (AnyTileMeta & Placed)[];
  /**
   * `method` is the key of the method that explains them, unless the reader has chosen a method; "" without a method.
   * `explained` are the ids that a page explains; null: a kernel explains any.
   */
  predictions: { title: string; items: Prediction[]; method: string; explained: number[] | null };
}

/**
 * Traits of the tile store. `eager` holds thumbnails and the first tiles, at the offsets that the header gives; `media`
 * refers to the picture or sound of the trace, if a view shows it.
 */
export interface StoreState {
  header: Header;
  eager: DataView;
  /** The model that computes without a kernel: empty until a view requests it, null where the model is too large. */
  stand_in: StandInState | Record<string, never> | null;
  media: string | null;
}

/** References to a small model (`PackedLive` of src/live/session.ts) and to the part that runs it. */
export interface StandInState {
  model: string;
  code: string;
  /** The recorded text in tokens. */
  ids: number[];
}

/**
 * Messages from a view to the store. A single message is in flight, and the latest wins; the reply has the same `id`.
 * "method" has a method of `Header.methods` (`source`) computed, with the current layer; "cancel" stops the request
 * `job`.
 */
export type Request =
  | { kind: "tile"; id: number; source: string; layer: number; head: HeadKey }
  | { kind: "layer"; id: number; source: string; layer: number; heads: HeadKey[] }
  | { kind: "row"; id: number; source: string; layer: number; head: HeadKey; row: number }
  | { kind: "thumbs"; id: number; source: string; special: boolean; from?: readonly [number, number] }
  | { kind: "method"; id: number; source: string; layer: number }
  | { kind: "cancel"; id: number; job: number }
  | { kind: "ping"; id: number };

/**
 * "tile", "thumbs": a buffer of codes; for a source in `parts`, all heads of a layer that can be computed quickly,
 * starting at the layer and head indices `from`. "layer": a buffer with the tiles of several heads, and why others are
 * unavailable; tiles that would exceed the size limit are omitted and can be requested again. "row": a buffer of
 * little-endian float32, exact. A request that runs the model waits until no cell is running (`done` is null), reports
 * its progress, and ends with the requested data, "made", "cancelled" or "error".
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

/** From a view to its Python twin: a topic that the twin handles, and its arguments. */
export type Question =
  | { kind: "ask"; id: number; topic: string; args: Record<string, unknown> }
  | { kind: "cancel"; id: number; job: number };

/**
 * The answer, with any buffers and their lengths in bytes; a request that runs the model waits, reports progress and
 * can be cancelled, as above.
 */
export type QuestionReply =
  | { kind: "answer"; id: number; meta: unknown; lengths: number[] }
  | Extract<Reply, { kind: "progress" | "cancelled" | "error" }>;

/** A cell of a map. `unit` is the unit of the indices; -1: none. */
export interface Cell {
  unit: string;
  query: number;
  key: number;
  /** The only layer in which it was chosen; absent: the shown layer. */
  layer?: number;
}

/** A previewed cell, or the component that wrote a part of it, in which case `query` and `key` may both be -1. */
export interface Preview extends Cell {
  /** Layer and head, in the selected stack. */
  head?: readonly [number, number];
  /** A feature of a sparse autoencoder. */
  feature?: number;
}

/** Consecutive elements of an axis, from `start` up to, not including, `stop`. */
export interface Span {
  start: number;
  stop: number;
  unit: string;
  side: "query" | "key";
}

/**
 * A head whose output is ablated. Its twin, with the fields in this order, is
 * `attnwidgets/views/interventions/specs.py`.
 */
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
  /** For "one_hot". */
  key?: number;
  /** For "free": the share (0 to 1) of the movable mass. */
  amount?: number;
}

/** An active intervention. */
export type Spec = Ablated | SetRow;

/** Traits of the shared selection. `hover` is set in the browser and never saved to the kernel. */
export interface SelectionState {
  layer: number;
  head: HeadKey;
  unit: string;
  method: string;
  stack: string;
  /** The last of `pins`, or null. */
  pinned: Cell | null;
  /** All pinned cells in the order in which they were chosen, in the same unit; at most 400. */
  pins: readonly Cell[];
  /** Heads chosen together, as [layer, head], in the selected stack; empty: only the shown head. */
  heads: readonly (readonly [number, number])[];
  span: Span | null;
  /** Target and foil that the reader chose among the predictions. */
  target: Outcome | null;
  foil: Outcome | null;
  /** Whether attributions are shown in `layer` instead of at the input. */
  inside: boolean;
  /** A feature of a sparse autoencoder. */
  feature: number | null;
  /** The active interventions, in the order in which they apply. */
  interventions: readonly Spec[];
  /** The cell with which the first view opened; null without a main weight of its map. */
  opening: Opens | null;
  hover: Preview | null;
  /** Set in the browser with every save; null in Python. */
  writer: Writer | null;
}

/**
 * The page that saved last, how many times it has, and the names of all values that it saved since the kernel last sent
 * `Moved` for it.
 */
export interface Writer {
  page: number;
  count: number;
  names: string[];
}

/** From a page that opens to the shared selection, which answers with `Moved`: where is the reader? */
export interface Where {
  kind: "where";
}

/**
 * From the shared selection to all its pages: the values that a page saved (null: saved by another component), as the
 * kernel has them now.
 */
export interface Moved {
  kind: "moved";
  writer: Writer | null;
  values: Partial<SelectionState>;
}

/** Traits of the runtime: references to the loaded parts, by name. */
export interface RuntimeState {
  parts: Record<string, string>;
}

/**
 * The cell at which a view opens before the reader chooses; the twin of `Opening` of attnwidgets/views/base/opening.py.
 */
export interface Opens {
  layer: number;
  head: number | null;
  /** The unit that `query` and `pair` count. */
  unit: string;
  /** The last content element, to be shown while nothing is pinned; -1: none. */
  query: number;
  /** The strongest pair of content elements of the head. */
  pair: [number, number] | null;
  /**
   * The behaviour of the head: "reads the token before"; "" if no pattern chose it. Holds for this layer and head only.
   */
  words: string;
  /** The main weight of the map of this layer and head: "“is” attends to “France” (0.90)."; or "". */
  sentence: string;
  value: number | null;
  /** Why no head was searched for, or "". */
  note: string;
}
