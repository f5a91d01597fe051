/** The mass of a token, followed down through the layers, and the edges that carry it. */

/** A layer: [query, key] row by row, every row summing to one. */
export interface Step {
  rows: Float32Array;
  count: number;
  /** The largest share of every row. */
  tops: Float32Array;
}

/** An edge, from a token after a layer to a token before it; `level` counts layers from the input up. */
export interface Edge {
  level: number;
  query: number;
  key: number;
  mass: number;
}

export interface Flow {
  /** The edges drawn, weakest first. */
  edges: Edge[];
  /** The number of edges that reach the threshold, drawn or not. */
  count: number;
  /** The share of all mass that the drawn edges carry, 0 to 1. */
  share: number;
  /** The mass of every token at each level, from the input up; empty if all tokens are shown. */
  masses: Float64Array[];
}

/** Rows of values as shares; a row of zeros stays so. */
export function stepOf(value: (row: number, col: number) => number, count: number): Step {
  const rows = new Float32Array(count * count);
  const tops = new Float32Array(count);
  for (let q = 0; q < count; q += 1) {
    let sum = 0;
    for (let k = 0; k < count; k += 1) {
      const share = Math.max(0, value(q, k)) || 0;
      rows[q * count + k] = share;
      sum += share;
    }
    for (let k = 0; sum > 0 && k < count; k += 1) {
      const share = (rows[q * count + k] as number) / sum;
      rows[q * count + k] = share;
      tops[q] = Math.max(tops[q] as number, share);
    }
  }
  return { rows, count, tops };
}

/** Distribute a token's mass over the tokens below it. A separate function because it is hot. */
function pass(rows: Float32Array, start: number, here: number, below: Float64Array): void {
  for (let key = 0; key < below.length; key += 1) {
    below[key] = (below[key] as number) + here * (rows[start + key] as number);
  }
}

/** All edges that carry at least the share `least` of the token after their layer. */
export function everyEdge(steps: readonly Step[], least: number, budget: number): Flow {
  const edges: Edge[] = [];
  steps.forEach(({ rows, count }, level) => {
    for (let i = 0; i < rows.length; i += 1) {
      const mass = rows[i] as number;
      if (mass >= least) edges.push({ level, query: Math.floor(i / count), key: i % count, mass });
    }
  });
  const total = steps.reduce((sum, { count }) => sum + count, 0);
  return strongest(edges, budget, total, []);
}

/** The same for a single token after `level` layers: the mass that reaches it from below, as shares of its mass. */
export function flowOf(steps: readonly Step[], level: number, token: number, least: number, budget: number): Flow {
  const count = steps[0]?.count ?? 0;
  const edges: Edge[] = [];
  const masses: Float64Array[] = [];
  let mass = new Float64Array(count);
  mass[token] = 1;
  masses[level] = mass;
  for (let at = level - 1; at >= 0; at -= 1) {
    const { rows, tops } = steps[at] as Step;
    const below = new Float64Array(count);
    for (let query = 0; query < count; query += 1) {
      const here = mass[query] as number;
      if (here === 0) continue;
      const start = query * count;
      pass(rows, start, here, below);
      // `tops` are rounded as the shares are.
      if (here * (tops[query] as number) < least) continue;
      for (let key = 0; key < count; key += 1) {
        const part = here * (rows[start + key] as number);
        if (part >= least) edges.push({ level: at, query, key, mass: part });
      }
    }
    masses[at] = below;
    mass = below;
  }
  return strongest(edges, budget, level, masses);
}

/** The strongest edges between different tokens, then, if there is room, those that stay at their token. */
function strongest(edges: Edge[], budget: number, total: number, masses: Float64Array[]): Flow {
  const weakestFirst = (a: Edge, b: Edge): number => a.mass - b.mass;
  const last = (list: Edge[], count: number): Edge[] => list.sort(weakestFirst).slice(Math.max(0, list.length - count));
  const between = last(
    edges.filter(({ query, key }) => query !== key),
    budget,
  );
  const staying = last(
    edges.filter(({ query, key }) => query === key),
    budget - between.length,
  );
  const drawn = [...between, ...staying].sort(weakestFirst);
  const sum = drawn.reduce((all, edge) => all + edge.mass, 0);
  return { edges: drawn, count: edges.length, share: total > 0 ? Math.min(1, sum / total) : 0, masses };
}

/** The threshold for a slider position from 0 to 1: 0.2 % to 50 %, on a logarithmic scale. */
export function leastAt(position: number): number {
  const value = 0.002 * 250 ** position;
  return Number(value.toPrecision(2));
}

/** The slider position for a threshold. */
export function positionOf(least: number): number {
  return Math.log(least / 0.002) / Math.log(250);
}
