// Transcripts of a watcher's decisions: inputs at times, and the actions that follow.

import assert from "node:assert/strict";
import { test } from "node:test";

import { BadAnswer, KeyRange, WatchState, versionOf } from "../../../griphub/client/javascript/watcher.js";

// An event; null in place of the key is an event without one.
const event = (id, version, key = "k", more = {}) => {
  const keyed = key === null ? {} : { key, op: "put" };
  const found = {
    type: "event",
    id: String(id),
    cursor: `e.${id}`,
    version: String(version),
    version_cursor: `e.${version}`,
    data: String(id),
    ...keyed,
    ...more,
  };
  return { type: "event", event: found, version: versionOf(found.version_cursor), size: 10 };
};
const progress = (cursor, low = null, high = null) => ({
  type: "progress",
  range: new KeyRange(low, high),
  version: versionOf(cursor),
  cursor,
});
const resync = (reason = "gone") => ({ type: "resync", reason, floorCursor: "e.90", snapshot: null });

// An action in a word.
const word = (action) => {
  if (action.do === "open") return `open ${action.number} ${action.cursor}`;
  if (action.do === "report") return `${action.report.kind} ${action.report.pause}`;
  if (action.do === "fail") return "fail";
  if (action.do !== "deliver") return `${action.do} ${action.number}`;
  const { type, cursor, events = [] } = action.message;
  return [type, cursor, ...events.map(({ id }) => id)].filter((part) => part !== undefined).join(" ");
};
const words = (actions) => actions.map(word);

// A watcher that watches, from a place.
function watching(options = {}) {
  const state = new WatchState({ range: new KeyRange(null, null), cursor: "e.10", chance: () => 1, ...options });
  assert.deepEqual(words(state.begin(0)), ["open 1 e.10"]);
  state.opened(1, 0);
  assert.equal(state.phase, "watching");
  return state;
}

test("a watcher without a place begins with a snapshot, and goes on at exactly its version", () => {
  const state = new WatchState({ range: new KeyRange("a", "n"), chance: () => 1 });
  assert.deepEqual(words(state.begin(0)), ["snapshot 1"]);
  state.versioned(1, "e.20", 1);
  for (const [id, key] of [
    [5, "b"],
    [20, "m"],
    [6, "n"],
    [7, null],
  ])
    assert.deepEqual(state.took(1, event(id, id, key).event, 10, 1), []);
  const actions = state.complete(1, 2);
  assert.deepEqual(words(actions), ["snapshot e.20 5 20", "open 2 e.20"]);
  assert.deepEqual(
    { ...actions[0].message, events: 0 },
    { type: "snapshot", low: "a", high: "n", version: "20", cursor: "e.20", events: 0, size: 20 },
  );
});

test("a torn snapshot is void, and read again after a pause", () => {
  const state = new WatchState({ range: new KeyRange(null, null), chance: () => 1 });
  state.begin(0);
  state.versioned(1, "e.20", 1);
  state.took(1, event(5, 5).event, 10, 1);
  assert.deepEqual(words(state.ended(1, "reset", 2)), ["lost 0.5"]);
  assert.deepEqual(state.complete(1, 2), []);
  assert.deepEqual(state.timer(2.4), []);
  assert.deepEqual(words(state.timer(2.5)), ["snapshot 3"]);
  state.versioned(3, "e.21", 3);
  assert.deepEqual(words(state.complete(3, 3)), ["snapshot e.21", "open 4 e.21"]);
});

test("a snapshot with an event above its version is void", () => {
  const state = new WatchState({ range: new KeyRange(null, null), chance: () => 1 });
  state.begin(0);
  state.versioned(1, "e.20", 1);
  assert.deepEqual(words(state.took(1, event(21, 21).event, 10, 1)), ["lost 0.5"]);
});

test("a snapshot, and the events of a version, are bounded", () => {
  const state = new WatchState({ range: new KeyRange(null, null), chance: () => 1, snapshotMax: 215 });
  state.begin(0);
  state.versioned(1, "e.20", 1);
  assert.deepEqual(state.took(1, event(5, 5).event, 10, 1), []);
  assert.deepEqual(words(state.took(1, event(6, 6).event, 10, 1)), ["fail"]);
  assert.equal(state.phase, "stopped");
  const other = watching();
  assert.deepEqual(other.line(1, { ...event(11, 13), size: 64 * 1024 * 1024 - 300 }, 1), []);
  assert.deepEqual(words(other.line(1, event(12, 13), 1)), ["fail"]);
});

