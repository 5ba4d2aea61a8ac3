// Bytes of the hub in, lines of a watch out; keys and cursors in their order.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  BadAnswer,
  EventStreamParser,
  KeyRange,
  LineParser,
  SnapshotParser,
  compareCursors,
  compareKeys,
  versionOf,
  watchLine,
} from "../../../griphub/client/javascript/watcher.js";

const bytes = (text) => new TextEncoder().encode(text);
const fed = (parser, chunk) => [...parser.feed(chunk)].map(({ event, data, id }) => [event, data, id]);
const blocks = (text, parser = new EventStreamParser()) => fed(parser, bytes(text));

test("a block counts at its blank line, however its bytes arrive", () => {
  const text =
    ': hello\n\nid: e.1\ndata: {"grün": 1}\n\nevent: progress\nid: e.2.7\ndata: a\ndata:b\n\nid: e.3\n\ndata: torn\n';
  const whole = [
    ["", '{"grün": 1}', "e.1"],
    ["progress", "a\nb", "e.2.7"],
    ["", null, "e.3"],
  ];
  assert.deepEqual(blocks(text), whole);
  assert.deepEqual(blocks(text.replaceAll("\n", "\r\n")), whole);
  const parser = new EventStreamParser(),
    all = [];
  for (const byte of bytes(text)) all.push(...fed(parser, Uint8Array.of(byte)));
  assert.deepEqual(all, whole);
});

test("a byte order mark is dropped at the beginning of a stream, and nowhere else", () => {
  assert.deepEqual(blocks("\ufeffdata: \ufeffa\n\n"), [["", "\ufeffa", ""]]);
  assert.deepEqual([...new LineParser().feed(bytes("\ufeffa\n"))], [{ text: "\ufeffa", size: 4 }]);
});

test("an id with NUL is not one", () => assert.deepEqual(blocks("id: a\0b\ndata: x\n\n"), [["", "x", ""]]));

test("a line, and a block of many lines, are bounded", () => {
  assert.throws(() => [...new LineParser(3).feed(bytes("abcd"))], BadAnswer);
  assert.equal([...new LineParser(3).feed(bytes("abc\n"))].length, 1);
  assert.throws(() => blocks("data: a\n".repeat(4), new EventStreamParser(27)), BadAnswer);
  assert.equal(blocks(":".repeat(20) + "\n" + "data: a\n".repeat(4) + "\n", new EventStreamParser(28)).length, 1);
});

test("a block has a bounded number of lines", () => {
  assert.equal(blocks("data:\n".repeat(1000) + "\n").length, 1);
  assert.throws(() => blocks("data:\n".repeat(1001)), BadAnswer);
});

test("a long line in parts of any size", () => {
  const parser = new LineParser(),
    line = "0123456789".repeat(1000),
    lines = [];
  for (let begin = 0, size = 1; begin <= line.length; begin += size, size = ((size * 7) % 97) + 1)
    lines.push(...parser.feed(bytes(`${line}\n`.slice(begin, begin + size))));
  assert.deepEqual(lines, [{ text: line, size: line.length }]);
});

