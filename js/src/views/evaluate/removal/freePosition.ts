/** Positions for labels inside a chart: near the lines they name, and clear of everything else. */

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export type Point = readonly [x: number, y: number];

/** px between candidate positions, and between a label and a line. */
const STEP = 8;
const GAP = 5;

/** Distance from a box to a point; 0 inside. */
const away = ({ x, y, width, height }: Box, [px, py]: Point): number =>
  Math.hypot(Math.max(x - px, 0, px - x - width), Math.max(y - py, 0, py - y - height));

const overlap = (a: Box, b: Box): boolean =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/**
 * The position in `area` for a label of this size that is nearest to the points of its line, clear of these and of
 * `others`, nearer to its line than to the others if possible, and clear of the boxes in `occupied`.
 */
export function freePosition(
  area: Box,
  { width, height }: { width: number; height: number },
  path: readonly Point[],
  others: readonly Point[],
  occupied: readonly Box[],
): Box {
  let best: Box = { x: area.x, y: area.y, width, height };
  let least = Infinity;
  const nearest = (box: Box, points: readonly Point[]): number => {
    let least = Infinity;
    for (const point of points) least = Math.min(least, away(box, point));
    return least;
  };
  for (let y = area.y; y <= area.y + area.height - height; y += STEP) {
    for (let x = area.x; x <= area.x + area.width - width; x += STEP) {
      const box = { x, y, width, height };
      const [mine, theirs] = [nearest(box, path), nearest(box, others)];
      const crossed = 200 * (Math.max(0, GAP - mine) + Math.max(0, GAP - theirs));
      const covered = occupied.some((other) => overlap(box, other)) ? 5000 : 0;
      const unclear = Math.max(0, mine + 2 * GAP - theirs);
      const cost = mine + crossed + covered + 2 * unclear;
      if (cost < least) [best, least] = [box, cost];
    }
  }
  return best;
}

/** Points along a line through these, at most `every` px apart; NaN interrupts it. */
export function alongLine(points: readonly Point[], every = STEP): Point[] {
  return points.flatMap((point, i): Point[] => {
    const [x, y] = point;
    if (!Number.isFinite(y)) return [];
    const [toX, toY] = points[i + 1] ?? point;
    const steps = Number.isFinite(toY) ? Math.ceil(Math.hypot(toX - x, toY - y) / every) : 0;
    return [
      point,
      ...Array.from({ length: steps }, (_, s): Point => [x + ((toX - x) * s) / steps, y + ((toY - y) * s) / steps]),
    ];
  });
}