test("events of a version are given together: at the last one, at a later version, or at progress", () => {
  const state = watching();
  assert.deepEqual(words(state.line(1, event(11, 12), 1)), []);
  assert.deepEqual(words(state.line(1, event(12, 12), 1)), ["change e.12 11 12"]);
  assert.deepEqual(words(state.line(1, event(13, 15), 1)), []);
  assert.deepEqual(words(state.line(1, event(16, 16), 1)), ["change e.15 13", "change e.16 16"]);
  assert.deepEqual(words(state.line(1, event(17, 19), 1)), []);
  assert.deepEqual(words(state.line(1, progress("e.19.5"), 1)), ["change e.19 17", "progress e.19.5"]);
  assert.deepEqual(words(state.line(1, progress("e.18.6"), 1)), []);
});

test("a stream that breaks within a version leaves nothing of it", () => {
  const state = watching();
  state.line(1, event(11, 11), 1);
  state.line(1, event(12, 14), 1);
  assert.deepEqual(words(state.ended(1, "reset", 2)), ["lost 0.5"]);
  assert.deepEqual(words(state.timer(3)), ["open 3 e.11"]);
  for (const id of [12, 13]) assert.deepEqual(words(state.line(3, event(id, 14), 4)), []);
  assert.deepEqual(words(state.line(3, event(14, 14), 4)), ["change e.14 12 13 14"]);
});

test("repeated events are dropped, within a version and behind it", () => {
  const state = watching();
  state.line(1, event(11, 12), 1);
  assert.deepEqual(words(state.line(1, event(11, 12), 1)), []);
  assert.deepEqual(words(state.line(1, event(12, 12), 1)), ["change e.12 11 12"]);
  for (const line of [event(9, 9), event(11, 12), event(12, 12)]) assert.deepEqual(words(state.line(1, line, 1)), []);
});

test("progress moves the place; that of a part does not", () => {
  const state = watching();
  assert.deepEqual(words(state.line(1, progress("e.15.1"), 1)), ["progress e.15.1"]);
  assert.equal(state.line(1, progress("e.18.2", "a", "b"), 1)[0].message.whole, false);
  assert.deepEqual(words(state.ended(1, "reset", 2)), ["lost 0.5"]);
  assert.deepEqual(words(state.timer(3)), ["open 3 e.15.1"]);
});

test("progress of a part stands behind the events that it is about, which may be repeated", () => {
  const state = watching();
  state.line(1, event(11, 13, "a"), 1);
  assert.deepEqual(words(state.line(1, progress("e.13.1", "a", "b"), 1)), []);
  assert.deepEqual(words(state.line(1, event(11, 13, "a"), 1)), []);
  assert.deepEqual(words(state.line(1, event(13, 13, "c"), 1)), ["change e.13 11 13", "progress e.13.1"]);
});

test("events of other keys, and without one, are not of a range", () => {
  const state = watching({ range: new KeyRange("b", "d") });
  for (const key of ["a", "d", null]) assert.deepEqual(state.line(1, event(11, 11, key), 1), []);
  assert.deepEqual(words(state.line(1, event(12, 12, "b"), 1)), ["change e.12 12"]);
  assert.deepEqual(
    { ...state.line(1, progress("e.13.1"), 1)[0].message, type: 0 },
    { type: 0, low: "b", high: "d", version: "13", cursor: "e.13.1", whole: true },
  );
  assert.deepEqual(state.line(1, progress("e.14.1", "d", "f"), 1), []);
});

test("an order that no hub gives ends in a snapshot", () => {
  const late = watching();
  late.line(1, event(20, 20), 1);
  assert.deepEqual(words(late.line(1, event(15, 15), 1)), ["disorder 0", "resync", "snapshot 2"]);
  const overtaken = watching();
  overtaken.line(1, progress("e.20.1", "a", "m"), 1);
  assert.deepEqual(words(overtaken.line(1, event(15, 15, "x"), 1)), ["change e.15 15"]);
  assert.deepEqual(words(overtaken.line(1, event(18, 18, "k"), 1)), ["disorder 0", "resync", "snapshot 2"]);
});

