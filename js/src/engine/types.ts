/** The inputs and outputs of an engine. Matrices are row by row, and axes are in brackets, outermost first. */
import type { PackedTensor } from "./kinds.ts";

/** The numbers of activations in the kernels. */
export const ACTIVATIONS = { relu: 0, tanh: 1, silu: 2, gelu: 3, gelu_new: 4 } as const;
export type Activation = keyof typeof ACTIVATIONS;

/** The configuration of a model without its weights; see `Layout` of attnwidgets/views/page/live/weights.py. */
export interface Shape {
  width: number;
  heads: number;
  /** Number of key and value heads. */
  sources: number;
  /** Numbers of a head. */
  size: number;
  causal: boolean;
  /** Whether norms follow the residual connection, as in BERT. */
  after: boolean;
  /** Whether norms leave the mean in, as in Llama. */
  rms: boolean;
  eps: number;
  /** Base of the rotary embedding; 0: none. */
  rotary: number;
  /** The factor of q · k, by layer. */
  scales: number[];
  activation: Activation;
  /** Which rows the head of the model reads, and its steps before the last. */
  reads: "all" | "first" | "last" | "none";
  steps: (Activation | "norm")[];
  /** For "last": a token that does not count as the last; -1: none. */
  padding: number;
}

/**
 * A model as a page holds it: its tensors in the order in which they follow each other. Names of a layer begin with its
 * number: "0.q".
 */
export interface PackedModel {
  shape: Shape;
  layers: number;
  tensors: PackedTensor[];
}

/** The changes of a pass, by layer and head. */
export interface Edits {
  /** Replaced outputs of heads at every token, by "layer.head": null for zero, or [size]. */
  outputs: ReadonlyMap<string, Float32Array | null>;
  /** A row of attention [key], by "layer.head.query". */
  rows: ReadonlyMap<string, Float32Array>;
}

export const UNCHANGED: Edits = { outputs: new Map(), rows: new Map() };

export interface Outputs {
  /** Logits of the last row, or of all that the model's head reads. */
  logits: "last" | "all";
  /** Whether queries, keys and values are returned. */
  heads: boolean;
}

/** A pass: everything by layer; `attention` [head, query, key], the others [token, head, number]. */
export interface Pass {
  tokens: number[];
  attention: Float32Array[];
  /**
   * Queries, keys and values as attention compares and mixes them, after norms and rotation; empty unless requested.
   */
  queries: Float32Array[];
  keys: Float32Array[];
  values: Float32Array[];
  /** Outputs of heads before any edit. */
  mixed: Float32Array[];
  /** The last states [token, width]. */
  states: Float32Array;
  /** [row, outcome] */
  logits: Float32Array;
}

/** A logit, or a difference of two. */
export interface Target {
  /** Row of the logits; -1 is the last. */
  row: number;
  plus: number;
  minus: number | null;
}

/** "gradient" is gradient x input; "lrp" AttnLRP and "cp_lrp" CP-LRP, as in attnwidgets/relevance. */
export type Rule = "gradient" | "lrp" | "cp_lrp";

/** The evidence of every component for a target, in the unit of the target. */
export interface Relevance {
  /** The target. */
  value: number;
  /** Word embeddings, without positions [token]. */
  tokens: Float32Array;
  /** Outputs of heads, after edits, by layer [head, token]. */
  heads: Float32Array[];
}

/** How a text is continued: as `aw.continuations`. */
export interface Sampling {
  how: "greedy" | "sample";
  length: number;
  temperature: number;
  /** Sample from the k largest outcomes; 0: from all. */
  top_k: number;
  top_p: number;
  seed: number;
  /** Tokens that end a text. */
  ends: number[];
}

export interface Continuation {
  ids: number[];
  /** Natural logarithm of the probability of every token, by the model alone. */
  logs: number[];
  /** Whether the text ended with one of `ends`. */
  ended: boolean;
}
