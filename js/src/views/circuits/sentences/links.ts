/**
 * Dependences between sentences, read from a single matrix: rows depend on columns. The twin of `links_of` in
 * still/texts.py.
 */

/** A dependence of a sentence on another sentence. */
export interface Link {
  /** The sentence that depends. */
  query: number;
  /** The sentence that it depends on. */
  key: number;
  value: number;
}

export interface Links {
  count: number;
  /** All that are not zero, the strongest first. */
  all: readonly Link[];
  /** The largest size. */
  top: number;
}

/** How many arcs are drawn at most, by sentence and in all. */
const [BY_SENTENCE, MOST] = [3, 300];

/** The dependences between sentences that are at least `distance` apart, neither of them special. */
export function linksOf(
  value: (query: number, key: number) => number,
  count: number,
  distance: number,
  special: readonly number[],
): Links {
  const all: Link[] = [];
  for (let query = 0; query < count; query += 1) {
    for (let key = 0; key < count; key += 1) {
      if (Math.abs(query - key) < distance || special[query] || special[key]) continue;
      const weight = value(query, key);
      if (weight) all.push({ query, key, value: weight }); // NaN is none
    }
  }
  const finite = all.filter((link) => Number.isFinite(link.value));
  finite.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return { count, all: finite, top: Math.abs(finite[0]?.value ?? 0) };
}

/** The strongest of at least a share of the largest. */
export function strongest({ all, count, top }: Links, least: number): Link[] {
  return all.filter(({ value }) => Math.abs(value) >= least * top).slice(0, Math.min(MOST, BY_SENTENCE * count));
}

/** The dependences of a sentence, and of other sentences on it; the strongest first. */
export function around({ all }: Links, sentence: number): { on: Link[]; of: Link[] } {
  return {
    on: all.filter(({ query }) => query === sentence),
    of: all.filter(({ key }) => key === sentence),
  };
}
