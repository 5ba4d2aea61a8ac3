/**
 * Watcher of the hub for browsers: a range of keys as snapshot, changes and progress, over as many streams as it takes.
 *
 *     import { Watcher } from "./watcher.js";
 *     const table = new Map();
 *     for await (const message of new Watcher("/hub", { topic: "prices" })) {
 *       if (message.type === "snapshot") table.clear();
 *       if (!("events" in message)) continue;
 *       for (const { key, op, data } of message.events) {
 *         if (op === "delete") table.delete(key);
 *         else if (key !== undefined) table.set(key, data);
 *       }
 *     }
 *
 * One file without dependencies, typed by watcher.d.ts, which also describes what is exported. The classes before
 * Watcher decide, without clock and network: bytes and times go in, messages and requests come out. Ids and versions are
 * texts and BigInts, never numbers, which are exact only up to 2^53.
 *
 * Copied from the package griphub (griphub/client/javascript); Apache-2.0.
 */

/** @typedef {import("./watcher.d.ts").HubEvent} HubEvent */
/** @typedef {import("./watcher.d.ts").Version} Version */
/** @typedef {import("./watcher.d.ts").Change} Change */
/** @typedef {import("./watcher.d.ts").Progress} Progress */
/** @typedef {import("./watcher.d.ts").Resync} Resync */
/** @typedef {import("./watcher.d.ts").WatchLine} WatchLine */
/** @typedef {import("./watcher.d.ts").WatchAction} WatchAction */
/** @typedef {import("./watcher.d.ts").WatchRequest} WatchRequest */
/** @typedef {import("./watcher.d.ts").WatchMessage} WatchMessage */
/** @typedef {import("./watcher.d.ts").ReportKind} ReportKind */
/** @typedef {Extract<WatchLine, {type: "event"}>} EventLine */
/** @typedef {Extract<WatchLine, {type: "progress"}>} ProgressLine */

/** Bytes of a line or block: an event of 10 MB fits, in base64 too. A longer one ends the stream. */
const LINE_MAX = 32 * 1024 * 1024;
/** Lines of data of a block. A hub sends one. */
const DATA_LINES_MAX = 1000;
/** Bytes that each event counts for besides its own, where they wait. */
const OVERHEAD = 200;
/** Bytes of a snapshot until it is whole. With more of them the watch fails. */
const SNAPSHOT_MAX = 64 * 1024 * 1024;
/** Bytes of the events of one version until they are whole. With more of them the watch fails. */
const CHANGE_MAX = 64 * 1024 * 1024;
/** Events of one version until they are whole. With more of them the watch fails. */
const EVENTS_MAX = 100_000;
/** Versions by which a repetition is known from an event that is late; those up to the oldest one count as repeated. */
const REMEMBERED = 1000;
/** Progresses of parts of the range that are kept; the oldest is forgotten, since its part has the next one. */
const PARTS_MAX = 256;
/** Epochs that are seen behind one place; with more of them a snapshot is taken. Each restore of a store has one. */
const EPOCHS_MAX = 16;
/** Messages that wait for an iteration; from there on the stream is not read. */
const QUEUE_MESSAGES = 1000;
/** Bytes of the events that wait for an iteration; from there on the stream is not read. */
const QUEUE_BYTES = 4 * 1024 * 1024;
/** Bytes that are read of the answer to a refused request; what follows is not read. */
const PROBLEM_MAX = 64 * 1024;
/** Seconds of the first pause and of the longest one, of which up to a half is left out by chance. */
const PAUSE_MIN = 0.5,
  PAUSE_MAX = 15;
/** Seconds of the longest pause that the hub may ask for. */
const ASKED_MAX = 300;
/** Seconds until an answer has to begin, and between two parts of a snapshot. */
const ANSWER_LIMIT = 60;
/** Seconds between two resyncs below which the second one waits: a hub that forgets faster than its snapshot is read. */
const RESYNC_GAP = 10;
/** Seconds between progress of a topic, unless it has another setting. */
const INTERVAL = 10;
/** Intervals without a line after which a stream is lost, and seconds of the longest silence that is allowed. */
const INTERVALS = 3,
  SILENCE_MAX = 3600;
/** Seconds after which a wait looks at the clock again: timers stand still while a computer sleeps. */
const TICK = 5;
/** Milliseconds of work after which the page has its turn. */
const TURN = 10;

const EVENT_STREAM = "text/event-stream",
  LINES = "application/x-ndjson";
const REPEATED = new Set([429, 502, 503, 504]);
/** Microseconds in a cursor above all others, and the greatest version of a source. */
const STAMP_MAX = 2n ** 63n - 1n;
const CURSOR = /^([0-9a-z]{1,32})\.([0-9]{1,19})(?:\.[0-9]{1,19})?$/;

/** Answer that is not one of a hub. */
export class BadAnswer extends Error {
  name = "BadAnswer";
}

/** Answer of a hub that no repetition cures; the message has its cause. */
export class WatchFailed extends Error {
  name = "WatchFailed";
}

/** Request that has no answer, or an answer that broke off, or is not a hub's: it is repeated. */
class Lost extends Error {}

/** Order of events that no hub gives: something may be lost. */
class Disorder extends Error {}

/** Line of an epoch with which the stream was not opened. */
class OtherEpoch extends Error {
  /** @param {string} epoch */
  constructor(epoch) {
    super(`the epoch is ${epoch} from here on`);
    this.epoch = epoch;
  }
}

/** @param {number} unit Rank of a UTF-16 code unit: surrogates stand for code points above all others. */
const rank = (unit) => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800);

/**
 * Order of two keys by their bytes in UTF-8, which differs from that of `<` and `sort()`.
 * @param {string} one
 * @param {string} other
 */
export function compareKeys(one, other) {
  const length = Math.min(one.length, other.length);
  for (let index = 0; index < length; index += 1) {
    const left = one.charCodeAt(index),
      right = other.charCodeAt(index);
    if (left !== right) return rank(left) - rank(right);
  }
  return one.length - other.length;
}

/**
 * Order of two places of one epoch; undefined if the epochs differ.
 * @param {string} one
 * @param {string} other
 */
export function compareCursors(one, other) {
  const left = versionOf(one),
    right = versionOf(other);
  if (left.epoch && right.epoch && left.epoch !== right.epoch) return undefined;
  return left.number < right.number ? -1 : left.number > right.number ? 1 : 0;
}

/**
 * Version that a cursor names: `epoch.version`, `epoch.version.microseconds`, or `0` for the beginning.
 * @param {unknown} cursor
 * @returns {Version}
 */
export function versionOf(cursor) {
  if (cursor === "0") return { epoch: "", number: 0n };
  const match = typeof cursor === "string" ? CURSOR.exec(cursor) : null;
  if (match === null) throw new BadAnswer(`no cursor: ${shown(cursor)}`);
  return { epoch: match[1], number: BigInt(match[2]) };
}

