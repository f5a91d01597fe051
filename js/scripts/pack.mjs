/** Text that repeats itself, written shorter: each repeated piece is replaced by a letter. */
const SIGNS = [
  ..."ABCDEFGHIJKLMNOPQRSTUVWXYZ~^|?&<>_@'[]=¡¢£¤¥¦§¨©ª«¬®¯°±²³´µ¶¸¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞß",
];
const LONGEST = 40;

/** How many bytes a letter of `size` saves for a `piece` that occurs `count` times; it must be spelled out once. */
const gain = (piece, count, size) => count * (piece.length - size) - piece.length - size - 1;

function best(text, size) {
  let [best, most] = ["", 0];
  // A piece repeats only where the shorter piece that it begins with does: the places left get few at once.
  let places = Array.from({ length: text.length }, (_, i) => i);
  for (let length = 3; length <= LONGEST && places.length > 0; length += 1) {
    const counts = new Map();
    for (const i of places) {
      if (i + length > text.length) continue;
      const piece = text.slice(i, i + length);
      counts.set(piece, (counts.get(piece) ?? 0) + 1);
    }
    for (const [piece, count] of counts) {
      if (gain(piece, count, size) <= most) continue;
      const saved = gain(piece, text.split(piece).length - 1, size); // those that overlap do not count
      if (saved > most) [best, most] = [piece, saved];
    }
    places = places.filter((i) => counts.get(text.slice(i, i + length)) > 1);
  }
  return best;
}

/** A JavaScript expression, as short as it gets, whose value is `text`. */
export function packed(text) {
  const [between, ...free] = SIGNS.filter((sign) => !text.includes(sign));
  const pieces = [];
  let rest = text;
  for (const sign of free) {
    const piece = best(rest, Buffer.byteLength(sign));
    if (!piece) break;
    rest = rest.replaceAll(piece, sign);
    pieces.push(sign + piece);
  }
  const quoted = JSON.stringify(pieces.join(between));
  const unpack = `(text,[sign,...piece])=>text.replaceAll(sign,piece.join(""))`;
  return `${quoted}.split("${between}").reduceRight(${unpack},${JSON.stringify(rest)})`;
}
