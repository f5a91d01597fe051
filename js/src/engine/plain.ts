/** The kernels in plain JavaScript: for small models, and for browsers without WebAssembly SIMD. Sums are in float64. */
import type { Backend, Kernels, Memory } from "./kernels.ts";

class PlainMemory implements Memory {
  buffer = new ArrayBuffer(1 << 16);
  f = new Float32Array(this.buffer);
  bytes = new Uint8Array(this.buffer);

  reach(bytes: number): void {
    if (bytes <= this.buffer.byteLength) return;
    const larger = new ArrayBuffer(Math.ceil((bytes + Math.min(bytes / 4, 1 << 24)) / 16) * 16);
    new Uint8Array(larger).set(this.bytes);
    this.buffer = larger;
    this.f = new Float32Array(larger);
    this.bytes = new Uint8Array(larger);
  }
}

/** The error function, to 1.2e-7: Abramowitz and Stegun 1964, 7.1.26. */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
/** Twice the argument of the hyperbolic tangent of gelu_new. */
const bent = (x: number): number => 2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);

/** f(x) / x by the number of the activation; see `ACTIVATIONS`. */
const SHARES = [
  (x: number) => Number(x > 0),
  (x: number) => Math.tanh(x) / x,
  sigmoid,
  (x: number) => 0.5 * (1 + erf(x * Math.SQRT1_2)),
  (x: number) => sigmoid(bent(x)),
];
const SLOPES = [
  (x: number) => Number(x > 0),
  (x: number) => 1 - Math.tanh(x) ** 2,
  (x: number) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  (x: number) => 0.5 * (1 + erf(x * Math.SQRT1_2)) + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI),
  (x: number) => {
    const share = sigmoid(bent(x));
    return share + x * share * (1 - share) * 2 * Math.sqrt(2 / Math.PI) * (1 + 0.134145 * x * x);
  },
];

/** Unpack numbers [at, at + count) of a tensor, whole groups, into `out`. */
function unpack(
  { f, bytes }: PlainMemory,
  packing: number,
  w: number,
  s: number,
  at: number,
  count: number,
  out: number,
): void {
  for (let group = at >> 5, to = out >> 2; group < (at + count) >> 5; group += 1, to += 32) {
    if (packing === 1) {
      const scale = f[(s >> 2) + group]!;
      for (let i = 0; i < 32; i += 1) f[to + i] = ((bytes[w + group * 32 + i]! << 24) >> 24) * scale;
    } else {
      const [scale, least] = [f[(s >> 2) + 2 * group]!, f[(s >> 2) + 2 * group + 1]!];
      for (let i = 0; i < 16; i += 1) {
        const two = bytes[w + group * 16 + i]!;
        f[to + i] = Math.fround((two & 15) * scale) + least;
        f[to + 16 + i] = Math.fround((two >> 4) * scale) + least;
      }
    }
  }
}

/** Four rows of x by two of W; all are indices in `f`. */
function tile(
  f: Float32Array,
  from: number,
  x: readonly [number, number, number, number],
  w: number,
  v: number,
  y: readonly [number, number, number, number],
  k: number,
  l: number,
  b: number,
): void {
  const [o, p, q, r] = x;
  let c = b ? f[b + k]! : 0;
  let g = b ? f[b + l]! : 0;
  let [d, e, h, i, m, z] = [c, c, c, g, g, g];
  for (let j = 0; j < from; j += 1) {
    // No destructuring: it would double the time.
    const first = f[w + j]!;
    const second = f[v + j]!;
    const s = f[o + j]!;
    const t = f[p + j]!;
    const u = f[q + j]!;
    const a = f[r + j]!;
    c += s * first;
    d += t * first;
    e += u * first;
    h += a * first;
    g += s * second;
    i += t * second;
    m += u * second;
    z += a * second;
  }
  // Rows may be the same at the ends: the last value is that of the row itself.
  const [oy, py, qy, ry] = y;
  f[ry + k] = h;
  f[qy + k] = e;
  f[py + k] = d;
  f[oy + k] = c;
  f[ry + l] = z;
  f[qy + l] = m;
  f[py + l] = i;
  f[oy + l] = g;
}

/** Add to d the sum of `high` rows, each times its number of g; four at a time, so that d is read once for several. */
function backTile(f: Float32Array, g: number, high: number, rows: number, step: number, d: number, wide: number): void {
  for (let i = 0; i < high; i += 4) {
    // Behind the last row, the first of the four once more, times 0.
    const left = high - i;
    const a = rows + i * step;
    const b = left > 1 ? a + step : a;
    const c = left > 2 ? a + 2 * step : a;
    const e = left > 3 ? a + 3 * step : a;
    const first = f[g + i]!;
    const second = left > 1 ? f[g + i + 1]! : 0;
    const third = left > 2 ? f[g + i + 2]! : 0;
    const fourth = left > 3 ? f[g + i + 3]! : 0;
    for (let j = 0; j < wide; j += 1)
      f[d + j] = f[d + j]! + first * f[a + j]! + second * f[b + j]! + third * f[c + j]! + fourth * f[e + j]!;
  }
}

