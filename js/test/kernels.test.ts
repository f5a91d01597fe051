/** Every kernel of every backend against a loop in float64, at sizes that are no multiples of anything. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Backend, Kernels } from "../src/engine/kernels.ts";
import { ACTIVATIONS } from "../src/engine/types.ts";
import { BACKENDS, near } from "./engineBackends.ts";
import { randomBits } from "./engineModels.ts";

/** Arrays behind each other in the memory of a backend, with numbers around them that nothing may write to. */
class Bench {
  private top: number;
  private seed = 1;
  private readonly guards: number[] = [];

  constructor(readonly backend: Backend) {
    this.top = Math.ceil(backend.start / 16) * 16;
  }

  get kernels(): Kernels {
    return this.backend.kernels;
  }

  private room(bytes: number): number {
    const at = this.top;
    this.top = Math.ceil((at + bytes + 4) / 4) * 4;
    this.backend.memory.reach(this.top + 64);
    new DataView(this.backend.memory.buffer).setFloat32(this.top - 4, 77, true);
    this.guards.push(this.top - 4);
    return at;
  }

  put(values: ArrayLike<number>): number {
    const at = this.room(values.length * 4);
    new Float32Array(this.backend.memory.buffer, at, values.length).set(values);
    return at;
  }

  bytes(values: ArrayLike<number>): number {
    const at = this.room(values.length);
    new Uint8Array(this.backend.memory.buffer, at, values.length).set(values);
    return at;
  }

  /** Random numbers from -1 to 1, and where they are. */
  random(count: number, by = 2): [Float32Array, number] {
    this.seed += 1;
    const values = Float32Array.from(randomBits(count, this.seed), (bits) => (bits / 2_147_483_647 - 0.5) * by);
    return [values, this.put(values)];
  }

  read(at: number, count: number): Float32Array {
    return new Float32Array(this.backend.memory.buffer, at, count).slice();
  }

  check(): void {
    const view = new DataView(this.backend.memory.buffer);
    for (const at of this.guards) assert.equal(view.getFloat32(at, true), 77, "written behind an array");
  }
}

const range = (count: number): number[] => [...Array(count).keys()];
const sum = (count: number, term: (i: number) => number): number => range(count).reduce((all, i) => all + term(i), 0);

/** A random matrix of a packing: its numbers, and the addresses of numbers and scales. */
function matrix(bench: Bench, packing: number, to: number, from: number): [Float32Array, number, number] {
  if (packing === 0) {
    const [values, at] = bench.random(to * from);
    return [values, at, 0];
  }
  const bits = randomBits(to * from, 9);
  const values = new Float32Array(to * from);
  const [scales, scalesAt] = bench.random(((to * from) / 32) * packing, 0.1);
  if (packing === 1) {
    const whole = Int8Array.from(bits, (one) => (one % 255) - 127);
    whole.forEach((q, i) => {
      values[i] = q * scales[i >> 5]!;
    });
    return [values, bench.bytes(new Uint8Array(whole.buffer)), scalesAt];
  }
  const bytes = new Uint8Array((to * from) / 2);
  bits.forEach((one, i) => {
    const q = (one >> 4) & 15;
    const at = (i >> 5) * 16 + (i & 15);
    bytes[at] = bytes[at]! | (q << (i & 16 ? 4 : 0));
    values[i] = Math.fround(q * scales[2 * (i >> 5)]!) + scales[2 * (i >> 5) + 1]!;
  });
  return [values, bench.bytes(bytes), scalesAt];
}

const SIZES = [1, 2, 3, 5];
const MATRICES = [
  ...[1, 3, 4, 7, 18].flatMap((to) => [1, 2, 5, 22, 300].map((from) => [0, to, from] as const)),
  ...[1, 2].flatMap((packing) =>
    [1, 3, 8, 21].flatMap((to) => [32, 96, 288].map((from) => [packing, to, from] as const)),
  ),
];