test("a resync is a snapshot, and the watch goes on at its version", () => {
  const state = watching();
  state.line(1, event(11, 14), 1);
  assert.deepEqual(words(state.line(1, resync(), 20)), ["resync 0", "resync", "snapshot 2"]);
  assert.deepEqual(state.line(1, event(14, 14), 20), []);
  state.versioned(2, "e.95", 21);
  assert.deepEqual(words(state.complete(2, 21)), ["snapshot e.95", "open 3 e.95"]);
  assert.deepEqual(words(state.line(3, event(96, 96), 22)), ["change e.96 96"]);
});

test("a resync soon after another one waits", () => {
  const state = watching();
  assert.deepEqual(words(state.gone(1, resync(), 1)), ["resync 0", "resync", "snapshot 2"]);
  state.versioned(2, "e.95", 2);
  state.complete(2, 2);
  assert.deepEqual(words(state.gone(3, resync(), 3)), ["resync 0.5", "resync"]);
  assert.deepEqual(words(state.timer(3.5)), ["snapshot 5"]);
  state.versioned(5, "e.99", 4);
  state.complete(5, 4);
  assert.deepEqual(words(state.gone(6, resync(), 5)), ["resync 1", "resync"]);
});

test("the application may answer a resync itself", () => {
  const state = watching({ handed: true });
  assert.deepEqual(words(state.gone(1, resync(), 1)), ["resync 0", "resync", "ask 2"]);
  assert.deepEqual(words(state.placed(2, "e.100", 9)), ["open 3 e.100"]);
  assert.deepEqual(words(state.gone(3, resync(), 30)), ["resync 0", "resync", "ask 4"]);
  assert.deepEqual(words(state.placed(4, null, 31)), ["snapshot 5"]);
  assert.throws(() => new WatchState({ range: new KeyRange(null, null), cursor: "100", chance: () => 1 }), BadAnswer);
});

test("pauses grow to a bound, by chance somewhat shorter, and begin anew with a message", () => {
  const state = watching();
  let number = 1,
    now = 1;
  const pauses = [];
  for (let index = 0; index < 8; index += 1) {
    pauses.push(state.ended(number, "reset", now)[0].report.pause);
    now = state.deadline;
    [{ number }] = state.timer(now);
  }
  assert.deepEqual(pauses, [0.5, 1, 2, 4, 8, 15, 15, 15]);
  state.line(number, progress("e.10.5"), now);
  assert.deepEqual(words(state.ended(number, "reset", now)), ["lost 0.5"]);
  const half = watching({ chance: () => 0 });
  assert.deepEqual(words(half.ended(1, "reset", 1)), ["lost 0.25"]);
});

test("the hub may ask for a longer pause, up to a bound", () => {
  for (const [asked, pause] of [
    [0.1, 0.5],
    [7, 7],
    [9999, 300],
  ])
    assert.deepEqual(words(watching().ended(1, "503", 1, asked)), [`lost ${pause}`]);
});

test("a stream without a line for three intervals is lost; a longer interval is learned", () => {
  const state = watching();
  assert.equal(state.deadline, 30);
  state.line(1, event(11, 11), 20);
  assert.equal(state.deadline, 50);
  assert.deepEqual(state.timer(49), []);
  assert.deepEqual(words(state.timer(50)), ["silent 0.5"]);
  state.timer(51);
  state.opened(3, 51);
  assert.equal(state.deadline, 111);
  state.line(3, progress("e.11.1"), 60);
  state.line(3, progress("e.11.2"), 100);
  assert.equal(state.deadline, 220);
  state.line(3, progress("e.11.3"), 105);
  assert.equal(state.deadline, 135);
});

test("a stream that is not read is not silent", () => {
  const state = watching();
  state.line(1, progress("e.10.1"), 5);
  state.waiting(100);
  assert.equal(state.deadline, 130);
  state.line(1, progress("e.10.2"), 101);
  assert.equal(state.deadline, 131);
});

test("no answer for a minute is a lost request, of a stream and of a snapshot", () => {
  const state = new WatchState({ range: new KeyRange(null, null), chance: () => 1 });
  state.begin(0);
  state.versioned(1, "e.20", 50);
  assert.equal(state.deadline, 110);
  assert.deepEqual(words(state.timer(110)), ["silent 0.5"]);
  state.timer(111);
  state.versioned(3, "e.20", 111);
  state.complete(3, 112);
  assert.equal(state.deadline, 172);
  assert.deepEqual(words(state.timer(172)), ["silent 1"]);
});

