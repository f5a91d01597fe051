/** The engine as the page asks it: every answer is a promise, whether it is computed in a worker or in the page. */
import { type Edits, forward, type Model, type Pass, UNCHANGED } from "../live/forward.ts";
import { logSum, type Sampling, sampler } from "./sampling.ts";

export type { Edits, Pass, Shape } from "../live/forward.ts";
export { type Sampling, UNCHANGED };

/** What of a pass comes back: logits of the last row or of all, and queries, keys and values of heads. */
export interface Wanted {
  logits: "last" | "all";
  heads: boolean;
}

/** What was drawn: natural logarithms of the probabilities are of the model alone. */
export interface Drawn {
  ids: number[];
  logs: number[];
}

export interface EngineClient {
  pass(ids: readonly number[], edits: Edits, wanted: Wanted): Promise<Pass>;
  /** Goes on until `onToken` returns false. */
  continued(ids: readonly number[], how: Sampling, onToken: (id: number) => boolean): Promise<Drawn>;
}

/** The engine in the page itself. */
export const localClient = (model: Model): EngineClient => ({
  pass: async (ids, edits) => forward(model, ids, edits),
  async continued(ids, how, onToken) {
    const out: Drawn = { ids: [], logs: [] };
    const draw = sampler(how);
    const count = (model.weights.out ?? (model.weights.token as Float32Array)).length / model.width;
    let past = forward(model, ids);
    for (let last = -1; out.ids.length < how.length && !how.ends.includes(last); ) {
      if (last >= 0) past = forward(model, [last], UNCHANGED, past);
      const logits = past.logits.subarray(-count);
      last = draw(logits);
      out.ids.push(last);
      out.logs.push((logits[last] as number) - logSum(logits));
      if (!onToken(last)) break;
    }
    return out;
  },
});