for (const [name, make] of Object.entries(BACKENDS)) {
  test(`${name}: products with packed matrices, forward and back`, async () => {
    for (const [packing, to, from] of MATRICES) {
      for (const n of SIZES) {
        const bench = new Bench(await make());
        const [W, w, s] = matrix(bench, packing, to, from);
        const panel = bench.put(new Float32Array(Math.max(4 * from, 4096)));
        const [x, xAt] = bench.random(n * from);
        const [b, bAt] = bench.random(to);
        const [dx, dxAt] = bench.random(n * from);
        const [dy, dyAt] = bench.random(n * to);
        const at = `packing ${packing}, ${n} x ${from} -> ${to}`;
        const y = bench.put(new Float32Array(n * to));
        for (const bias of [0, bAt]) {
          bench.kernels.linear(packing, xAt, n, from, w, s, to, bias, y, panel);
          const expected = range(n * to).map((i) => {
            const [t, k] = [Math.floor(i / to), i % to];
            return (bias ? b[k]! : 0) + sum(from, (j) => x[t * from + j]! * W[k * from + j]!);
          });
          near(bench.read(y, n * to), expected, at);
        }
        bench.kernels.back(packing, dyAt, n, to, w, s, from, dxAt, panel);
        const expected = range(n * from).map((i) => {
          const [t, j] = [Math.floor(i / from), i % from];
          return dx[i]! + sum(to, (k) => dy[t * to + k]! * W[k * from + j]!);
        });
        near(bench.read(dxAt, n * from), expected, at);
        const row = bench.put(new Float32Array(from));
        bench.kernels.row(packing, w, s, to - 1, from, row);
        near(bench.read(row, from), W.slice((to - 1) * from), at, 1e-7);
        bench.check();
      }
    }
  });

  test(`${name}: norms and their gradients`, async () => {
    for (const width of [1, 3, 4, 10, 23]) {
      for (const rms of [0, 1]) {
        const bench = new Bench(await make());
        const n = 3;
        const [x, xAt] = bench.random(n * width);
        const [gain, gainAt] = bench.random(width);
        const [bias, biasAt] = bench.random(width);
        const [dy, dyAt] = bench.random(n * width);
        const [y, r] = [bench.put(new Float32Array(n * width)), bench.put(new Float32Array(n))];
        const eps = 0.01;
        const rows = range(n).map((t) => {
          const mean = rms ? 0 : sum(width, (j) => x[t * width + j]!) / width;
          const variance = sum(width, (j) => (x[t * width + j]! - mean) ** 2) / width;
          return { mean, scale: 1 / Math.sqrt(variance + eps) };
        });
        const normed = (i: number): number => {
          const { mean, scale } = rows[Math.floor(i / width)]!;
          return (x[i]! - mean) * scale;
        };
        bench.kernels.norm(xAt, n, width, gainAt, biasAt, eps, rms, y, r);
        near(
          bench.read(y, n * width),
          range(n * width).map((i) => normed(i) * gain[i % width]! + bias[i % width]!),
          "norm",
        );
        near(
          bench.read(r, n),
          rows.map(({ scale }) => scale),
          "scales",
        );
        bench.kernels.norm(xAt, n, width, gainAt, 0, eps, rms, y, r);
        near(
          bench.read(y, n * width),
          range(n * width).map((i) => normed(i) * gain[i % width]!),
          "norm without bias",
        );
        for (const constant of [0, 1]) {
          const [dx, dxAt] = bench.random(n * width);
          bench.kernels.unnorm(xAt, dyAt, n, width, gainAt, r, rms, constant, dxAt);
          const expected = range(n * width).map((i) => {
            const start = i - (i % width);
            const u = (j: number): number => gain[j]! * dy[start + j]!;
            const shift = rms ? 0 : sum(width, u) / width;
            const along = constant ? 0 : (sum(width, (j) => u(j) * normed(start + j)) / width) * normed(i);
            return dx[i]! + rows[Math.floor(i / width)]!.scale * (u(i % width) - shift - along);
          });
          near(bench.read(dxAt, n * width), expected, `gradient of a norm of ${width}`, 1e-5);
        }
        bench.check();
      }
    }
  });

  test(`${name}: attention, what it mixes, and their gradients`, async () => {
    for (const [n, heads, sources, size, causal] of [
      [1, 1, 1, 2, 1],
      [5, 3, 1, 6, 1],
      [7, 4, 2, 5, 0],
      [6, 2, 2, 8, 1],
    ] as const) {
      for (const { share, soft, fixed } of [
        { share: 1, soft: 1, fixed: false },
        { share: 0.5, soft: 1, fixed: true },
        { share: 1, soft: 0, fixed: false },
      ]) {
        const bench = new Bench(await make());
        const scale = 0.7;
        const [q, qAt] = bench.random(n * heads * size, 6);
        const [k, kAt] = bench.random(n * sources * size);
        const [v, vAt] = bench.random(n * sources * size);
        const a = bench.put(new Float32Array(heads * n * n).fill(5));
        bench.kernels.attend(qAt, kAt, n, n, heads, sources, size, scale, causal, a);
        const sourceOf = (head: number): number => Math.floor((head * sources) / heads);
        const score = (h: number, i: number, j: number): number =>
          causal && j > i
            ? Number.NEGATIVE_INFINITY
            : scale * sum(size, (e) => q[(i * heads + h) * size + e]! * k[(j * sources + sourceOf(h)) * size + e]!);
        const attention = range(heads * n * n).map((at) => {
          const [h, i, j] = [Math.floor(at / n / n), Math.floor(at / n) % n, at % n];
          return Math.exp(score(h, i, j)) / sum(n, (other) => Math.exp(score(h, i, other)));
        });
        near(bench.read(a, heads * n * n), attention, "attention");
        const [, z] = bench.random(n * heads * size);
        bench.kernels.mix(a, vAt, n, n, heads, sources, size, z);
        const mixed = range(n * heads * size).map((at) => {
          const [i, h, e] = [Math.floor(at / heads / size), Math.floor(at / size) % heads, at % size];
          return sum(n, (j) => attention[(h * n + i) * n + j]! * v[(j * sources + sourceOf(h)) * size + e]!);
        });
        near(bench.read(z, n * heads * size), mixed, "mixed");

        const [dz, dzAt] = bench.random(n * heads * size);
        const flags = range(heads * n).map((row) => Number(fixed && row % 3 === 1));
        const [dq, dqAt] = bench.random(n * heads * size);
        const [dk, dkAt] = bench.random(n * sources * size);
        const [dv, dvAt] = bench.random(n * sources * size);
        const scratch = bench.put(new Float32Array(n));
        const flagsAt = fixed ? bench.bytes(flags) : 0;
        const all = [dzAt, a, qAt, kAt, vAt, n, heads, sources, size, scale, share, soft, flagsAt, scratch] as const;
        bench.kernels.unattend(...all, dqAt, dkAt, dvAt);
        for (const h of range(heads)) {
          for (const i of range(n)) {
            const mine = (i * heads + h) * size;
            const its = (j: number): number => (j * sources + sourceOf(h)) * size;
            const weight = (j: number): number => attention[(h * n + i) * n + j]!;
            const da = range(n).map((j) => share * sum(size, (e) => dz[mine + e]! * v[its(j) + e]!));
            const along = sum(n, (j) => da[j]! * weight(j));
            for (const j of range(n)) {
              const ds = soft && !flags[h * n + i] ? weight(j) * (da[j]! - along) * scale * share : 0;
              for (const e of range(size)) {
                dv[its(j) + e]! += weight(j) * (soft ? share : 1) * dz[mine + e]!;
                dq[mine + e]! += ds * k[its(j) + e]!;
                dk[its(j) + e]! += ds * q[mine + e]!;
              }
            }
          }
        }
        near(bench.read(dqAt, dq.length), dq, "gradient of queries", 1e-5);
        near(bench.read(dkAt, dk.length), dk, "gradient of keys", 1e-5);
        near(bench.read(dvAt, dv.length), dv, "gradient of values", 1e-5);
        bench.check();
      }
    }
  });

  test(`${name}: attention of later tokens over those kept`, async () => {
    const bench = new Bench(await make());
    const [n, all, heads, sources, size] = [2, 5, 2, 1, 3];
    const [q] = bench.random(all * heads * size);
    const [k, kAt] = bench.random(all * sources * size);
    assert.equal(k.length, 15);
    const [whole, rest] = [
      bench.put(new Float32Array(heads * all * all)),
      bench.put(new Float32Array(heads * n * all)),
    ];
    bench.kernels.attend(bench.put(q), kAt, all, all, heads, sources, size, 1, 1, whole);
    bench.kernels.attend(bench.put(q.slice(3 * heads * size)), kAt, n, all, heads, sources, size, 1, 1, rest);
    const attention = bench.read(whole, heads * all * all);
    const expected = range(heads).flatMap((h) => [...attention.slice((h * all + 3) * all, (h + 1) * all * all)]);
    near(bench.read(rest, heads * n * all), expected, "later rows");
  });

  test(`${name}: activations, their slopes, and what they pass on`, async () => {
    const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
    const erf = (x: number): number => {
      // A series: exact enough for arguments to 4.
      let [term, total] = [x, x];
      for (let i = 1; i < 100; i += 1) {
        term *= (-x * x) / i;
        total += term / (2 * i + 1);
      }
      return (2 / Math.sqrt(Math.PI)) * total;
    };
    const exact: Record<keyof typeof ACTIVATIONS, (x: number) => number> = {
      relu: (x) => Math.max(0, x),
      tanh: Math.tanh,
      silu: (x) => x * sigmoid(x),
      gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
      gelu_new: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
    };
    for (const [activation, kind] of Object.entries(ACTIVATIONS)) {
      const f = exact[activation as keyof typeof ACTIVATIONS];
      const bench = new Bench(await make());
      const x = [0, 1e-3, -1e-3, ...range(40).map((i) => (i - 19.5) * 0.28), 0.29, 0.31];
      const at = bench.put(x);
      const [u, uAt] = bench.random(x.length);
      const [r, y] = [bench.put(x), bench.put(x)];
      const single = Array.from(Float32Array.from(x));
      bench.kernels.act(kind, at, 0, x.length, r, y);
      near(bench.read(y, x.length), single.map(f), activation, 1e-6);
      near(
        bench.read(r, x.length),
        single.map((one) => (one ? f(one) / one : 0)),
        `share of ${activation}`,
        2e-6,
      );
      bench.kernels.act(kind, at, uAt, x.length, r, y);
      near(
        bench.read(y, x.length),
        single.map((one, i) => f(one) * u[i]!),
        `gated ${activation}`,
        1e-6,
      );
      bench.kernels.slope(kind, at, x.length, y);
      const steps = single.map((one) => (one ? (f(one + 1e-5) - f(one - 1e-5)) / 2e-5 : bench.read(y, 1)[0]!));
      near(bench.read(y, x.length), steps, `slope of ${activation}`, 2e-6);
      bench.check();
    }
  });

  test(`${name}: rotation and its reverse, sums and products`, async () => {
    const bench = new Bench(await make());
    const [n, heads, size] = [3, 2, 6];
    const [x, at] = bench.random(n * heads * size);
    const angles = range((n * size) / 2).map((i) => i * 0.37);
    const [cos, sin] = [bench.put(angles.map(Math.cos)), bench.put(angles.map(Math.sin))];
    bench.kernels.rotate(at, n, heads * size, size, cos, sin, 1);
    const expected = range(x.length).map((i) => {
      const [t, e] = [Math.floor(i / heads / size), i % size];
      const angle = angles[(t * size) / 2 + (e % (size / 2))]!;
      const other = e < size / 2 ? -x[i + size / 2]! : x[i - size / 2]!;
      return x[i]! * Math.cos(angle) + other * Math.sin(angle);
    });
    near(bench.read(at, x.length), expected, "rotated");
    bench.kernels.rotate(at, n, heads * size, size, cos, sin, -1);
    near(bench.read(at, x.length), x, "turned back");
    for (const count of SIZES) {
      const [a, aAt] = bench.random(count);
      const [b, bAt] = bench.random(count);
      bench.kernels.times(aAt, bAt, 0.5, count, aAt);
      near(
        bench.read(aAt, count),
        [...a].map((one, i) => 0.5 * one * b[i]!),
        "product",
      );
      bench.kernels.plus(bAt, aAt, count);
      near(
        bench.read(bAt, count),
        [...a].map((one, i) => b[i]! + 0.5 * one * b[i]!),
        "sum",
      );
    }
    bench.check();
  });
}
