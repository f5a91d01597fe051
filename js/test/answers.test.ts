import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { type Answers, createAnswers } from "../src/wire/answers.ts";
import type { Question, QuestionReply } from "../src/wire/wire.ts";

interface Twin {
  sent: Question[];
  changes: number;
  /** How often the kernel was missed; and what happens when it is back. */
  missed: number;
  back(): void;
  answers: Answers;
  end: AbortController;
  reply(reply: QuestionReply): void;
}

function twin(): Twin {
  let hear: (reply: QuestionReply, buffers: DataView[]) => void = () => undefined;
  const end = new AbortController();
  const it: Twin = {
    sent: [],
    changes: 0,
    missed: 0,
    back: () => undefined,
    end,
    answers: undefined as never,
    reply: (reply) => hear(reply, []),
  };
  const model = {
    send: (question: Question) => it.sent.push(question),
    on: (_: string, cb: typeof hear) => {
      hear = cb;
    },
    off: () => undefined,
  };
  const tiles = {
    patience: () => 8000,
    status: () => ({ state: "ok" }),
    lose: () => {
      it.missed += 1;
    },
  };
  const onChange = (_: AbortSignal, cb: (changed: ReadonlySet<string>) => void) => {
    it.back = () => cb(new Set(["tiles"]));
  };
  it.answers = createAnswers({ model, tiles, onChange, opening: [] } as unknown as ViewContext, end.signal, () => {
    it.changes += 1;
  });
  return it;
}

const idOf = (question: Question | undefined): number => question?.id ?? -1;

test("a request is sent once and its answer cached", () => {
  const it = twin();
  assert.equal(it.answers.get("square", { of: 3 }), undefined);
  assert.equal(it.answers.get("square", { of: 3 }), undefined);
  assert.equal(it.sent.length, 1);
  it.reply({ kind: "answer", id: idOf(it.sent[0]), meta: { is: 9 }, lengths: [] });
  assert.equal(it.changes, 1);
  assert.deepEqual(it.answers.get("square", { of: 3 })?.meta, { is: 9 });
  assert.equal(it.sent.length, 1);
  it.end.abort();
});

test("of many requests for one topic only the first and the last are sent", () => {
  const it = twin();
  for (const of of [1, 2, 3, 4]) it.answers.get("square", { of });
  assert.equal(it.sent.length, 1);
  it.reply({ kind: "answer", id: idOf(it.sent[0]), meta: { is: 1 }, lengths: [] });
  assert.deepEqual(
    it.sent.map((question) => question.kind === "ask" && question.args.of),
    [1, 4],
  );
  it.end.abort();
});

test("returning to the request in flight drops the ones queued since", () => {
  const it = twin();
  it.answers.get("square", { of: 1 });
  it.answers.get("square", { of: 2 });
  it.answers.get("square", { of: 1 });
  it.reply({ kind: "answer", id: idOf(it.sent[0]), meta: { is: 1 }, lengths: [] });
  assert.equal(it.sent.length, 1);
  it.end.abort();
});

test("a failure is reported and not requested again before a retry", () => {
  const it = twin();
  it.answers.get("square", { of: 3 });
  it.reply({ kind: "error", id: idOf(it.sent[0]), message: "no squares today" });
  assert.equal(it.answers.get("square", { of: 3 }), undefined);
  assert.equal(it.answers.failure("square", { of: 3 }), "no squares today");
  assert.equal(it.sent.length, 1);
  it.answers.retry("square");
  it.answers.get("square", { of: 3 });
  assert.equal(it.sent.length, 2);
  it.end.abort();
});

test("late, foreign and repeated replies are harmless", () => {
  const it = twin();
  it.answers.get("square", { of: 3 });
  const id = idOf(it.sent[0]);
  it.reply({ kind: "answer", id: id + 1, meta: { is: 1 }, lengths: [] });
  it.reply({ kind: "answer", id, meta: { is: 9 }, lengths: [] });
  it.reply({ kind: "answer", id, meta: { is: 8 }, lengths: [] });
  assert.deepEqual(it.answers.get("square", { of: 3 })?.meta, { is: 9 });
  it.end.abort();
});

test("what the reader did not ask for is missed in silence", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const it = twin();
  it.answers.get("square", { of: 3 }, true);
  it.answers.get("cube", { of: 3 }, true);
  it.answers.get("cube", { of: 4 });
  t.mock.timers.tick(9000);
  assert.match(it.answers.failure("square", { of: 3 }) ?? "", /No answer/);
  assert.equal(it.missed, 0);
  t.mock.timers.tick(9000);
  assert.equal(it.missed, 1);
  it.end.abort();
});

test("what a busy kernel answers late counts, and what it lost is sent again when it is back", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const it = twin();
  it.answers.get("square", { of: 3 });
  it.answers.get("cube", { of: 3 });
  t.mock.timers.tick(9000);
  assert.match(it.answers.failure("square", { of: 3 }) ?? "", /No answer/);
  assert.equal(it.missed, 2);
  it.reply({ kind: "answer", id: idOf(it.sent[0]), meta: { is: 9 }, lengths: [] });
  assert.deepEqual(it.answers.get("square", { of: 3 })?.meta, { is: 9 });
  const { changes } = it;
  it.back();
  assert.equal(it.changes, changes + 1);
  assert.equal(it.answers.failure("cube", { of: 3 }), undefined);
  it.answers.get("cube", { of: 3 });
  assert.equal(it.sent.length, 3);
  it.end.abort();
});