/** A row of attention: the softmax of the first `last` scores, then zeros. */
function softmax(f: Float32Array, row: number, last: number, all: number): void {
  let [top, sum] = [Number.NEGATIVE_INFINITY, 0];
  for (let j = 0; j < last; j += 1) top = Math.max(top, f[row + j]!);
  for (let j = 0; j < last; j += 1) {
    f[row + j] = Math.exp(f[row + j]! - top);
    sum += f[row + j]!;
  }
  for (let j = 0; j < last; j += 1) f[row + j] = f[row + j]! / sum;
  f.fill(0, row + last, row + all);
}

const dot = (f: Float32Array, a: number, b: number, count: number): number => {
  let sum = 0;
  for (let i = 0; i < count; i += 1) sum += f[a + i]! * f[b + i]!;
  return sum;
};
/** Add `by` times x to y. */
const add = (f: Float32Array, y: number, by: number, x: number, count: number): void => {
  for (let i = 0; i < count; i += 1) f[y + i] = f[y + i]! + by * f[x + i]!;
};

function matrices(memory: PlainMemory): Pick<Kernels, "linear" | "back" | "row"> {
  return {
    linear(packing, x, n, from, w, s, to, b, y, panel) {
      const { f } = memory;
      for (let k = 0; k < to; k += 2) {
        const l = Math.min(k + 1, to - 1);
        const rows = packing ? panel >> 2 : (w >> 2) + k * from;
        if (packing) unpack(memory, packing, w, s, k * from, (l - k + 1) * from, panel);
        for (let t = 0; t < n; t += 4) {
          const at = [t, Math.min(t + 1, n - 1), Math.min(t + 2, n - 1), Math.min(t + 3, n - 1)] as const;
          const xs = [
            (x >> 2) + at[0] * from,
            (x >> 2) + at[1] * from,
            (x >> 2) + at[2] * from,
            (x >> 2) + at[3] * from,
          ];
          const ys = [(y >> 2) + at[0] * to, (y >> 2) + at[1] * to, (y >> 2) + at[2] * to, (y >> 2) + at[3] * to];
          tile(f, from, xs as never, rows, rows + (l - k) * from, ys as never, k, l, b >> 2);
        }
      }
    },
    back(packing, dy, n, to, w, s, from, dx, panel) {
      const { f } = memory;
      const [BLOCK, by] = [16, 256];
      for (let k = 0; k < to; k += BLOCK) {
        const high = Math.min(BLOCK, to - k);
        for (let j = 0; j < from; j += by) {
          const wide = Math.min(by, from - j);
          if (packing)
            for (let i = 0; i < high; i += 1)
              unpack(memory, packing, w, s, (k + i) * from + j, wide, panel + i * wide * 4);
          const [rows, step] = packing ? [panel >> 2, wide] : [(w >> 2) + k * from + j, from];
          for (let t = 0; t < n; t += 1)
            backTile(f, (dy >> 2) + t * to + k, high, rows, step, (dx >> 2) + t * from + j, wide);
        }
      }
    },
    row(packing, w, s, row, from, y) {
      const { f } = memory;
      if (packing) unpack(memory, packing, w, s, row * from, from, y);
      else f.copyWithin(y >> 2, (w >> 2) + row * from, (w >> 2) + (row + 1) * from);
    },
  };
}

function rows(memory: PlainMemory): Pick<Kernels, "norm" | "unnorm" | "rotate"> {
  return {
    norm(x, n, width, gain, bias, eps, rms, y, r) {
      const { f } = memory;
      for (let t = 0; t < n; t += 1) {
        const [from, to] = [(x >> 2) + t * width, (y >> 2) + t * width];
        let [mean, squares] = [0, 0];
        for (let j = 0; j < width && !rms; j += 1) mean += f[from + j]! / width;
        for (let j = 0; j < width; j += 1) squares += (f[from + j]! - mean) ** 2;
        const scale = 1 / Math.sqrt(squares / width + eps);
        f[(r >> 2) + t] = scale;
        for (let j = 0; j < width; j += 1)
          f[to + j] = (f[from + j]! - mean) * scale * f[(gain >> 2) + j]! + (bias ? f[(bias >> 2) + j]! : 0);
      }
    },
    unnorm(x, dy, n, width, gain, r, rms, constant, dx) {
      const { f } = memory;
      for (let t = 0; t < n; t += 1) {
        const [from, over, to] = [x, dy, dx].map((at) => (at >> 2) + t * width) as [number, number, number];
        const scale = f[(r >> 2) + t]!;
        let [mean, shift, along] = [0, 0, 0];
        for (let j = 0; j < width && !rms; j += 1) {
          mean += f[from + j]! / width;
          shift += (f[(gain >> 2) + j]! * f[over + j]!) / width;
        }
        for (let j = 0; j < width && !constant; j += 1)
          along += (f[(gain >> 2) + j]! * f[over + j]! * (f[from + j]! - mean) * scale * scale) / width;
        for (let j = 0; j < width; j += 1) {
          const gradient = f[(gain >> 2) + j]! * f[over + j]! - shift - (f[from + j]! - mean) * along;
          f[to + j] = f[to + j]! + scale * gradient;
        }
      }
    },
    rotate(x, n, wide, size, cos, sin, sign) {
      const { f } = memory;
      const half = size / 2;
      for (let t = 0; t < n; t += 1) {
        for (let j = 0; j < half; j += 1) {
          const [c, s] = [f[(cos >> 2) + t * half + j]!, sign * f[(sin >> 2) + t * half + j]!];
          for (let at = (x >> 2) + t * wide + j; at < (x >> 2) + (t + 1) * wide; at += size) {
            const [u, v] = [f[at]!, f[at + half]!];
            f[at] = u * c - v * s;
            f[at + half] = v * c + u * s;
          }
        }
      }
    },
  };
}

