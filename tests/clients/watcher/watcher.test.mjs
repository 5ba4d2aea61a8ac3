// Watcher over real connections to a hub of scripted answers.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { BadAnswer, WatchFailed, Watcher } from "../../../griphub/client/javascript/watcher.js";
import { FakeHub, block, event, line, problem, progress, snapshot, stream, until } from "./fake_hub.mjs";

let hub, watchers;

beforeEach(async () => {
  hub = await FakeHub.start();
  watchers = [];
});

afterEach(async () => {
  for (const watcher of watchers) watcher.stop();
  await hub.stop();
});

// A watcher with its table, and all that it has heard.
function make(options = {}, url = hub.url) {
  const seen = { table: new Map(), messages: [], reports: [], phases: [] };
  const put = ({ events }) =>
    events.forEach(({ key, op, data }) => (op === "delete" ? seen.table.delete(key) : seen.table.set(key, data)));
  const note = (message) => seen.messages.push(`${message.type} ${message.cursor ?? message.reason}`);
  const watcher = new Watcher(url, {
    topic: "prices",
    onSnapshot: (all) => (seen.table.clear(), put(all), note(all)),
    onChange: (change) => (put(change), note(change)),
    onProgress: note,
    onReport: (report) => seen.reports.push(report),
    onPhase: (phase) => seen.phases.push(phase),
    ...options,
  });
  watchers.push(watcher);
  return { watcher, ...seen };
}

const begin = (watcher) => {
  const end = watcher.start();
  end.catch(() => {});
  return end;
};

test("a snapshot, and the changes behind exactly its version", async () => {
  hub.scripts.snapshot.push(snapshot(7, event(5, "apple", 3), event(7, "plum", 1)));
  hub.scripts.watch.push(
    stream(block(event(8, "apple", 4, 9)), block(event(9, "plum", undefined)), block(progress(12), "progress")),
  );
  const { watcher, table, messages, phases } = make({ low: "a", high: "ä\u{1f600}" });
  const end = watcher.start();
  assert.equal(watcher.start(), end);
  await until(() => messages.length === 3);
  assert.deepEqual(messages, ["snapshot e.7", "change e.9", "progress e.12.1"]);
  assert.deepEqual([...table], [["apple", 4]]);
  assert.equal(watcher.cursor, "e.12.1");
  const range = { low: "a", high: "ä\u{1f600}" };
  assert.deepEqual(
    hub.requests.map(({ kind, query }) => [kind, query]),
    [
      ["snapshot", range],
      ["watch", { ...range, version: "e.7" }],
    ],
  );
  watcher.stop();
  await end;
  await until(() => hub.open.size === 0);
  assert.deepEqual(phases, ["snapshot", "connecting", "watching", "stopped"]);
});

test("names of topics are segments of the path; two of them would be taken away", async () => {
  hub.scripts.watch.push(stream());
  begin(make({ topic: "a/b c%é", cursor: "0" }, `${hub.url}/`).watcher);
  await until(() => hub.requests.length === 1);
  assert.equal(hub.requests[0].path, "/hub/topics/a%2Fb%20c%25%C3%A9/watch");
  for (const topic of ["", ".", "..", undefined]) assert.throws(() => make({ topic }), RangeError);
  for (const options of [{ low: "b", high: "a" }, { interval: 0 }]) assert.throws(() => make(options), RangeError);
  assert.throws(() => make({ cursor: "12" }), BadAnswer);
  assert.throws(() => make({}, `${hub.url}?access_token=a`), RangeError);
});

test("a torn stream goes on at the last whole version", async () => {
  hub.scripts.watch.push({
    ...stream(block(event(1, "a", 1)), block(event(2, "b", 2, 3)), block(event(3, "c", 3)).slice(0, -1)),
    cut: true,
  });
  hub.scripts.watch.push(stream(block(event(2, "b", 2, 3)), block(event(3, "c", 3))));
  const { watcher, messages, reports } = make({ cursor: "0" });
  begin(watcher);
  await until(() => messages.length === 2);
  assert.deepEqual(messages, ["change e.1", "change e.3"]);
  assert.deepEqual(
    hub.requests.map(({ query }) => query.version),
    ["0", "e.1"],
  );
  assert.equal(reports[0].kind, "lost");
});