test("a nesting without end is an answer that is none", () => {
  const deep = `{"type":"event","data":${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
  assert.throws(() => watchLine({ event: "", data: deep, id: "e.1", size: 1 }), BadAnswer);
});

test("bytes that are no UTF-8 are no line", () =>
  assert.throws(() => [...new LineParser().feed(Uint8Array.of(0xff, 10))], BadAnswer));

test("keys are in the order of their bytes", () => {
  const keys = [
    "",
    "a",
    "aa",
    "b",
    "z",
    "ä",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\u{10000}",
    "\u{10000}a",
    "\u{10ffff}",
    "\uffffa",
    "a\u{1f600}",
    "a\uff5e",
  ];
  for (const one of keys) {
    for (const other of keys) {
      assert.equal(
        Math.sign(compareKeys(one, other)),
        Buffer.compare(Buffer.from(one), Buffer.from(other)),
        `${one} ${other}`,
      );
    }
  }
});

test("cursors are compared as whole numbers, within one epoch", () => {
  assert.equal(compareCursors("e.9007199254740993", "e.9007199254740992"), 1);
  assert.equal(compareCursors("e.9", "e.10.5"), -1);
  assert.equal(compareCursors("e.9", "e.9.5"), 0);
  assert.equal(compareCursors("0", "e.9"), -1);
  assert.equal(compareCursors("e.9", "f.10"), undefined);
  assert.deepEqual(versionOf("ab12.9223372036854775807.1"), { epoch: "ab12", number: 9223372036854775807n });
  for (const wrong of [
    "",
    "1",
    "e",
    "e.",
    "e.-1",
    "e.1.2.3",
    "E.1",
    "e.1 ",
    "e.12345678901234567890",
    1,
    null,
    undefined,
  ])
    assert.throws(() => versionOf(wrong), BadAnswer);
});

test("a range is half-open, by bytes", () => {
  const range = new KeyRange("b", "\u{10000}");
  assert.deepEqual(
    ["a", "b", "\uffff", "\u{10000}"].map((key) => range.has(key)),
    [false, true, true, false],
  );
  assert.ok(new KeyRange(null, undefined).whole && new KeyRange("", null).whole);
  for (const [low, high] of [
    ["b", "b"],
    ["\u{10000}", "\uffff"],
    [null, ""],
    ["\ud800", null],
    [1, null],
  ])
    assert.throws(() => new KeyRange(low, high), RangeError);
  assert.deepEqual({ ...new KeyRange("a", "m").overlap(new KeyRange("f", null)) }, { low: "f", high: "m" });
  assert.equal(new KeyRange("a", "f").overlap(new KeyRange("f", null)), null);
});

const block = (document, event = "", id = "e.1") => ({ event, data: JSON.stringify(document), id, size: 1 });

test("lines of a watch", () => {
  const event = {
    type: "event",
    id: "5",
    cursor: "e.5",
    version: "6",
    version_cursor: "e.6",
    key: "a",
    op: "put",
    data: 1,
  };
  assert.deepEqual(watchLine(block(event)), { type: "event", event, version: { epoch: "e", number: 6n }, size: 1 });
  const { range, ...progress } = watchLine(
    block({ type: "progress", low: "a", high: null, version: "7", cursor: "e.7.9" }, "progress"),
  );
  assert.deepEqual(
    [{ ...range }, progress],
    [
      { low: "a", high: null },
      { type: "progress", version: { epoch: "e", number: 7n }, cursor: "e.7.9" },
    ],
  );
  const resync = { type: "resync", reason: "gone", floor_cursor: "e.3", snapshot: "/s" };
  assert.deepEqual(watchLine(block(resync, "resync")), {
    type: "resync",
    reason: "gone",
    floorCursor: "e.3",
    snapshot: "/s",
  });
  assert.deepEqual(watchLine(block({}, "expired")), { type: "expired" });
  assert.equal(watchLine(block({ type: "later" })), null);
  assert.equal(watchLine({ event: "", data: null, id: "e.1", size: 1 }), null);
});

test("a line that is not one of a hub is refused", () => {
  const good = { type: "event", version_cursor: "e.6", key: "a", op: "put" };
  for (const change of [
    { key: "" },
    { key: 5 },
    { key: "\ud800" },
    { op: "move" },
    { key: undefined },
    { op: undefined },
    { version_cursor: "6" },
    { version_cursor: 6 },
    { cursor: 5 },
  ]) {
    assert.throws(() => watchLine(block({ ...good, ...change })), BadAnswer, JSON.stringify(change));
  }
  for (const data of ["", "[]", "null", "5", "{"]) assert.throws(() => watchLine({ ...block({}), data }), BadAnswer);
  for (const change of [{ cursor: "7" }, { low: "b", high: "a" }, { low: 5 }])
    assert.throws(() => watchLine(block({ type: "progress", cursor: "e.7", ...change })), BadAnswer);
});

test("a snapshot is whole with its last line", () => {
  const event = { type: "event", version_cursor: "e.6", key: "a", op: "put" };
  const text = [{ type: "snapshot", version: "6", cursor: "e.6" }, event, { complete: "6" }].map(
    (line) => `${JSON.stringify(line)}\n`,
  );
  const snapshot = new SnapshotParser();
  assert.deepEqual(
    [...snapshot.feed(bytes(text[0] + text[1]))],
    [{ cursor: "e.6" }, { event, size: text[1].length - 1 }],
  );
  assert.deepEqual([...snapshot.feed(bytes(text[2].trimEnd()))], []);
  assert.equal(snapshot.complete, false);
  assert.deepEqual([...snapshot.feed(bytes("\n"))], []);
  assert.equal(snapshot.complete, true);
  assert.throws(() => [...snapshot.feed(bytes(text[1]))], BadAnswer);
  for (const wrong of [
    '{"complete":"6"}\n',
    '{"type":"snapshot","version":6,"cursor":"e.6"}\n',
    '{"type":"snapshot","version":"6","cursor":"6"}\n',
    `${text[0]}{"complete":"7"}\n`,
  ]) {
    assert.throws(() => [...new SnapshotParser().feed(bytes(wrong))], BadAnswer, wrong);
  }
});