/** The index of the source that a head reads. */
const sourceOf = (head: number, heads: number, sources: number): number => Math.floor((head * sources) / heads);

function attention(memory: PlainMemory): Pick<Kernels, "attend" | "mix" | "unattend"> {
  return {
    attend(q, k, n, all, heads, sources, size, scale, causal, a) {
      const { f } = memory;
      for (let head = 0; head < heads; head += 1) {
        const from = (k >> 2) + sourceOf(head, heads, sources) * size;
        for (let i = 0; i < n; i += 1) {
          const row = (a >> 2) + (head * n + i) * all;
          const last = causal ? all - n + i + 1 : all;
          const query = (q >> 2) + (i * heads + head) * size;
          for (let j = 0; j < last; j += 1) f[row + j] = scale * dot(f, query, from + j * sources * size, size);
          softmax(f, row, last, all);
        }
      }
    },
    mix(a, v, n, all, heads, sources, size, z) {
      const { f } = memory;
      for (let head = 0; head < heads; head += 1) {
        const from = (v >> 2) + sourceOf(head, heads, sources) * size;
        for (let i = 0; i < n; i += 1) {
          const [row, to] = [(a >> 2) + (head * n + i) * all, (z >> 2) + (i * heads + head) * size];
          f.fill(0, to, to + size);
          for (let j = 0; j < all; j += 1) if (f[row + j]) add(f, to, f[row + j]!, from + j * sources * size, size);
        }
      }
    },
    unattend(dz, a, q, k, v, n, heads, sources, size, scale, share, soft, fixed, da, dq, dk, dv) {
      const { f, bytes } = memory;
      const scratch = da >> 2;
      for (let head = 0; head < heads; head += 1) {
        for (let i = 0; i < n; i += 1) {
          const row = (a >> 2) + (head * n + i) * n;
          const [mine, its] = [(i * heads + head) * size, sourceOf(head, heads, sources) * size];
          let along = 0;
          for (let j = 0; j < n; j += 1) {
            const at = its + j * sources * size;
            const weight = f[row + j]!;
            f[scratch + j] = share * dot(f, (dz >> 2) + mine, (v >> 2) + at, size);
            along += f[scratch + j]! * weight;
            add(f, (dv >> 2) + at, soft ? weight * share : weight, (dz >> 2) + mine, size);
          }
          if (!soft || (fixed && bytes[fixed + head * n + i])) continue;
          for (let j = 0; j < n; j += 1) {
            const at = its + j * sources * size;
            const score = f[row + j]! * (f[scratch + j]! - along) * scale * share;
            if (score === 0) continue;
            add(f, (dq >> 2) + mine, score, (k >> 2) + at, size);
            add(f, (dk >> 2) + at, score, (q >> 2) + mine, size);
          }
        }
      }
    },
  };
}

function numbers(memory: PlainMemory): Pick<Kernels, "act" | "slope" | "plus" | "times"> {
  return {
    act(kind, x, u, count, r, y) {
      const { f } = memory;
      const share = SHARES[kind]!;
      for (let i = 0; i < count; i += 1) {
        const value = f[(x >> 2) + i]!;
        const ratio = value ? share(value) : 0;
        f[(r >> 2) + i] = ratio;
        f[(y >> 2) + i] = value * ratio * (u ? f[(u >> 2) + i]! : 1);
      }
    },
    slope(kind, x, count, y) {
      const { f } = memory;
      const slope = SLOPES[kind]!;
      for (let i = 0; i < count; i += 1) f[(y >> 2) + i] = slope(f[(x >> 2) + i]!);
    },
    plus(y, x, count) {
      add(memory.f, y >> 2, 1, x >> 2, count);
    },
    times(a, b, by, count, y) {
      const { f } = memory;
      for (let i = 0; i < count; i += 1) f[(y >> 2) + i] = by * f[(a >> 2) + i]! * f[(b >> 2) + i]!;
    },
  };
}

/** A backend without WebAssembly. */
export function plainBackend(slow = ""): Backend {
  const memory = new PlainMemory();
  const kernels = { ...matrices(memory), ...rows(memory), ...attention(memory), ...numbers(memory) };
  return { name: "plain", kernels, memory, start: 16, slow };
}