/** @param {Version} one @param {Version} other */
const same = (one, other) => one.number === other.number && one.epoch === other.epoch;
/** @param {Version} version */
const named = ({ epoch, number }) => (epoch ? `${epoch}.${number}` : "0");

/** @param {Version} version Place behind all events of it. */
const endOf = ({ epoch, number }) => (epoch ? `${epoch}.${number}.${STAMP_MAX}` : "0");

/** @param {unknown} value Value as a message shows it. */
function shown(value) {
  try {
    return String(JSON.stringify(value)).slice(0, 200);
  } catch {
    // Nested deeper than the stack is.
    return String(value);
  }
}

/** Keys from `low` on and below `high`, by their bytes in UTF-8; null is an open end. */
export class KeyRange {
  /** @param {string | null | undefined} low @param {string | null | undefined} high */
  constructor(low, high) {
    this.low = low || null;
    this.high = high ?? null;
    for (const bound of [low ?? "", high ?? ""]) {
      if (typeof bound !== "string" || /\p{Surrogate}/u.test(bound))
        throw new RangeError(`${shown(bound)} is no key: expected a text of valid Unicode`);
    }
    if (this.high !== null && compareKeys(this.low ?? "", this.high) >= 0) {
      throw new RangeError(
        `no key is in [${shown(low)}, ${shown(high)}): low must be below high, which is not part of the range`,
      );
    }
  }

  /** True if all keys are in it, and events without one. */
  get whole() {
    return this.low === null && this.high === null;
  }

  /** @param {string} key */
  has(key) {
    return (
      (this.low === null || compareKeys(this.low, key) <= 0) && (this.high === null || compareKeys(key, this.high) < 0)
    );
  }

  /**
   * Keys that are in this and in another range; null if there are none.
   * @param {KeyRange} other
   */
  overlap(other) {
    const low = compareKeys(this.low ?? "", other.low ?? "") < 0 ? other.low : this.low;
    const high =
      this.high === null || (other.high !== null && compareKeys(other.high, this.high) < 0) ? other.high : this.high;
    return high !== null && compareKeys(low ?? "", high) >= 0 ? null : new KeyRange(low, high);
  }

  /** @param {KeyRange} other */
  equals(other) {
    return this.low === other.low && this.high === other.high;
  }
}

/** Lines of bytes, each as text at its end, so a torn one has no effect. */
export class LineParser {
  /** @type {Uint8Array[]} */
  #parts = [];
  #size = 0;
  #limit;
  // Without `ignoreBOM` each line would lose one.
  #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(limit = LINE_MAX) {
    this.#limit = limit;
  }

  /** Bytes of the line that is not whole yet. */
  get waiting() {
    return this.#size;
  }

  /**
   * @param {Uint8Array} chunk
   * @returns {Generator<{text: string, size: number}, void, void>}
   */
  *feed(chunk) {
    let begin = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, begin)) {
      this.#keep(chunk.subarray(begin, end));
      begin = end + 1;
      yield this.#take();
    }
    // A copy: a few bytes of a chunk would keep the whole of it.
    if (begin < chunk.length) this.#keep(begin ? chunk.slice(begin) : chunk);
  }

  /** @param {Uint8Array} part */
  #keep(part) {
    const parts = this.#parts;
    this.#size += part.length;
    if (this.#size > this.#limit) throw new BadAnswer(`a line has more than ${this.#limit} bytes`);
    parts.push(part);
    // Bytes that arrive one by one would each keep an array; joined in pairs, each is copied a few times only.
    while (parts.length > 1 && parts[parts.length - 2].length <= parts[parts.length - 1].length) this.#join();
  }

  #join() {
    const last = this.#parts.pop(),
      before = this.#parts.pop();
    if (last === undefined || before === undefined) return;
    const both = new Uint8Array(before.length + last.length);
    both.set(before);
    both.set(last, before.length);
    this.#parts.push(both);
  }

  #take() {
    while (this.#parts.length > 1) this.#join();
    const all = this.#parts[0],
      size = all.length;
    this.#parts = [];
    this.#size = 0;
    try {
      const text = this.#decoder.decode(all);
      return { text: text.endsWith("\r") ? text.slice(0, -1) : text, size };
    } catch {
      throw new BadAnswer("a line is not UTF-8");
    }
  }
}

/** Blocks of an event stream (HTML standard, server-sent events), each at its blank line. */
export class EventStreamParser {
  #lines;
  #limit;
  #begun = false;
  #event = "";
  /** @type {string[]} */
  #data = [];
  #id = "";
  #moved = false;
  #size = 0;

  constructor(limit = LINE_MAX) {
    this.#lines = new LineParser(limit);
    this.#limit = limit;
  }