test("an answer that asks to wait, and one that only a repetition cures", async () => {
  hub.scripts.snapshot.push(
    problem(429, {}, { "Retry-After": "1" }),
    { status: 502, type: "text/html", body: ["<h1>Bad gateway</h1>"] },
    snapshot(1),
  );
  hub.scripts.watch.push(stream());
  const { watcher, messages, reports } = make();
  begin(watcher);
  await until(() => messages.length === 1);
  assert.ok(reports[0].pause >= 1);
  assert.deepEqual(
    reports.map(({ reason }) => reason),
    ["status 429: refused 429", "status 502"],
  );
});

test("a resync is a snapshot; one without its last line is void", async () => {
  hub.scripts.watch.push(
    stream(block(event(1, "a", 1)), block({ type: "resync", reason: "too old", floor_cursor: "e.90" }, "resync")),
    stream(block(event(96, "b", 2))),
  );
  const whole = snapshot(95, event(91, "c", 3));
  hub.scripts.snapshot.push({ ...whole, body: whole.body.slice(0, 2) }, problem(410, { floor_cursor: "e.92" }), whole);
  const { watcher, messages, reports, table } = make({ cursor: "0" });
  begin(watcher);
  await until(() => messages.length === 3);
  assert.deepEqual(messages, ["change e.1", "snapshot e.95", "change e.96"]);
  assert.deepEqual(
    [...table],
    [
      ["c", 3],
      ["b", 2],
    ],
  );
  assert.deepEqual(
    reports.map(({ kind }) => kind),
    ["resync", "lost", "lost"],
  );
  assert.equal(hub.asked("watch").at(-1).query.version, "e.95");
});

test("410 is a resync too, which the application may answer", async () => {
  hub.scripts.watch.push(problem(410, { floor_cursor: "e.90", snapshot: "/s" }), stream(block(event(101, "a", 1))));
  const resyncs = [];
  const { watcher, messages } = make({ cursor: "e.5", onResync: async (resync) => (resyncs.push(resync), "e.100") });
  begin(watcher);
  await until(() => messages.length === 1);
  assert.deepEqual(resyncs, [{ type: "resync", reason: "refused 410", floorCursor: "e.90", snapshot: "/s" }]);
  assert.equal(hub.asked("watch")[1].query.version, "e.100");
  assert.equal(hub.asked("snapshot").length, 0);
});

test("each request has a token; one that cannot be had is a lost request", async () => {
  hub.scripts.watch.push(stream(block({ type: "expired" }, "expired")), stream(block(event(1, "a", 1))));
  let number = 0;
  const { watcher, messages, reports } = make({
    cursor: "0",
    token: async () => {
      number += 1;
      if (number === 2) throw new Error("no network");
      return `t${number}`;
    },
  });
  begin(watcher);
  await until(() => messages.length === 1);
  assert.deepEqual(
    hub.requests.map(({ headers }) => headers.authorization),
    ["Bearer t1", "Bearer t3"],
  );
  assert.deepEqual(
    reports.map(({ reason }) => reason),
    ["the rights of the stream have expired", "no network"],
  );
});

test("a refusal is the end, with its cause", async () => {
  for (const [answer, message] of [
    [problem(403, { detail: "the token has no right to this" }), "status 403: the token has no right to this"],
    [problem(410), "status 410: refused 410"],
    [
      { status: 200, type: "text/html", body: ["<p>"] },
      "the answer is text/html, not application/x-ndjson: the URL must be that of a hub",
    ],
  ]) {
    hub.scripts.snapshot.push(answer);
    const { watcher, phases } = make();
    await assert.rejects(watcher.start(), (error) => error instanceof WatchFailed && error.message === message);
    assert.deepEqual([watcher.phase, phases.at(-1)], ["stopped", "stopped"]);
  }
  hub.scripts.watch.push({ status: 302, headers: { Location: "http://127.0.0.1:1/" } });
  await assert.rejects(make({ cursor: "0" }).watcher.start(), /redirection|status 302/);
});