test("an event of another epoch is not believed: a new stream asks", () => {
  const restored = (id) => event(id, id, "k", { cursor: `f.${id}`, version_cursor: `f.${id}` });
  const state = watching();
  state.line(1, event(11, 11), 1);
  assert.deepEqual(words(state.line(1, restored(4294967308), 2)), ["epoch 0.5"]);
  assert.deepEqual(words(state.timer(3)), ["open 3 e.11"]);
  assert.deepEqual(words(state.line(3, restored(4294967308), 4)), ["change f.4294967308 4294967308"]);
  assert.deepEqual(words(state.line(3, restored(4294967309), 4)), ["change f.4294967309 4294967309"]);
});

test("two restores, and an event between them whose version is not whole", () => {
  const restored = (epoch, id, version = id) =>
    event(id, version, "k", { cursor: `${epoch}.${id}`, version_cursor: `${epoch}.${version}` });
  const lines = [restored("f", 100, 101), restored("g", 200)],
    state = watching();
  assert.deepEqual(words(state.line(1, lines[0], 1)), ["epoch 0.5"]);
  state.timer(2);
  assert.deepEqual(
    lines.map((line) => words(state.line(3, line, 3))),
    [[], ["epoch 1"]],
  );
  assert.deepEqual(words(state.timer(5)), ["open 5 e.10"]);
  assert.deepEqual(
    lines.map((line) => words(state.line(5, line, 6))),
    [[], ["change f.101 100", "change g.200 200"]],
  );
});

test("a hub whose epoch is always another one is asked for a snapshot", () => {
  const state = watching();
  let number = 1;
  for (let index = 0; index < 16; index += 1) {
    assert.equal(
      state.line(
        number,
        event(index + 11, index + 11, "k", { cursor: `f${index}.11`, version_cursor: `f${index}.11` }),
        index,
      )[0].report.kind,
      "epoch",
    );
    [{ number }] = state.timer(1000 * index + state.deadline);
  }
  assert.deepEqual(words(state.line(number, event(12, 12, "k", { cursor: "g.12", version_cursor: "g.12" }), 99999)), [
    "disorder 0",
    "resync",
    `snapshot ${number + 1}`,
  ]);
});

test("versions above 2^53 are told apart", () => {
  const state = watching({ cursor: "e.10" });
  const big = 9007199254740992n;
  assert.deepEqual(words(state.line(1, event(big, big), 1)), [`change e.${big} ${big}`]);
  assert.deepEqual(words(state.line(1, event(big + 1n, big + 1n), 1)), [`change e.${big + 1n} ${big + 1n}`]);
  assert.deepEqual(words(state.line(1, event(big + 1n, big + 1n), 1)), []);
});

test("events of a soft topic have no id: their keys tell them apart", () => {
  const soft = (version, key) => event(0, version, key, { id: undefined, cursor: undefined });
  const state = watching();
  for (const key of ["a", "b", "a"]) assert.deepEqual(state.line(1, soft(12, key), 1), []);
  const [change, told] = state.line(1, progress("e.12.1"), 1);
  assert.deepEqual(
    change.message.events.map(({ key }) => key),
    ["a", "b"],
  );
  assert.equal(told.message.cursor, "e.12.1");
});

test("rights that end are a new stream; a refusal is the end", () => {
  const state = watching();
  assert.deepEqual(words(state.line(1, { type: "expired" }, 1)), ["lost 0.5"]);
  state.timer(2);
  assert.deepEqual(words(state.refused(3, "403")), ["fail"]);
  for (const actions of [state.begin(9), state.timer(99), state.ended(3, "", 9), state.line(3, resync(), 9)])
    assert.deepEqual(actions, []);
  assert.equal(state.deadline, Infinity);
});

test("inputs of an earlier request have no effect", () => {
  const state = watching();
  state.ended(1, "reset", 1);
  state.timer(2);
  for (const actions of [
    state.line(1, event(11, 11), 3),
    state.line(2, event(11, 11), 3),
    state.ended(1, "", 3),
    state.gone(1, resync(), 3),
    state.refused(1, ""),
  ])
    assert.deepEqual(actions, []);
  assert.deepEqual(words(state.line(3, event(11, 11), 3)), ["change e.11 11"]);
});
