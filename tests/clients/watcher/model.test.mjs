// Random histories against the decisions: whatever breaks, is repeated, forgotten or restored, each state that the
// application sees is one that existed, at the version that it is said to be of, and in the end it is the newest.
//
// WATCHER is the module under test, for its mutants; SEED the first seed, SEEDS their number.

import assert from "node:assert/strict";
import { test } from "node:test";

const path = process.env.WATCHER ?? "../../../griphub/client/javascript/watcher.js";
const { EventStreamParser, KeyRange, SnapshotParser, WatchState, watchLine } = await import(path);
const KEYS = ["a", "b", "c", "m", "z", "ä", "\uffff", "\u{1f600}"];
const FIRST = Number(process.env.SEED ?? 1),
  SEEDS = Number(process.env.SEEDS ?? 300);

// What is true is computed without the module under test.
const inside = ({ low, high }, key) =>
  Buffer.compare(Buffer.from(low ?? ""), Buffer.from(key)) <= 0 &&
  (high === null || Buffer.compare(Buffer.from(key), Buffer.from(high)) < 0);
const placeOf = (cursor) => [cursor.split(".")[0], BigInt(cursor.split(".")[1] ?? 0)];

// mulberry32: numbers from 0 up to 1 of a seed.
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// A store with a history, a floor and epochs, and what a watcher of it is sent.
class Store {
  constructor(chance) {
    this.chance = chance;
    this.epoch = "e0";
    this.events = [];
    // Numbers are exact up to 2^53.
    this.newest = this.chance() < 0.5 ? 0n : 2n ** 53n - 10n;
    this.floor = 0n;
    this.intervals = [["e0", 0n, null]];
    this.micros = 0;
    // Of each epoch the versions and tables of its history, those that it was restored from included.
    this.states = new Map([["e0", [[0n, new Map()]]]]);
    this.epochs = 1;
  }

  below(bound) {
    return Math.floor(this.chance() * bound);
  }

  cursor(id) {
    const [epoch] = this.intervals.findLast(([, first]) => first <= id);
    return id === 0n ? "0" : `${epoch}.${id}`;
  }

  table(version = this.newest) {
    const table = new Map();
    for (const { document } of this.events.filter(({ id }) => id <= version)) {
      if (document.op === "put") table.set(document.key, document.data);
      else table.delete(document.key);
    }
    return table;
  }

  // One transaction, of up to four events; ids leave gaps, as of other topics.
  publish() {
    const number = 1 + this.below(4);
    let id = this.newest + BigInt(1 + this.below(3));
    const version = id + BigInt(number - 1);
    for (let index = 0; index < number; index += 1, id += 1n) {
      const keyed =
        this.chance() < 0.9 ? { key: KEYS[this.below(KEYS.length)], op: this.chance() < 0.7 ? "put" : "delete" } : {};
      const document = {
        type: "event",
        id: String(id),
        cursor: `${this.epoch}.${id}`,
        version: String(version),
        version_cursor: `${this.epoch}.${version}`,
        ...keyed,
        data: `${this.epoch}-${id}`,
      };
      this.events.push({ id, version, document });
    }
    this.newest = version;
    this.states.get(this.epoch).push([version, this.table()]);
  }

  trim() {
    this.floor = this.newest - BigInt(this.below(Math.min(Number(this.newest % 100000n), 6) + 1));
  }

  // Back to an earlier state, under a new epoch.
  restore() {
    const versions = [...new Set(this.events.map(({ version }) => version))]
      .filter((version) => version >= this.floor)
      .slice(-4);
    const back = versions.length ? versions[this.below(versions.length)] : this.newest;
    const history = this.states.get(this.epoch).filter(([version]) => version <= back);
    this.events = this.events.filter(({ id }) => id <= back);
    // An epoch that began later is unknown to the copy.
    this.intervals = this.intervals.filter(([, first]) => first <= back);
    this.intervals.at(-1)[2] = back;
    this.newest = back + 2n ** 32n;
    this.epoch = `e${this.epochs}`;
    this.epochs += 1;
    this.intervals.push([this.epoch, back + 1n, null]);
    this.states.set(this.epoch, history);
  }

  gone(cursor) {
    const [epoch, number] = placeOf(cursor);
    if (cursor === "0") return this.floor > 0n;
    const interval = this.intervals.find(([name]) => name === epoch);
    if (interval === undefined) return true;
    if (number < this.floor || number > this.newest) return true;
    return number < interval[1] - 1n || (interval[2] !== null && number > interval[2]);
  }

  in(range, key) {
    // Now and then more than was asked for: the watcher drops it.
    return (
      (range.low === null && range.high === null) || this.chance() < 0.05 || (key !== undefined && inside(range, key))
    );
  }