test("a page in place of a stream, once the hub was there, is a network that asks for a login", async () => {
  hub.scripts.snapshot.push(snapshot(1));
  hub.scripts.watch.push(
    { status: 200, type: "text/html", body: ["<form>"] },
    { status: 204 },
    stream(block(event(2, "a", 1))),
  );
  const { watcher, messages, reports } = make();
  begin(watcher);
  await until(() => messages.length === 2);
  assert.deepEqual(
    reports.map(({ reason }) => reason),
    ["the answer is text/html, not text/event-stream", "status 204"],
  );
});

test("what is not a hub's is a lost stream", async () => {
  hub.scripts.watch.push(stream("data: {\n\n"), stream(block(event(1, "a", 1))));
  const { watcher, messages, reports } = make({ cursor: "0" });
  begin(watcher);
  await until(() => messages.length === 1);
  assert.deepEqual(
    reports.map(({ kind, reason }) => [kind, reason]),
    [["lost", "no JSON: {"]],
  );
});

test("a stream of keep-alives alone is silent, and left", async () => {
  hub.scripts.watch.push(stream(":\n\n"), stream(block(event(1, "a", 1))));
  const { watcher, messages, reports } = make({ cursor: "0", interval: 0.1 });
  const keeping = setInterval(() => hub.send(":\n\n"), 20);
  try {
    begin(watcher);
    await until(() => messages.length === 1);
    assert.equal(reports[0].kind, "silent");
    await until(() => hub.closed >= 1);
  } finally {
    clearInterval(keeping);
  }
});

test("an iteration gives all messages, resyncs too, and its end closes the stream", async () => {
  hub.scripts.snapshot.push(snapshot(7, event(5, "apple", 3)), snapshot(95));
  hub.scripts.watch.push(
    stream(block(event(8, "a", 1)), block({ type: "resync", reason: "too old" }, "resync")),
    stream(block(event(96, "b", 2)), block(event(97, "b", 2))),
  );
  const { watcher } = make({ onSnapshot: undefined });
  const types = [];
  for await (const message of watcher) {
    types.push(message.type);
    if (message.type === "change" && message.cursor === "e.96") break;
  }
  assert.deepEqual(types, ["snapshot", "change", "resync", "snapshot", "change"]);
  assert.equal(watcher.cursor, "e.96");
  await watcher.start();
  await until(() => hub.open.size === 0);
  await assert.rejects(watcher[Symbol.asyncIterator]().next(), TypeError);
});

test("an iteration throws the error, behind the messages before it", async () => {
  hub.scripts.snapshot.push(snapshot(7));
  hub.scripts.watch.push(problem(403));
  const types = [];
  await assert.rejects(async () => {
    for await (const { type } of make().watcher) types.push(type);
  }, WatchFailed);
  assert.deepEqual(types, ["snapshot"]);
});

test("while the application does not read, the stream is not read", async () => {
  const number = 400,
    data = "x".repeat(100_000);
  hub.scripts.watch.push(stream(...Array.from({ length: number }, (_, index) => block(event(index + 1, "a", data)))));
  const iterator = make({ cursor: "0" }).watcher[Symbol.asyncIterator]();
  await iterator.next();
  // 40 MB are more than what waits here and in the buffers of the connection.
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.notEqual(hub.written, true);
  for (let index = 2; index <= number; index += 1) assert.equal((await iterator.next()).value.version, String(index));
  await iterator.return();
});

test("a callback that returns a promise is waited for; one that throws ends the watcher", async () => {
  hub.scripts.watch.push(stream(block(event(1, "a", 1)), block(event(2, "a", 2)), block(event(3, "a", 3))));
  const order = [];
  const { watcher } = make({
    cursor: "0",
    onChange: async ({ version }) => {
      order.push(`begin ${version}`);
      await new Promise((resolve) => setImmediate(resolve));
      order.push(`end ${version}`);
      if (version === "2") throw new RangeError("mine");
    },
  });
  await assert.rejects(watcher.start(), RangeError);
  assert.deepEqual(order, ["begin 1", "end 1", "begin 2", "end 2"]);
  assert.equal(watcher.cursor, "e.1");
  await until(() => hub.open.size === 0);
});

