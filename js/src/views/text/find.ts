/** Finding a piece of text in a strip: also one that goes over several elements, and where labels mark their spaces. */
import { carriesSpaces, continues } from "./rowValues.ts";

/** Elements from the first to the last that holds a piece of what was looked for. */
export type Hit = readonly [from: number, to: number];

interface Joined {
  text: string;
  /** Where every element ends in it. */
  ends: number[];
}

const JOINED = new WeakMap<readonly string[], Joined>();

const plain = (text: string): string => text.replace(/[␣▁Ġ\s]/gu, " ").toLowerCase();

/** The text of labels; put together once, for a reader types letter by letter. */
function joined(labels: readonly string[]): Joined {
  let made = JOINED.get(labels);
  if (!made) {
    const spaced = !carriesSpaces(labels);
    const ends: number[] = [];
    let text = "";
    labels.forEach((label, i) => {
      if (spaced && i > 0 && !continues(label)) text += " ";
      text += plain(spaced && continues(label) ? label.slice(2) : label);
      ends.push(text.length);
    });
    made = { text, ends };
    JOINED.set(labels, made);
  }
  return made;
}

/** Every place of `wanted` in the text of these labels, capitals or not, in order and without overlaps. */
export function findHits(labels: readonly string[], wanted: string): Hit[] {
  const looked = plain(wanted);
  const { text, ends } = joined(labels);
  const hits: Hit[] = [];
  let element = 0;
  for (let at = looked.trim() ? text.indexOf(looked) : -1; at >= 0; at = text.indexOf(looked, at + looked.length)) {
    // Spaces at the edges of what is looked for need not be inside of the elements that are shown.
    const first = at + looked.search(/\S/);
    const last = at + looked.trimEnd().length;
    while ((ends[element] as number) <= first) element += 1;
    const from = element;
    while ((ends[element] as number) < last) element += 1;
    hits.push([from, element]);
  }
  return hits;
}
