/** The traits of a view, and its options: those of every view, and the additional options of some. */
import type { Prediction } from "./wire.ts";

/** Every view has these traits and no more. References have the form "anywidget:<model id>". */
export interface ViewState {
  runtime: string;
  store: string;
  selection: string;
  options: ViewOptions;
  /** The length of a JSON text in four bytes, the text (`Opening[]`), then all buffers; null if nothing is embedded. */
  opening: DataView | null;
}

/** A first request of a view, with its answer. */
export interface Opening {
  topic: string;
  args: Record<string, unknown>;
  meta: unknown;
  /** The length of each buffer in bytes. */
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
  /** The choices of an Explorer. Empty: everything the store has. */
  methods: string[];
  units: string[];
  filters: Partial<Filters>;
  /** Height in px; null: that of the view. */
  height: number | null;
  /** Whether it writes claims about the shown head and the pinned cells. */
  makesClaims: boolean;
  /** The view that it opens below, about the pinned cell of a head; "": none. */
  below: "" | "WhyView" | "NeuronView";
}

/** Options of a view that may have a separate table. */
export interface TableOptions extends ViewOptions {
  /** Whether its table holds all that it shows, not the selected matrix. */
  ownTable?: boolean;
  /** The options that select the table. */
  tableOf?: string[];
}

/** Additional options of an Explorer of a trace. */
export interface ExplorerOptions extends ViewOptions {
  texts?: Texts;
}

/** The texts between which an Explorer switches. */
export interface Texts {
  /** Empty if there is a single text. */
  items: TextItem[];
  /** The index of the shown text, and of the text before it. */
  shown: number;
  previous: number | null;
  /** The shown text without its continuation; null: that of the header. */
  text: string | null;
  /** Why no other text can be typed, or "". */
  refusal: string;
}

/** A text of several: its beginning, and the model's first prediction. */
export interface TextItem {
  text: string;
  tokens: number;
  model: string;
  prediction: Prediction | null;
}

/** Additional options of a HeadGrid. */
export interface HeadGridOptions extends ViewOptions {
  grid: GridOptions;
}

/** The order and the filters of heads: the statistic, the order, the threshold, and names. */
export interface GridOptions {
  sort: string;
  order: string;
  lowest: boolean;
  /** The smallest value shown, or (lowest first) the largest; null: all. */
  only: number | null;
  heads: string;
}

/** Additional options of a NeuronView. */
export interface NeuronOptions extends ViewOptions {
  opens: OpensAt | null;
}

/** The query and the key that a NeuronView shows in a head while nothing is pinned. */
export interface OpensAt {
  stack: string;
  layer: number;
  head: number;
  pair: [query: number, key: number];
}

/** Additional options of a TokenStrip. */
export interface TokenStripOptions extends ViewOptions {
  ranks: Ranks | null;
}

/** The range of ranks of every element over variants of the explanation, and which elements swap places with others. */
export interface Ranks {
  unit: string;
  low: number[];
  high: number[];
  unsettled: number[];
  versions: number;
}

/** Additional options of TwoTexts. */
export interface TwoTextsOptions extends ViewOptions {
  /** The names of the texts. */
  names: [string, string];
  /** Largest number of visible columns of a map. */
  window: number;
  /** Methods whose maps are read without running a model. */
  recorded: string[];
}

/** Additional options of a HeadView. */
export interface HeadViewOptions extends ViewOptions {
  /** Heads shown; null: all. */
  heads: number[] | null;
  /**
   * For a pair of texts, which pairs are shown: "all", or "A-B" for the tokens of the second that the first reads, ...
   */
  between: string;
}

/** The values that a view hides in its maps, and how it colours them; "": the view's default. */
export interface Filters {
  /**
   * Special tokens are separate (next to a map, outside its scale: the default), shown in it, hidden, or hidden with
   * the rest of every row divided by its sum.
   */
  special: "apart" | "show" | "hide" | "renormalise";
  /** Share of every row's mass that is shown, the largest values first. */
  mass: number;
  /** Smaller values are hidden. */
  least: number;
  scale: "" | "linear" | "sqrt" | "log";
  /** A common colour range for all layers and heads, or a range for each map. */
  extent: "" | "map" | "all";
  palette: string;
}