  block({ document }) {
    return `id: ${document.cursor}\ndata: ${JSON.stringify(document)}\n\n`;
  }

  progress(range, number = this.newest) {
    this.micros += 1;
    const cursor = `${this.epoch}.${number}.${this.micros}`;
    const document = { type: "progress", low: range.low, high: range.high, version: String(number), cursor };
    return `event: progress\nid: ${cursor}\ndata: ${JSON.stringify(document)}\n\n`;
  }

  resync() {
    const document = { type: "resync", floor_cursor: this.cursor(this.floor), snapshot: "s" };
    return `event: resync\nid: resync\ndata: ${JSON.stringify(document)}\n\n`;
  }
}

// One watcher of the store over connections that tear; `table` is the application's.
class World {
  constructor(seed) {
    this.chance = random(seed);
    this.store = new Store(this.chance);
    for (let index = this.store.below(10); index > 0; index -= 1) this.store.publish();
    const [low, high] = [
      [null, null],
      ["b", null],
      [null, "ä"],
      ["b", "\u{1f600}"],
      ["\uffff", null],
    ][this.store.below(5)];
    this.range = new KeyRange(low, high);
    this.state = new WatchState({ range: this.range, cursor: this.chance() < 0.3 ? "0" : null, chance: this.chance });
    this.now = 0;
    this.table = new Map();
    this.place = "0";
    this.seen = 0;
    this.live = null;
    this.reports = new Map();
    this.apply(this.state.begin(0));
  }

  apply(actions) {
    for (const action of actions) {
      if (action.do === "deliver") this.deliver(action.message);
      else if (action.do === "report") {
        this.reports.set(action.report.kind, 1 + (this.reports.get(action.report.kind) ?? 0));
        this.live = null;
      } else if (action.do === "open") this.open(action);
      else if (action.do === "snapshot") this.live = { ...action, text: this.snapshot(), parser: new SnapshotParser() };
      else assert.fail(JSON.stringify(action));
    }
  }

  open({ number, cursor }) {
    const { store, range } = this;
    this.live = { do: "open", number, text: "", parser: new EventStreamParser(), ended: false, sent: "" };
    if (store.gone(cursor)) {
      this.live.text = store.resync();
      this.live.ended = true;
      return;
    }
    const [, after] = placeOf(cursor);
    this.send(
      store.events
        .filter(({ version, document }) => version > after && store.in(range, document.key))
        .map((event) => store.block(event))
        .join(""),
    );
  }

  snapshot() {
    const { store, range } = this,
      values = new Map();
    const version = store.newest - (store.newest > store.floor && this.chance() < 0.3 ? 1n : 0n);
    for (const { document } of store.events.filter((event) => event.version <= version)) {
      if (document.key === undefined || !store.in(range, document.key)) continue;
      if (document.op === "put") values.set(document.key, document);
      else values.delete(document.key);
    }
    const lines = [...values.values()].map((document) => JSON.stringify(document));
    return [
      `{"type":"snapshot","version":"${version}","cursor":"${store.cursor(version)}"}`,
      ...lines,
      `{"complete":"${version}"}`,
      "",
    ].join("\n");
  }

  send(text) {
    if (this.live === null || this.live.do !== "open" || this.live.ended) return;
    this.live.text += text;
    this.live.sent += text;
  }

  // The state of the range at a cursor, as it existed in the history that the cursor is of.
  existed(cursor) {
    const [epoch, number] = placeOf(cursor);
    const [, state] = this.store.states.get(epoch === "0" ? "e0" : epoch).findLast(([version]) => version <= number);
    return new Map([...state].filter(([key]) => inside(this.range, key)));
  }

  check(cursor, text) {
    assert.deepEqual(new Map([...this.table].sort()), new Map([...this.existed(cursor)].sort()), `${text} ${cursor}`);
  }

  deliver(message) {
    this.seen += 1;
    if (message.type === "resync") return;
    if (message.type === "progress" && !message.whole) return;
    if (message.type === "snapshot") this.table.clear();
    else {
      const [[epoch, number], [newEpoch, newNumber]] = [placeOf(this.place), placeOf(message.cursor)];
      assert.ok(
        epoch !== newEpoch || number < newNumber || (number === newNumber && message.type === "progress"),
        `${message.type} ${message.cursor} follows ${this.place}`,
      );
    }
    for (const { key, op, data } of message.events ?? []) {
      if (key === undefined) continue;
      assert.ok(inside(this.range, key), key);
      if (op === "put") this.table.set(key, data);
      else this.table.delete(key);
    }
    if (message.type === "change")
      assert.ok(message.events.length > 0 && new Set(message.events.map(({ version }) => version)).size === 1);
    this.place = message.cursor;
    this.check(message.cursor, message.type);
  }