  /** @param {Uint8Array} chunk */
  *feed(chunk) {
    for (const { text, size } of this.#lines.feed(chunk)) {
      const line = this.#begun ? text : text.replace(/^\ufeff/, "");
      this.#begun = true;
      if (line === "") {
        const block = {
          event: this.#event,
          data: this.#data.length ? this.#data.join("\n") : null,
          id: this.#id,
          size: this.#size,
        };
        if (block.data !== null || this.#moved) yield block;
        this.#event = "";
        this.#data = [];
        this.#moved = false;
        this.#size = 0;
      } else {
        this.#field(line, size);
      }
    }
    if (this.#size + this.#lines.waiting > this.#limit)
      throw new BadAnswer(`a block has more than ${this.#limit} bytes`);
  }

  /** @param {string} line @param {number} size */
  #field(line, size) {
    const colon = line.indexOf(":");
    // A comment, as keep-alives are, is no part of a block.
    if (colon === 0) return;
    this.#size += size;
    if (this.#size > this.#limit) throw new BadAnswer(`a block has more than ${this.#limit} bytes`);
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") {
      this.#data.push(value);
      if (this.#data.length > DATA_LINES_MAX)
        throw new BadAnswer(`a block has more than ${DATA_LINES_MAX} lines of data`);
    }
    if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) {
      this.#id = value;
      this.#moved = true;
    }
  }
}

/**
 * JSON object of a text.
 * @param {string} text
 * @returns {Record<string, unknown>}
 */
function documentOf(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new BadAnswer(`no JSON: ${text.slice(0, 200)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new BadAnswer(`no object: ${text.slice(0, 200)}`);
  return value;
}

/**
 * Event of an object, checked as far as decisions depend on it.
 * @param {Record<string, unknown>} document
 * @returns {HubEvent}
 */
function eventOf(document) {
  const { key, op, cursor } = document;
  const keyed =
    typeof key === "string" && key !== "" && !/\p{Surrogate}/u.test(key) && (op === "put" || op === "delete");
  if (!(keyed || (key === undefined && op === undefined)) || (cursor !== undefined && typeof cursor !== "string"))
    throw new BadAnswer(`no event: ${shown(document)}`);
  // Several events of a soft topic may have one version, and each has a place of its own within it.
  const found = "version_cursor" in document ? document : { ...document, version_cursor: endOf(versionOf(cursor)) };
  versionOf(found.version_cursor);
  return /** @type {HubEvent} */ (/** @type {unknown} */ (found));
}

/** @param {unknown} value */
const textOr = (value) => (typeof value === "string" ? value : null);

/** @param {Record<string, unknown>} document @param {unknown} reason @returns {Resync} */
const resyncOf = (document, reason) => ({
  type: "resync",
  reason: textOr(reason) || "the events that follow are not retained",
  floorCursor: textOr(document.floor_cursor),
  snapshot: textOr(document.snapshot),
});

/**
 * Line of a watch that a block of its event stream has; null for a block that only moves the id, and for other types.
 * @param {{event: string, data: string | null, id: string, size: number}} block
 * @returns {WatchLine | null}
 */
export function watchLine({ event, data, id, size }) {
  if (data === null) return null;
  const document = documentOf(data);
  // The object has its type in every representation; the name of a block repeats it.
  const type = event && event !== "message" ? event : document.type;
  if (type === "event") {
    const found = eventOf(document);
    return { type, event: found, version: versionOf(found.version_cursor), size };
  }
  if (type === "progress") {
    const cursor = textOr(document.cursor) ?? id;
    try {
      const range = new KeyRange(/** @type {any} */ (document.low), /** @type {any} */ (document.high));
      return { type, range, version: versionOf(cursor), cursor };
    } catch (error) {
      throw new BadAnswer(`no progress: ${shown(document)}`, { cause: error });
    }
  }
  if (type === "resync") return resyncOf(document, document.reason);
  return type === "expired" ? { type } : null;
}

/** Lines of a snapshot. It is void without its last line. */
export class SnapshotParser {
  #lines = new LineParser();
  /** @type {string | null} */
  #version = null;
  /** True once the last line was read. */
  complete = false;

  /** @param {Uint8Array} chunk */
  *feed(chunk) {
    for (const { text, size } of this.#lines.feed(chunk)) {
      if (text.trim() === "") continue;
      const document = documentOf(text);
      if (this.complete) throw new BadAnswer("the snapshot goes on behind its last line");
      if (this.#version === null) {
        const cursor = textOr(document.cursor);
        if (document.type !== "snapshot" || typeof document.version !== "string" || cursor === null)
          throw new BadAnswer(`no snapshot: ${shown(document)}`);
        versionOf(cursor);
        this.#version = document.version;
        yield { cursor };
      } else if (document.complete !== undefined) {
        if (document.complete !== this.#version)
          throw new BadAnswer(`the snapshot of ${this.#version} ends with ${shown(document)}`);
        this.complete = true;
      } else {
        yield { event: eventOf(document), size };
      }
    }
  }
}

/** @param {HubEvent} event Name of an event within its version; of a soft topic it has no id. */
const eventName = ({ id, cursor, key }) => `${id || cursor || ""}\0${key ?? ""}`;

/** Events of one version that is not whole yet. */
class Group {
  /** @type {Map<string, HubEvent>} */
  events = new Map();
  size = 0;
  /** @type {Progress[]} Progress of parts of the range, which is given behind the events. */
  behind = [];

  /** @param {Version} version */
  constructor(version) {
    this.version = version;
  }

  /** @param {EventLine} line */
  add({ event, size }) {
    this.events.set(eventName(event), event);
    this.size += size;
    if (this.events.size > EVENTS_MAX || this.size + OVERHEAD * this.events.size > CHANGE_MAX) {
      throw new WatchFailed(
        `version ${named(this.version)} has more than ${EVENTS_MAX} events or ${CHANGE_MAX} bytes in the range: ` +
          "watch smaller ranges",
      );
    }
  }
}

/**
 * Sequence of a watch: lines of streams in, whole versions and progress out, each once and in order.
 *
 * Events of one version are kept until they are whole: until the last one of the transaction, a later event, or
 * progress. A stream that ends before leaves nothing of them, and the next one begins at the last whole version.
 * Repetitions are dropped. An order that no hub gives may hide a loss, and ends in a snapshot.
 */
export class WatchSequence {
  #range;
  /** @type {Version} Version up to which all changes were given. */
  #version;
  /** @type {ReadonlySet<string>} Epochs that were seen before the stream was opened. */
  #epochs = new Set();
  #floor;
  /** @type {Set<bigint>} Numbers of versions that were given, the oldest first. */
  #given = new Set();
  /** @type {Set<string>} Names of the events that were given last. */
  #last = new Set();
  /** @type {Group | null} */
  #group = null;
  /** @type {ProgressLine[]} Progress of parts of the range above the version. */
  #ahead = [];

  /** @param {KeyRange} range @param {string} cursor @param {Version} version that is known, above the place or there */
  constructor(range, cursor, version = versionOf(cursor)) {
    this.#range = range;
    this.#version = version;
    this.#floor = this.#version.number;
    /** Place up to which all changes were given. */
    this.cursor = cursor;
    /** Number of events that were dropped as repetitions. */
    this.repeated = 0;
  }

  /**
   * Begin with a new stream, which repeats all events of a version that was not whole.
   * @param {Iterable<string>} epochs that were seen: the hub, asked after that, has found the place to be of its history
   */
  reopen(epochs = []) {
    this.#group = null;
    this.#ahead = [];
    this.#epochs = new Set(epochs);
  }