test("a stop within a callback is the last of them", async () => {
  hub.scripts.watch.push(stream(block(event(1, "a", 1)), block(event(2, "a", 2))));
  const made = make({ cursor: "0", onChange: ({ version }) => (made.messages.push(version), made.watcher.stop()) });
  await made.watcher.start();
  assert.deepEqual(made.messages, ["1"]);
});

test("a stop ends a request without an answer, and a pause", async () => {
  hub.scripts.watch.push({ silent: true });
  const held = make({ cursor: "0" }).watcher,
    end = held.start();
  await until(() => hub.requests.length === 1);
  held.stop();
  await end;
  const pausing = make({ cursor: "0" }, "http://127.0.0.1:1/hub"),
    other = pausing.watcher.start();
  await until(() => pausing.reports.length === 1);
  pausing.watcher.stop();
  await other;
});

test("the answer of a hostile server is not read without end", async () => {
  hub.scripts.snapshot.push({
    status: 403,
    type: "application/problem+json",
    body: Array(400).fill("x".repeat(100_000)),
  });
  await assert.rejects(make().watcher.start(), /status 403/);
  hub.scripts.snapshot.push({
    status: 200,
    type: "application/x-ndjson",
    body: [
      line({ type: "snapshot", version: "1", cursor: "e.1" }),
      ...Array.from({ length: 100 }, (_, index) => line(event(1, `k${index}`, "x".repeat(100_000)))),
    ],
  });
  await assert.rejects(make({ snapshotMax: 1_000_000 }).watcher.start(), /more than 1000000 bytes/);
  hub.scripts.watch.push(stream("data: {}\n\n", ...Array(400).fill("x".repeat(100_000))), stream());
  const { watcher, reports } = make({ cursor: "0" });
  begin(watcher);
  await until(() => reports.length > 0);
  assert.match(reports[0].reason, /more than 33554432 bytes/);
});

test("a page that wakes up looks at the clock: a stream of before its sleep is left", async () => {
  hub.scripts.watch.push(stream(block(event(1, "a", 1))), stream(block(event(2, "a", 2))));
  // A window, whose computer has slept for an hour; the monotonic clock has stood still.
  const page = new EventTarget(),
    clock = Date.now;
  for (const name of ["addEventListener", "removeEventListener"]) globalThis[name] = page[name].bind(page);
  try {
    const { watcher, messages, reports } = make({ cursor: "0" });
    begin(watcher);
    await until(() => messages.length === 1);
    Date.now = () => clock() + 3_600_000;
    page.dispatchEvent(new Event("online"));
    await until(() => messages.length === 2);
    assert.deepEqual([reports[0].kind, hub.requests[1].query.version], ["silent", "e.1"]);
  } finally {
    Date.now = clock;
    for (const name of ["addEventListener", "removeEventListener"]) delete globalThis[name];
  }
});

// --- soft topics, whose snapshots a source has

const change = (version, stamp, key, data) => ({
  type: "event",
  cursor: `w.${version}.${stamp}`,
  version: String(version),
  key,
  op: data === undefined ? "delete" : "put",
  content_type: "application/json",
  data,
});
const place = (version, stamp = 1) => ({ ...progress(version), cursor: `w.${version}.${stamp}` });
const resync = (floor, reason = "not retained") => ({
  type: "resync",
  reason,
  floor_cursor: floor === null ? null : `w.${floor}.9223372036854775807`,
});