  // Bytes arrive, up to a bound, cut anywhere.
  receive(bound) {
    const { live, state } = this;
    if (live === null || live.text === "") return this.end();
    const bytes = new TextEncoder().encode(live.text);
    const cut = Math.max(1, Math.min(bytes.length, bound));
    const chunk = bytes.slice(0, cut);
    live.rest = bytes.slice(cut);
    // Whole characters only in the text that waits; what is torn is put in front.
    live.text = "";
    this.feed(live, chunk);
    if (this.live === live) {
      const rest = live.rest;
      live.rest = null;
      if (rest.length) this.pending(live, rest);
      if (live.do === "snapshot" && live.parser.complete) this.apply(state.complete(live.number, this.now));
    }
  }

  pending(live, rest) {
    // Fed byte by byte, so that a tear lies in characters too.
    const half = Math.floor(rest.length / 2);
    this.feed(live, rest.slice(0, half));
    if (this.live === live) this.feed(live, rest.slice(half));
  }

  feed(live, chunk) {
    const { state } = this;
    if (live.do === "snapshot") {
      for (const line of live.parser.feed(chunk)) {
        if (line.event === undefined) this.apply(state.versioned(live.number, line.cursor, this.now));
        else this.apply(state.took(live.number, line.event, line.size, this.now));
        if (this.live !== live) return;
      }
      return;
    }
    state.opened(live.number, this.now);
    for (const block of live.parser.feed(chunk)) {
      const line = watchLine(block);
      if (line !== null) this.apply(state.line(live.number, line, this.now));
      if (this.live !== live) return;
    }
  }

  end() {
    if (this.live?.ended) this.tear();
  }

  // The connection breaks; a part of the bytes under way arrives.
  tear() {
    const { live } = this;
    if (live === null) return;
    if (live.text !== "") {
      const bytes = new TextEncoder().encode(live.text);
      live.text = "";
      this.feed(live, bytes.slice(0, this.store.below(bytes.length + 1)));
      if (this.live !== live) return;
      if (live.do === "snapshot" && live.parser.complete) return this.apply(this.state.complete(live.number, this.now));
    }
    this.apply(this.state.ended(live.number, "torn", this.now));
  }

  step() {
    const { store } = this;
    this.now += this.chance();
    this.apply(this.state.timer(this.now));
    const what = this.chance();
    if (what < 0.35) {
      const before = store.events.length;
      store.publish();
      this.send(
        store.events
          .slice(before)
          .filter(({ document }) => store.in(this.range, document.key))
          .map((event) => store.block(event))
          .join(""),
      );
    } else if (what < 0.5) this.send(store.progress(this.range));
    else if (what < 0.53) this.send(store.progress(new KeyRange(null, "n")));
    else if (what < 0.58) {
      // Once more, from some block on.
      const blocks = this.live?.sent?.match(/[^]*?\n\n/g) ?? [];
      const epoch = `"${store.epoch}.`;
      const again = blocks.slice(store.below(blocks.length + 1)).filter((block) => block.includes(epoch));
      if (this.live?.do === "open" && !this.live.ended) this.live.text += again.join("");
    } else if (what < 0.64) this.tear();
    else if (what < 0.67) store.trim();
    else if (what < 0.685) store.restore();
    else if (what < 0.7) this.now += 40;
    else this.receive(1 + store.below(3000));
  }

  settle() {
    for (let index = 0; index < 60; index += 1) {
      this.now = Math.max(
        this.now,
        this.state.deadline === Infinity ? 0 : this.state.phase === "backing-off" ? this.state.deadline : 0,
      );
      this.apply(this.state.timer(this.now));
      this.send(this.store.progress(this.range));
      this.receive(Infinity);
      this.end();
    }
    assert.equal(this.state.phase, "watching");
    assert.deepEqual(placeOf(this.place), placeOf(this.store.cursor(this.store.newest)));
    this.check(this.place, "the end");
  }
}

test("states that existed", () => {
  let seen = 0;
  const reports = new Map();
  for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) {
    try {
      const world = new World(seed);
      for (let index = 0; index < 150; index += 1) world.step();
      world.settle();
      seen += world.seen;
      for (const [kind, number] of world.reports) reports.set(kind, number + (reports.get(kind) ?? 0));
    } catch (error) {
      error.message = `SEED=${seed} SEEDS=1: ${error.message}`;
      throw error;
    }
  }
  console.log(`messages: ${seen}, reports: ${JSON.stringify(Object.fromEntries(reports))}`);
  if (SEEDS >= 300) assert.deepEqual([...reports.keys()].sort(), ["epoch", "lost", "resync", "silent"]);
});