  /** @param {EventLine} line @returns {(Change | Progress)[]} */
  event(line) {
    const { event, version } = line,
      { key } = event;
    if (!this.#range.whole && (key === undefined || !this.#range.has(key))) return [];
    this.#checkEpoch(version);
    const group = this.#group,
      reached = group === null ? this.#version : group.version;
    if (version.number < reached.number || (group === null && same(version, reached))) {
      this.#repeat(line);
      return [];
    }
    if (group !== null && same(group.version, version) && group.events.has(eventName(event))) {
      this.repeated += 1;
      return [];
    }
    const messages = group !== null && !same(group.version, version) ? this.#close(group) : [];
    for (const progress of this.#ahead) {
      if (version.number <= progress.version.number && key !== undefined && progress.range.has(key)) {
        throw new Disorder(`an event of ${named(version)} follows progress to ${named(progress.version)}`);
      }
    }
    this.#group ??= new Group(version);
    this.#group.add(line);
    // A cursor of its own that is that of its version: certainly the last event.
    return event.cursor === event.version_cursor ? [...messages, ...this.#close(this.#group)] : messages;
  }

  /** @param {ProgressLine} line @returns {(Change | Progress)[]} */
  progress(line) {
    const part = line.range.overlap(this.#range),
      { version, cursor } = line;
    if (part === null) return [];
    this.#checkEpoch(version);
    // Of a part, or repeated: nothing is known by it that was not.
    if (version.number < this.#version.number) return [];
    const whole = part.equals(this.#range),
      group = this.#group;
    /** @type {Progress} */
    const progress = {
      type: "progress",
      low: part.low,
      high: part.high,
      version: String(version.number),
      cursor,
      whole,
    };
    if (!whole) this.#ahead = [...this.#ahead.slice(1 - PARTS_MAX), { ...line, range: part }];
    /** @type {(Change | Progress)[]} */
    let messages = [];
    if (group !== null && version.number >= group.version.number) {
      if (!whole) {
        group.behind = [...group.behind.slice(1 - PARTS_MAX), progress];
        return [];
      }
      messages = this.#close(group);
    }
    if (whole) this.#move(version, cursor);
    return [...messages, progress];
  }

  /** @param {Version} version */
  #checkEpoch(version) {
    const reached = this.#group === null ? this.#version : this.#group.version;
    if (version.epoch === reached.epoch || !reached.epoch) return;
    // Of before the new epoch: a repetition, or an error of its own.
    if (version.epoch === this.#version.epoch && version.number <= this.#version.number) return;
    if (!this.#epochs.has(version.epoch)) throw new OtherEpoch(version.epoch);
    if (version.number <= reached.number)
      throw new Disorder(`${named(version)} follows ${named(reached)}, of another epoch`);
  }

  /** @param {EventLine} line */
  #repeat({ event, version }) {
    const { number } = version;
    const known =
      number <= this.#floor ||
      (number === this.#version.number && this.#last.size > 0
        ? this.#last.has(eventName(event))
        : this.#given.has(number));
    if (!known) throw new Disorder(`an event of ${named(version)} follows ${named(this.#version)}`);
    this.repeated += 1;
  }

  /** @param {Group} group @returns {(Change | Progress)[]} */
  #close(group) {
    this.#group = null;
    const events = [...group.events.values()],
      { number } = group.version;
    const cursor = events[events.length - 1].version_cursor;
    this.#given.add(number);
    for (const oldest of this.#given) {
      if (this.#given.size <= REMEMBERED) break;
      this.#given.delete(oldest);
      if (oldest > this.#floor) this.#floor = oldest;
    }
    this.#move(group.version, cursor);
    this.#last = new Set(group.events.keys());
    return [{ type: "change", version: String(number), cursor, events, size: group.size }, ...group.behind];
  }

  /** @param {Version} version @param {string} cursor */
  #move(version, cursor) {
    if (!same(version, this.#version)) this.#last = new Set();
    this.#version = version;
    this.cursor = cursor;
    this.#ahead = this.#ahead.filter((each) => each.version.number > version.number);
  }
}

/** Pauses between attempts: twice as long each time, and up to half of it shorter by chance. */
class Backoff {
  #next = PAUSE_MIN;

  reset() {
    this.#next = PAUSE_MIN;
  }

  /** @param {number} chance @param {number | null} asked seconds that the hub asks for */
  pause(chance, asked = null) {
    const own = this.#next * (0.5 + chance / 2);
    this.#next = Math.min(2 * this.#next, PAUSE_MAX);
    return asked === null ? own : Math.max(own, Math.min(asked, ASKED_MAX));
  }
}

/**
 * Time without a line after which a stream is lost. A hub gives progress also when nothing happens, so a stream that is
 * silent for three intervals is dead, whatever a proxy sends to keep it alive. The interval is a setting of the topic:
 * silence that ended a stream doubles the time allowed, and the gap between two progresses corrects it.
 */
class Silence {
  #least;
  #limit;
  #from = 0;
  #allowed = 0;
  /** @type {number | null} Time of the last progress of the stream; null while there is none to measure a gap from. */
  #progress = null;

  /** @param {number} interval */
  constructor(interval) {
    this.#least = this.#limit = INTERVALS * interval;
  }

  get deadline() {
    return this.#from + this.#allowed;
  }

  /** @param {number} now Time at which an answer, or its next part, is waited for. */
  answer(now) {
    this.#from = now;
    this.#allowed = ANSWER_LIMIT;
  }

  /** @param {number} now Time at which the stream begins, or is read again after it was not for a while. */
  read(now) {
    this.#from = Math.max(this.#from, now);
    this.#allowed = this.#limit;
    this.#progress = null;
  }

  /** @param {number} now @param {boolean} progress */
  heard(now, progress) {
    this.#from = now;
    if (!progress) return;
    if (this.#progress !== null)
      this.#limit = Math.max(this.#least, Math.min(INTERVALS * (now - this.#progress), SILENCE_MAX));
    this.#allowed = this.#limit;
    this.#progress = now;
  }

  expired() {
    this.#limit = Math.max(this.#limit, Math.min(2 * this.#limit, SILENCE_MAX));
  }
}

/**
 * Decisions of a watcher. Inputs name the number of their request: those of another one have no effect.
 *
 * | state       | input                                    | next                                           |
 * |-------------|------------------------------------------|------------------------------------------------|
 * | idle        | begin                                    | connecting, or snapshot without a place        |
 * | connecting  | opened, line                             | watching                                       |
 * | either      | line resync, gone, events out of order   | handed, snapshot; backing-off if again soon    |
 * | either      | ended, silence, line expired, other epoch| backing-off                                    |
 * | snapshot    | complete                                 | connecting, at exactly its version             |
 * | snapshot    | ended, no part for long                  | backing-off                                    |
 * | handed      | placed                                   | connecting at the place, or snapshot           |
 * | backing-off | timer                                    | the request that is due                        |
 * | any         | refused, stop                            | stopped                                        |
 */
export class WatchState {
  #range;
  #chance;
  #handed;
  #snapshotMax;
  #silence;
  /** @type {import("./watcher.d.ts").WatchPhase} */
  #phase = "idle";
  #number = 0;
  /** @type {WatchSequence | null} Order of the changes; null until the first snapshot is whole. */
  #sequence;
  /** @type {Resync | null} Resync that is to be carried out. */
  #due = null;
  #resynced = -Infinity;
  /** @type {Set<string>} Epochs that were seen behind the place, and with which the next stream may go on. */
  #epochs = new Set();
  /** @type {{cursor: string, version: Version, begin: string, events: HubEvent[], size: number} | null} */
  #taken = null;
  #retryAt = 0;
  #backoff = new Backoff();
  #resyncBackoff = new Backoff();

  /** @param {import("./watcher.d.ts").WatchStateOptions} options */
  constructor({ range, cursor = null, chance, handed = false, interval = INTERVAL, snapshotMax = SNAPSHOT_MAX }) {
    if (!(interval > 0 && interval < Infinity))
      throw new RangeError(`interval is ${interval}: expected seconds above 0`);
    this.#range = range;
    this.#chance = chance;
    this.#handed = handed;
    this.#silence = new Silence(interval);
    this.#snapshotMax = snapshotMax;
    this.#sequence = cursor === null ? null : new WatchSequence(range, cursor);
  }

  get phase() {
    return this.#phase;
  }

  /** Time in seconds at which `timer` is due; Infinity for never. */
  get deadline() {
    if (this.#phase === "backing-off") return this.#retryAt;
    return this.#requesting && this.#phase !== "handed" ? this.#silence.deadline : Infinity;
  }

  get #streaming() {
    return this.#phase === "connecting" || this.#phase === "watching";
  }

  get #requesting() {
    return this.#streaming || this.#phase === "snapshot" || this.#phase === "handed";
  }

  /** @param {number} now @returns {WatchAction[]} */
  begin(now) {
    return this.#phase === "stopped" ? [] : this.#request(now);
  }

  /** End: later inputs have no effect. */
  stop() {
    this.#phase = "stopped";
    this.#taken = null;
  }

  /** @param {number} now Time at which a part is read again: an answer that is not read is not silent. */
  waiting(now) {
    if (this.#phase === "watching") this.#silence.read(now);
    else if (this.#phase === "snapshot") this.#silence.answer(now);
  }

  /** @param {number} now @returns {WatchAction[]} */
  timer(now) {
    if (now < this.deadline) return [];
    if (this.#phase === "backing-off") return this.#request(now);
    if (this.#phase === "watching") this.#silence.expired();
    return this.#backOff(
      now,
      "silent",
      this.#phase === "watching" ? "the stream was silent for too long" : "no answer in time",
    );
  }

  /** @param {number} number @param {number} now */
  opened(number, now) {
    if (number !== this.#number || this.#phase !== "connecting") return;
    this.#phase = "watching";
    this.#silence.read(now);
  }

  /** @param {number} number @param {WatchLine} line @param {number} now @returns {WatchAction[]} */
  line(number, line, now) {
    if (number !== this.#number || !this.#streaming || this.#sequence === null) return [];
    this.opened(number, now);
    if (line.type === "resync") return this.#resync(line, now, "resync");
    if (line.type === "expired") return this.#backOff(now, "lost", "the rights of the stream have expired");
    this.#silence.heard(now, line.type === "progress");
    let messages;
    try {
      messages = line.type === "event" ? this.#sequence.event(line) : this.#sequence.progress(line);
    } catch (error) {
      if (error instanceof Disorder) return this.#resync(resyncOf({}, error.message), now, "disorder");
      if (error instanceof WatchFailed) return this.refused(number, error.message);
      if (!(error instanceof OtherEpoch)) throw error;
      if (this.#epochs.size >= EPOCHS_MAX) return this.#resync(resyncOf({}, error.message), now, "disorder");
      this.#epochs.add(error.epoch);
      return this.#backOff(now, "epoch", error.message);
    }
    if (messages.length) {
      this.#backoff.reset();
      this.#epochs.clear();
    }
    return messages.map((message) => ({ do: "deliver", message }));
  }

  /**
   * Take the answer 410 to the request for a stream.
   * @param {number} number @param {Resync} resync @param {number} now @returns {WatchAction[]}
   */
  gone(number, resync, now) {
    return number === this.#number && this.#streaming ? this.#resync(resync, now, "resync") : [];
  }

  /** @param {number} number @param {string} reason @param {number} now @param {number | null} asked @returns {WatchAction[]} */
  ended(number, reason, now, asked = null) {
    return number === this.#number && this.#requesting ? this.#backOff(now, "lost", reason, asked) : [];
  }

  /** @param {number} number @param {string} reason @returns {WatchAction[]} */
  refused(number, reason) {
    if (number !== this.#number || !this.#requesting) return [];
    this.stop();
    return [{ do: "fail", reason }];
  }

  /**
   * Take the version of a snapshot.
   * @param {number} number
   * @param {string} cursor of the version
   * @param {number} now
   * @param {string} begin place from which the watch goes on; changes up to the version are dropped
   * @returns {WatchAction[]}
   */
  versioned(number, cursor, now, begin = cursor) {
    if (number !== this.#number || this.#phase !== "snapshot") return [];
    this.#silence.answer(now);
    this.#taken = { cursor, version: versionOf(cursor), begin, events: [], size: 0 };
    return [];
  }

  /** @param {number} number @param {HubEvent} event @param {number} size @param {number} now @returns {WatchAction[]} */
  took(number, event, size, now) {
    const taken = this.#taken;
    if (number !== this.#number || this.#phase !== "snapshot" || taken === null) return [];
    this.#silence.answer(now);
    if (event.key === undefined || !this.#range.has(event.key)) return [];
    if (versionOf(event.version_cursor).number > taken.version.number) {
      return this.#backOff(
        now,
        "lost",
        `the snapshot of ${taken.cursor} has an event of ${event.version_cursor} and is void`,
      );
    }
    taken.events.push(event);
    taken.size += size;
    if (taken.size + OVERHEAD * taken.events.length <= this.#snapshotMax) return [];
    return this.refused(
      number,
      `the snapshot has more than ${this.#snapshotMax} bytes: watch smaller ranges, or raise snapshotMax`,
    );
  }

  /** @param {number} number @param {number} now @returns {WatchAction[]} */
  complete(number, now) {
    const taken = this.#taken;
    if (number !== this.#number || this.#phase !== "snapshot") return [];
    if (taken === null) return this.#backOff(now, "lost", "the snapshot has no version");
    const { cursor, version, begin, events, size } = taken;
    this.#place(begin, version);
    const { low, high } = this.#range;
    const message = {
      type: /** @type {const} */ ("snapshot"),
      low,
      high,
      version: String(version.number),
      cursor,
      events,
      size,
    };
    return [{ do: "deliver", message }, ...this.#request(now)];
  }

  /**
   * Take the application's answer to a resync: the place of the snapshot that it has read; null for one by the watcher.
   * @param {number} number @param {string | null} cursor @param {number} now @returns {WatchAction[]}
   */
  placed(number, cursor, now) {
    if (number !== this.#number || this.#phase !== "handed") return [];
    if (cursor === null) return this.#take(now);
    this.#place(cursor);
    return this.#request(now);
  }

  /** @param {string} cursor @param {Version} [version] */
  #place(cursor, version) {
    this.#sequence = new WatchSequence(this.#range, cursor, version);
    this.#due = this.#taken = null;
    this.#epochs.clear();
  }

  /** @param {number} now @returns {WatchAction[]} */
  #request(now) {
    const sequence = this.#sequence,
      due = this.#due;
    if (due !== null && this.#handed) {
      this.#phase = "handed";
      this.#number += 1;
      return [{ do: "ask", number: this.#number, resync: due }];
    }
    if (sequence === null || due !== null) return this.#take(now);
    sequence.reopen(this.#epochs);
    this.#phase = "connecting";
    this.#number += 1;
    this.#silence.answer(now);
    return [{ do: "open", number: this.#number, cursor: sequence.cursor }];
  }

  /** @param {number} now @returns {WatchAction[]} */
  #take(now) {
    this.#phase = "snapshot";
    this.#taken = null;
    this.#number += 1;
    this.#silence.answer(now);
    return [{ do: "snapshot", number: this.#number }];
  }

  /** @param {Resync} resync @param {number} now @param {ReportKind} kind @returns {WatchAction[]} */
  #resync(resync, now, kind) {
    const soon = now - this.#resynced < RESYNC_GAP;
    this.#due = resync;
    this.#resynced = now;
    /** @type {WatchAction} */
    const message = { do: "deliver", message: resync };
    if (soon) return [...this.#backOff(now, kind, resync.reason, this.#resyncBackoff.pause(this.#chance())), message];
    this.#resyncBackoff.reset();
    return [{ do: "report", report: { kind, reason: resync.reason, pause: 0 } }, message, ...this.#request(now)];
  }

  /** @param {number} now @param {ReportKind} kind @param {string} reason @param {number | null} asked @returns {WatchAction[]} */
  #backOff(now, kind, reason, asked = null) {
    this.#phase = "backing-off";
    this.#taken = null;
    this.#number += 1;
    const pause = this.#backoff.pause(this.#chance(), asked);
    this.#retryAt = now + pause;
    return [{ do: "report", report: { kind, reason, pause } }];
  }
}

/** Seconds that never go back, and that go on while the computer sleeps, where `performance.now()` may stand still. */
class Clock {
  #time = 0;
  #monotonic = performance.now();
  #wall = Date.now();

  now() {
    const monotonic = performance.now(),
      wall = Date.now();
    this.#time += Math.max(monotonic - this.#monotonic, wall - this.#wall, 0) / 1000;
    this.#monotonic = monotonic;
    this.#wall = wall;
    return this.#time;
  }
}

/** @param {string | null} value of the header Retry-After: seconds, or a date */
function retryAfter(value) {
  if (value === null) return null;
  const seconds = /^\d{1,9}$/.test(value.trim()) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? null : Math.min(Math.max(seconds, 0), ASKED_MAX);
}

/** Give the page its turn. A timer would take a second of a page that is hidden. @returns {Promise<void>} */
const turn = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });

const LATE = Symbol("late");
/** Events of a page that has slept, or was away from its network. */
const WAKES = ["online", "pageshow", "visibilitychange", "resume"];

/** @param {WatchMessage} message Bytes of its events. */
const sizeOf = (message) => ("size" in message ? message.size + OVERHEAD * message.events.length : 0);
/** @param {unknown} error */
const reasonOf = (error) => (error instanceof Error ? error.message : String(error));

/** Watcher of a range of keys; watcher.d.ts describes it. */
export class Watcher {
  #base;
  #range;
  #options;
  #fetch;
  #state;
  #clock = new Clock();
  /** @type {WatchRequest | null} */
  #request = null;
  #aborter = new AbortController();
  /** True once a hub has answered at the URL. */
  #proven = false;
  /** @type {string | null} */
  #cursor;
  /** @type {import("./watcher.d.ts").WatchPhase} */
  #phase = "idle";
  /** @type {Promise<void> | null} */
  #end = null;
  /** Ends the wait under way, which then looks at the clock. */
  #wake = () => {};
  /** @type {WatchMessage[]} */
  #queue = [];
  #waiting = 0;
  #iterated = false;
  /** True if the application has made the answer wait. */
  #held = false;
  /** Place behind which the hub has all changes of a source, as the last resync has named it. */
  #floor = "0";
  /** True while nothing has followed the last snapshot. */
  #ahead = false;
  /** True if the last snapshot of a source was that of a version below the floor. */
  #behind = false;
  /** False until the resync that only names the floor. */
  #begun;
  /** Ends the waits for the queue: for messages in it, and for room. */
  #changed = () => {};

  /** @param {string} url @param {import("./watcher.d.ts").WatcherOptions} options */
  constructor(url, options) {
    const { topic, low, high, onResync, snapshots, interval, snapshotMax } = options,
      cursor = options.cursor ?? null;
    if (onResync !== undefined && snapshots !== undefined)
      throw new TypeError("onResync and snapshots exclude each other: both take snapshots");
    // As segments of a path the last two are taken away, encoded or not.
    if (typeof topic !== "string" || ["", ".", ".."].includes(topic))
      throw new RangeError(`${shown(topic)} is no name of a topic`);
    if (/[?#]/.test(url))
      throw new RangeError(`${shown(url)} must have no query or fragment: a token has its own option`);
    this.#base = `${url.replace(/\/+$/, "")}/topics/${encodeURIComponent(topic)}`;
    this.#range = new KeyRange(low, high);
    this.#options = options;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#cursor = cursor;
    this.#begun = snapshots === undefined || cursor !== null;
    this.#state = new WatchState({
      range: this.#range,
      // A source is read when the hub has named the version behind which it has all changes.
      cursor: this.#begun ? cursor : "0",
      chance: Math.random,
      handed: onResync !== undefined || snapshots !== undefined,
      interval,
      snapshotMax,
    });
  }

  get cursor() {
    return this.#cursor;
  }

  get phase() {
    return this.#state.phase;
  }

  get #stopped() {
    return this.#state.phase === "stopped";
  }

  start() {
    this.#end ??= this.#run();
    return this.#end;
  }

  stop() {
    this.#state.stop();
    this.#aborter.abort();
    this.#wake();
    this.#changed();
  }

  /** @returns {AsyncGenerator<WatchMessage, void, void>} */
  async *[Symbol.asyncIterator]() {
    if (this.#iterated || this.#end !== null)
      throw new TypeError("the watcher has been started: make one for each iteration");
    this.#iterated = true;
    let ended = false;
    const end = this.start().finally(() => {
      ended = true;
      this.#changed();
    });
    // Thrown by the iteration, behind the messages before it.
    end.catch(() => {});
    try {
      while (!ended || this.#queue.length) {
        const message = this.#queue.shift();
        if (message === undefined) {
          await this.#change();
        } else {
          this.#waiting -= sizeOf(message);
          this.#changed();
          this.#reach(message);
          yield message;
        }
      }
      await end;
    } finally {
      this.stop();
    }
  }

  /** @returns {Promise<void>} */
  #change() {
    const before = this.#changed;
    return new Promise((resolve) => {
      this.#changed = () => {
        before();
        this.#changed = () => {};
        resolve();
      };
    });
  }

  /** @param {WatchMessage} message */
  #reach(message) {
    if (message.type !== "resync" && (message.type !== "progress" || message.whole)) this.#cursor = message.cursor;
  }

  async #run() {
    const wake = () => this.#wake();
    for (const name of WAKES) globalThis.addEventListener?.(name, wake);
    try {
      await this.#apply(this.#state.begin(this.#clock.now()));
      while (!this.#stopped) {
        const request = this.#request;
        if (request === null) await this.#pause();
        else if (request.do === "ask") await this.#ask(request.number, request.resync);
        else await this.#attempt(request);
      }
    } finally {
      this.stop();
      for (const name of WAKES) globalThis.removeEventListener?.(name, wake);
      this.#announce();
    }
  }

  #announce() {
    if (this.#phase === this.#state.phase) return;
    this.#phase = this.#state.phase;
    this.#options.onPhase?.(this.#phase);
  }

  /** @param {WatchAction[]} actions */
  async #apply(actions) {
    const resync = actions.some((action) => action.do === "report" && action.report.kind === "resync"),
      expected = resync && !this.#begun;
    this.#begun ||= resync;
    for (const action of actions) {
      if (action.do === "deliver") {
        if (expected && action.message.type === "resync") continue;
        await this.#deliver(action.message);
        if (this.#stopped) return;
      } else if (action.do === "report") {
        this.#request = null;
        if (!expected) this.#options.onReport?.(action.report);
      } else if (action.do === "fail") {
        throw new WatchFailed(action.reason);
      } else {
        this.#request = action;
      }
    }
    this.#announce();
  }

  /** @param {WatchMessage} message */
  async #deliver(message) {
    if (message.type !== "resync") this.#ahead = message.type === "snapshot";
    const { onSnapshot, onChange, onProgress } = this.#options;
    const given =
      message.type === "snapshot"
        ? onSnapshot?.(message)
        : message.type === "change"
          ? onChange?.(message)
          : message.type === "progress"
            ? onProgress?.(message)
            : undefined;
    if (given instanceof Promise) {
      this.#held = true;
      await given;
    }
    if (!this.#iterated) return this.#reach(message);
    this.#queue.push(message);
    this.#waiting += sizeOf(message);
    this.#changed();
    while (!this.#stopped && (this.#queue.length >= QUEUE_MESSAGES || this.#waiting >= QUEUE_BYTES)) {
      this.#held = true;
      await this.#change();
    }
  }

  /** @param {number} number @param {Resync} resync */
  async #ask(number, resync) {
    /** @type {string | null | undefined | void} */
    let cursor = null;
    if (this.#options.snapshots === undefined) cursor = await this.#options.onResync?.(resync);
    // The hub does not know yet how far the source is, or the source is behind it: it is asked again.
    else if (resync.floorCursor === null || this.#behind) cursor = "0";
    else this.#floor = resync.floorCursor;
    this.#behind = false;
    await this.#apply(this.#state.placed(number, cursor ?? null, this.#clock.now()));
  }

  async #pause() {
    await this.#within(new Promise(() => {}));
    await this.#apply(this.#state.timer(this.#clock.now()));
  }

  /**
   * Wait for a promise, until the deadline of the state or the end of the watcher.
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T | typeof LATE>}
   */
  async #within(promise) {
    // Left alone, it may fail later.
    promise.catch(() => {});
    for (let left = 1; left > 0 && !this.#stopped;) {
      left = Math.max(this.#state.deadline - this.#clock.now(), 0);
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      /** @type {Promise<typeof LATE>} */
      const late = new Promise((resolve) => {
        this.#wake = () => resolve(LATE);
        // Also behind the deadline: a part that arrived while the page was busy is there by then.
        timer = setTimeout(this.#wake, 1000 * Math.min(left, TICK));
      });
      try {
        const result = await Promise.race([promise, late]);
        if (result !== LATE) return result;
      } finally {
        clearTimeout(timer);
        this.#wake = () => {};
      }
    }
    return LATE;
  }

  /**
   * Carry out a request. Only its end is judged here.
   * @param {Exclude<WatchRequest, {do: "ask"}>} request
   */
  async #attempt(request) {
    const aborter = new AbortController();
    this.#aborter = aborter;
    let reason = "the stream ended";
    try {
      if (request.do === "snapshot" && this.#options.snapshots !== undefined)
        return await this.#takeSource(request, this.#options.snapshots);
      const response = await this.#within(this.#send(request, aborter.signal));
      if (response === LATE) await this.#apply(this.#state.timer(this.#clock.now()));
      else if (!response.ok) await this.#refused(request, response);
      else if (this.#isHub(request, response))
        await (request.do === "open" ? this.#watch(request, response) : this.#take(request, response));
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      reason = error.message;
    } finally {
      aborter.abort();
    }
    if (this.#request === request) await this.#apply(this.#state.ended(request.number, reason, this.#clock.now()));
  }

  /** @param {Exclude<WatchRequest, {do: "ask"}>} request @param {AbortSignal} signal */
  async #send(request, signal) {
    const open = request.do === "open",
      query = new URLSearchParams(),
      { low, high } = this.#range;
    if (low !== null) query.set("low", low);
    if (high !== null) query.set("high", high);
    if (open) query.set("version", request.cursor);
    try {
      const { token, credentials = "same-origin" } = this.#options;
      const bearer = typeof token === "function" ? await token() : token;
      return await this.#fetch(`${this.#base}/${open ? "watch" : "snapshot"}${String(query) && `?${query}`}`, {
        headers: { Accept: open ? EVENT_STREAM : LINES, ...(bearer && { Authorization: `Bearer ${bearer}` }) },
        cache: "no-store",
        credentials,
        // The snapshot of a soft topic is elsewhere.
        redirect: open ? "manual" : "follow",
        signal,
      });
    } catch (error) {
      throw new Lost(reasonOf(error), { cause: error });
    }
  }

  /**
   * Whether an answer of success is a hub's. Another one is refused at first, as of a wrong URL; later it counts as
   * lost, as that of a network which asks for a login.
   * @param {WatchRequest} request @param {Response} response
   */
  #isHub(request, response) {
    const wanted = request.do === "open" ? EVENT_STREAM : LINES;
    const given = (response.headers.get("Content-Type") ?? "").split(";")[0].trim();
    if (response.status !== 200) throw new Lost(`status ${response.status}`);
    if (given === wanted) this.#proven = true;
    else if (this.#proven) throw new Lost(`the answer is ${given || "of no type"}, not ${wanted}`);
    else throw new WatchFailed(`the answer is ${given || "of no type"}, not ${wanted}: the URL must be that of a hub`);
    return true;
  }

  /** @param {WatchRequest} request @param {Response} response */
  async #refused(request, response) {
    const { status } = response,
      { number } = request,
      now = () => this.#clock.now();
    const problem = await this.#problem(response);
    const reason =
      status === 0
        ? "the hub answers with a redirection: use the URL that it leads to"
        : `status ${status}${textOr(problem.detail) === null ? "" : `: ${problem.detail}`}`;
    if (status === 410 && request.do === "open")
      return this.#apply(this.#state.gone(number, resyncOf(problem, problem.detail), now()));
    // A version may be forgotten while its snapshot is read; of a topic that was deleted there is no floor.
    if (REPEATED.has(status) || (status === 410 && textOr(problem.floor_cursor) !== null)) {
      return this.#apply(this.#state.ended(number, reason, now(), retryAfter(response.headers.get("Retry-After"))));
    }
    return this.#apply(this.#state.refused(number, reason));
  }

  /** @param {Response} response @returns {Promise<Record<string, unknown>>} */
  async #problem(response) {
    const reader = response.body?.getReader(),
      decoder = new TextDecoder();
    let text = "",
      size = 0;
    while (reader !== undefined && size < PROBLEM_MAX) {
      const part = await this.#part(reader);
      if (part === null) break;
      size += part.length;
      text += decoder.decode(part, { stream: true });
    }
    try {
      return documentOf(text);
    } catch {
      // A proxy in front of the hub answers with a page.
      return {};
    }
  }

  /**
   * Next part of an answer; null at its end, or when it does not come in time.
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   */
  async #part(reader) {
    try {
      const result = await this.#within(reader.read());
      return result === LATE || result.done ? null : result.value;
    } catch (error) {
      throw new Lost(reasonOf(error), { cause: error });
    }
  }

  /**
   * Read an answer to its end, or until another request takes its place.
   * @template T
   * @param {WatchRequest} request
   * @param {Response} response
   * @param {(chunk: Uint8Array) => Iterable<T>} parse
   * @param {(line: T) => WatchAction[]} take
   */
  async #read(request, response, parse, take) {
    const reader = response.body?.getReader();
    let worked = performance.now();
    while (reader !== undefined && this.#request === request && !this.#stopped) {
      if (this.#held) this.#state.waiting(this.#clock.now());
      this.#held = false;
      const chunk = await this.#part(reader);
      if (chunk === null) return this.#apply(this.#state.timer(this.#clock.now()));
      /** @type {T[]} */
      let lines;
      try {
        lines = [...parse(chunk)];
      } catch (error) {
        if (!(error instanceof BadAnswer)) throw error;
        throw new Lost(error.message, { cause: error });
      }
      for (const line of lines) {
        await this.#apply(take(line));
        if (this.#request !== request || this.#stopped) return;
        if (performance.now() - worked > TURN) {
          await turn();
          worked = performance.now();
        }
      }
    }
  }

  /** @param {Extract<WatchRequest, {do: "open"}>} request @param {Response} response */
  async #watch(request, response) {
    const blocks = new EventStreamParser(),
      state = this.#state,
      { number } = request;
    state.opened(number, this.#clock.now());
    this.#announce();
    /** @param {Uint8Array} chunk */
    const parse = function* (chunk) {
      for (const block of blocks.feed(chunk)) {
        const line = watchLine(block);
        if (line !== null) yield line;
      }
    };
    await this.#read(request, response, parse, (line) => state.line(number, line, this.#clock.now()));
  }

  /** @param {Extract<WatchRequest, {do: "snapshot"}>} request @param {Response} response */
  async #take(request, response) {
    const lines = new SnapshotParser(),
      state = this.#state,
      { number } = request;
    await this.#read(
      request,
      response,
      (chunk) => lines.feed(chunk),
      (line) => {
        const now = this.#clock.now();
        return line.event === undefined
          ? state.versioned(number, line.cursor, now)
          : state.took(number, line.event, line.size, now);
      },
    );
    if (this.#request !== request) return;
    if (!lines.complete) throw new Lost("the snapshot broke off before its last line and is void");
    await this.#apply(state.complete(number, this.#clock.now()));
  }

  /**
   * Read a snapshot of the source of a soft topic.
   * @param {Extract<WatchRequest, {do: "snapshot"}>} request
   * @param {NonNullable<import("./watcher.d.ts").WatcherOptions["snapshots"]>} snapshots
   */
  async #takeSource(request, snapshots) {
    const state = this.#state,
      { number } = request,
      { low, high } = this.#range,
      floor = versionOf(this.#floor);
    /** @type {import("./watcher.d.ts").SourceSnapshot | null | undefined | typeof LATE} */
    let found;
    try {
      found = await this.#within(Promise.resolve().then(() => snapshots({ low, high })));
    } catch (error) {
      throw new Lost(`the source: ${reasonOf(error)}`, { cause: error });
    }
    if (found === LATE) return this.#apply(state.timer(this.#clock.now()));
    if (found === null || found === undefined) throw new Lost("the source has no snapshot now");
    const version = sourceVersion(found.version);
    if (version < floor.number) {
      // The source lags; or it was restored, and the hub has another floor since.
      this.#behind = true;
      throw new Lost(`the snapshot of the source is that of version ${version}: changes up to ${floor.number} are lost`);
    }
    // A snapshot that the hub has not reached yet may be refused as a place, and each later one too if the source goes
    // on: then the watch begins at the floor. The version of the floor alone may be a place of before a reset.
    const cursor = `${floor.epoch}.${version}`,
      begin = this.#ahead || version === floor.number ? this.#floor : cursor;
    await this.#apply(state.versioned(number, cursor, this.#clock.now(), begin));
    const pairs = found.values instanceof Map ? found.values : Object.entries(found.values);
    let worked = performance.now();
    for (const [key, data] of pairs) {
      /** @type {HubEvent} */
      const event = {
        ...{ type: "event", cursor, version: String(version), version_cursor: cursor },
        ...{ key, op: "put", content_type: "application/json", data },
      };
      const size = key.length + (JSON.stringify(data) ?? "").length;
      await this.#apply(state.took(number, event, size, this.#clock.now()));
      if (this.#request !== request || this.#stopped) return;
      if (performance.now() - worked > TURN) {
        await turn();
        worked = performance.now();
      }
    }
    await this.#apply(state.complete(number, this.#clock.now()));
  }
}

/** @param {unknown} version Whole number, or decimal text, from 0 below 2^63. */
function sourceVersion(version) {
  const whole = typeof version === "bigint" || (typeof version === "number" && Number.isSafeInteger(version));
  const number = whole || (typeof version === "string" && /^[0-9]{1,19}$/.test(version)) ? BigInt(version) : -1n;
  if (number < 0n || number > STAMP_MAX)
    throw new WatchFailed(`${shown(version)} is no version of a source: expected a whole number, or decimal text`);
  return number;
}
