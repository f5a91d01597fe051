/** Text that repeats itself, written shorter: each piece that comes again and again gets a letter of its own. */
const SIGNS = [
  ..."ABCDEFGHIJKLMNOPQRSTUVWXYZ~^|?&<>_@'[]=¡¢£¤¥¦§¨©ª«¬®¯°±²³´µ¶¸¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞß",
];
const LONGEST = 40;

/** How many bytes a letter of `size` saves for a `piece` that stands `count` times; it must be spelled out once. */
const gain = (piece, count, size) => count * (piece.length - size) - piece.length - size - 1;

function best(text, size) {
  const counts = new Map();
  for (let length = 3; length <= LONGEST; length += 1) {
    for (let i = 0; i + length <= text.length; i += 1) {
      const piece = text.slice(i, i + length);
      counts.set(piece, (counts.get(piece) ?? 0) + 1);
    }
  }
  let [found, most] = ["", 0];
  for (const [piece, count] of counts) {
    if (gain(piece, count, size) <= most) continue;
    const saved = gain(piece, text.split(piece).length - 1, size); // those that overlap do not count
    if (saved > most) [found, most] = [piece, saved];
  }
  return found;
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