test("events of a soft topic are whole at progress, and each has a place of its own", async () => {
  hub.scripts.watch.push(
    stream(
      block(change(42, 11, "apple", 1)),
      block(change(42, 12, "plum", 2)),
      block(place(42, 13), "progress"),
      block(change(43, 14, "apple")),
      block(change(44, 15, "fig", 3)),
    ),
  );
  const { watcher, messages, table } = make({ cursor: "w.41.9" });
  begin(watcher);
  await until(() => messages.length === 3);
  const end = 2n ** 63n - 1n;
  assert.deepEqual(messages, [`change w.42.${end}`, "progress w.42.13", `change w.43.${end}`]);
  assert.deepEqual([...table], [["plum", 2]]);
});

test("a snapshot of the source, and the changes behind it", async () => {
  hub.scripts.watch.push(
    stream(block(resync(40), "resync")),
    stream(block(change(43, 5, "plum", 3)), block(place(43, 6), "progress")),
  );
  const asked = [];
  const snapshots = (range) => (asked.push(range), { version: 42, values: { apple: 1, plum: 2, zoo: 9 } });
  const { watcher, messages, table, reports } = make({ low: "a", high: "z", snapshots });
  begin(watcher);
  await until(() => messages.length === 3);
  assert.deepEqual(messages.slice(0, 1), ["snapshot w.42"]);
  assert.deepEqual([...table].sort(), [
    ["apple", 1],
    ["plum", 3],
  ]);
  assert.deepEqual(asked, [{ low: "a", high: "z" }]);
  assert.deepEqual(
    hub.requests.map(({ kind, query }) => [kind, query.version]),
    [
      ["watch", "0"],
      ["watch", "w.42"],
    ],
  );
  assert.deepEqual(reports, [], "the first resync only names the floor");
});

test("the version of the floor alone may be of before: its cursor is the place, and what is known is dropped", async () => {
  hub.scripts.watch.push(
    stream(block({ ...resync(42), floor_cursor: "w.42.7" }, "resync")),
    stream(block(change(42, 8, "apple", 0)), block(change(43, 9, "plum", 3)), block(place(43, 10), "progress")),
  );
  const { watcher, messages, table } = make({ snapshots: async () => ({ version: "42", values: new Map([["apple", 1]]) }) });
  begin(watcher);
  await until(() => messages.length === 3);
  assert.equal(hub.requests[1].query.version, "w.42.7");
  assert.deepEqual([...table].sort(), [
    ["apple", 1],
    ["plum", 3],
  ]);
});

test("a source that is behind, away or empty is asked again; the hub too, if it knows no floor", async () => {
  hub.scripts.watch.push(
    stream(block(resync(null), "resync")),
    stream(block(resync(40), "resync")),
    stream(block(resync(40), "resync")),
    stream(block(place(41), "progress")),
  );
  const answers = [null, { version: 39, values: {} }, new Error("no route"), { version: 41n, values: {} }];
  const snapshots = async () => {
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const { watcher, messages, reports } = make({ snapshots });
  begin(watcher);
  await until(() => messages.length === 2);
  assert.deepEqual(messages, ["snapshot w.41", "progress w.41.1"]);
  const reasons = reports.map(({ reason }) => reason);
  for (const text of ["no snapshot now", "that of version 39: changes up to 40 are lost", "the source: no route"])
    assert.ok(
      reasons.some((reason) => reason.includes(text)),
      `${text} in ${reasons}`,
    );
});

test("a source that was restored below the floor is watched from its new one on", async () => {
  hub.scripts.watch.push(
    stream(block(resync(40), "resync")),
    stream(block(resync(20), "resync")),
    stream(block(place(31), "progress")),
  );
  const { watcher, messages } = make({ snapshots: () => ({ version: 30, values: {} }) });
  begin(watcher);
  await until(() => messages.length === 2);
  assert.deepEqual(messages, ["snapshot w.30", "progress w.31.1"]);
});

test("a version that is none ends the watch", async () => {
  for (const version of [-1, 1.5, "7a", null, 2n ** 63n]) {
    hub.scripts.watch.push(stream(block(resync(0), "resync")));
    const { watcher } = make({ snapshots: () => ({ version, values: {} }) });
    await assert.rejects(watcher.start(), WatchFailed);
  }
  assert.throws(() => make({ snapshots: () => null, onResync: () => "0" }), TypeError);
});
