/** Interventions of the shared selection as edits of a pass; the twin of attnwidgets/views/interventions/specs.py. */
import type { Edits, Pass, Shape } from "../engine/types.ts";
import type { SetRow, Spec } from "../wire/wire.ts";
import { Unreadable } from "./reader.ts";

/** The last key that a query may read. */
const lastOf = ({ causal }: Shape, pass: Pass, query: number): number => (causal ? query : pass.tokens.length - 1);

/** A row of attention as computed [key]. */
export function rowOf({ attention, tokens }: Pass, layer: number, head: number, query: number): Float32Array {
  const n = tokens.length;
  const at = (head * n + query) * n;
  const row = attention[layer]?.subarray(at, at + n) ?? new Float32Array();
  if (query >= n || row.length < n) throw new Unreadable("This layer, head or token does not exist.");
  return row;
}

/** The output of a head at every token, on average [number]. */
function meanOutput({ mixed, tokens }: Pass, { heads, size }: Shape, layer: number, head: number): Float32Array {
  const out = new Float32Array(size);
  const all = mixed[layer] ?? out;
  for (let at = head * size; at < all.length; at += heads * size) {
    for (let i = 0; i < size; i += 1) out[i] = (out[i] as number) + (all[at + i] as number) / tokens.length;
  }
  return out;
}

function newRow(shape: Shape, pass: Pass, { layer, head, query, to, key = 0 }: SetRow): Float32Array {
  const row = rowOf(pass, layer, head, query);
  const last = lastOf(shape, pass, query);
  if (to === "uniform") return row.map((_, i) => (i <= last ? 1 / (last + 1) : 0));
  if (to === "one_hot") return key <= last ? row.map((_, i) => Number(i === key)) : row;
  throw new Unreadable("what is free in a row is not in this file; it needs a running kernel");
}

/** Interventions as edits of a pass, given the unchanged pass. */
export function editsOf(shape: Shape, pass: Pass, specs: readonly Spec[]): Edits {
  const outputs = new Map<string, Float32Array | null>();
  const rows = new Map<string, Float32Array>();
  for (const spec of specs) {
    const at = `${spec.layer}.${spec.head}`;
    rowOf(pass, spec.layer, spec.head, 0);
    if (spec.kind === "row") rows.set(`${at}.${spec.query}`, newRow(shape, pass, spec));
    else outputs.set(at, spec.how === "mean" ? meanOutput(pass, shape, spec.layer, spec.head) : null);
  }
  return { outputs, rows };
}

/** The changes in words: "head 0 of layer 1 set to zero". */
export function changeWords(specs: readonly Spec[]): string {
  return specs
    .map((spec) => {
      const head = `head ${spec.head} of layer ${spec.layer}`;
      if (spec.kind === "ablate") return `${head} ${spec.how === "mean" ? "replaced by its mean" : "set to zero"}`;
      return `attention of ${head} at token ${spec.query} ${spec.to === "uniform" ? "uniform" : `all on token ${spec.key}`}`;
    })
    .join(", ");
}
