/** Finding text in a strip, also across elements and if labels mark their spaces. */
import { carriesSpaces, continues } from "./rowValues.ts";

/** The first and the last element of a match. */
export type Hit = readonly [from: number, to: number];

interface Joined {
  text: string;
  /** The end of every element in it. */
  ends: number[];
}

const JOINED = new WeakMap<readonly string[], Joined>();

const plain = (text: string): string => text.replace(/[␣▁Ġ\s]/gu, " ").toLowerCase();

/** The joined text of labels, cached while the reader types. */
function joined(labels: readonly string[]): Joined {
  let cached = JOINED.get(labels);
  if (!cached) {
    const spaced = !carriesSpaces(labels);
    const ends: number[] = [];
    let text = "";
    labels.forEach((label, i) => {
      if (spaced && i > 0 && !continues(label)) text += " ";
      text += plain(spaced && continues(label) ? label.slice(2) : label);
      ends.push(text.length);
    });
    cached = { text, ends };
    JOINED.set(labels, cached);
  }
  return cached;
}

/** All matches of `query` in the text of these labels, ignoring case, in order and without overlaps. */
export function findHits(labels: readonly string[], query: string): Hit[] {
  const pattern = plain(query);
  const { text, ends } = joined(labels);
  const hits: Hit[] = [];
  let element = 0;
  for (let at = pattern.trim() ? text.indexOf(pattern) : -1; at >= 0; at = text.indexOf(pattern, at + pattern.length)) {
    // Leading and trailing spaces of the search text need not be inside the elements.
    const first = at + pattern.search(/\S/);
    const last = at + pattern.trimEnd().length;
    while ((ends[element] as number) <= first) element += 1;
    const from = element;
    while ((ends[element] as number) < last) element += 1;
    hits.push([from, element]);
  }
  return hits;
}
