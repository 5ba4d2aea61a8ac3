/**
 * Watcher of the hub for browsers, and for Node from version 18 on. `Watcher` is for applications; the classes behind it
 * decide without clock and network, and may be used, and are tested, by themselves.
 *
 * Ids and versions are texts: a number is exact only up to 2^53.
 */

/** Event of a topic, as the hub's JSON has it. */
export interface HubEvent {
  readonly type: "event";
  /** Decimal id in the store; a soft topic's events have none. */
  readonly id?: string;
  /** Place behind the event. */
  readonly cursor?: string;
  readonly prev_id?: string;
  /** Decimal version of its transaction. */
  readonly version: string;
  /** Place behind the last event of its transaction. */
  readonly version_cursor: string;
  /** Time of storing, RFC 3339, UTC, with microseconds. */
  readonly time?: string;
  /** Key; missing if it has none. */
  readonly key?: string;
  /** Effect on the key; missing without one. */
  readonly op?: "put" | "delete";
  readonly content_type?: string;
  readonly attributes?: Readonly<Record<string, string>>;
  /** Content in JSON, or a text of another type. Whoever puts numbers above 2^53 into it has them rounded here. */
  readonly data?: unknown;
  /** Content of any other type, in base64, in place of `data`. */
  readonly data_base64?: string;
}

/** State of the range at a version. It takes the place of all that was given before. */
export interface Snapshot {
  readonly type: "snapshot";
  readonly low: string | null;
  readonly high: string | null;
  /** Decimal version. */
  readonly version: string;
  /** Place of the version, to go on from. */
  readonly cursor: string;
  /** Last event of each key that has a value, by key. */
  readonly events: readonly HubEvent[];
  /** Bytes of the events. */
  readonly size: number;
}

/** All events of one transaction in the range, in order, at least one. All earlier changes were given before. */
export interface Change {
  readonly type: "change";
  readonly version: string;
  readonly cursor: string;
  readonly events: readonly HubEvent[];
  /** Bytes of the events. */
  readonly size: number;
}

/** Promise that all changes of the keys from `low` on and below `high` up to a version were given; null is an open end. */
export interface Progress {
  readonly type: "progress";
  readonly low: string | null;
  readonly high: string | null;
  readonly version: string;
  /** Place of the version. Only that of the whole range is one to go on from. */
  readonly cursor: string;
  /** Whether it is about the watched range, or a part of it. */
  readonly whole: boolean;
}

/** Answer that changes are missing: a snapshot follows. */
export interface Resync {
  readonly type: "resync";
  readonly reason: string;
  /** Place from which all events are retained; null if the hub names none, as of a topic that was deleted. */
  readonly floorCursor: string | null;
  /** URL of the snapshot, perhaps relative to that of the watch; null if the hub names none. */
  readonly snapshot: string | null;
}

export type WatchMessage = Snapshot | Change | Progress | Resync;

/**
 * Kind of a report. `lost`: a request or stream ended. `silent`: no line for three intervals, or no answer. `epoch`: the
 * hub was restored or copied, and is asked whether the place is still of its history. `resync`: changes are not retained.
 * `disorder`: the hub has sent something in an order that may hide a loss, and a snapshot is taken.
 */
export type ReportKind = "lost" | "silent" | "epoch" | "resync" | "disorder";

export interface WatchReport {
  readonly kind: ReportKind;
  readonly reason: string;
  /** Seconds until the next attempt. */
  readonly pause: number;
}

/** State of a watcher, by the request under way. `handed`: the application answers a resync. */
export type WatchPhase = "idle" | "connecting" | "watching" | "snapshot" | "handed" | "backing-off" | "stopped";

/** Values of a range of keys at one version of the source of a soft topic. */
export interface SourceSnapshot {
  /** Version of the source, as its ingester names it: a text in decimal, or a number if it is exact. */
  readonly version: string | number | bigint;
  /** JSON value of each key that has one. Keys of other ranges are passed over. */
  readonly values: ReadonlyMap<string, unknown> | Readonly<Record<string, unknown>>;
}

export interface WatcherOptions {
  /** Name of the topic. */
  topic: string;
  /** Least key; missing or null for no bound. With a bound, events without key are not among them. */
  low?: string | null;
  /** Key below which the others are, by the bytes of UTF-8; missing or null for no bound. */
  high?: string | null;
  /** Place behind which changes are wanted, `"0"` for the beginning; missing or null to begin with a snapshot. */
  cursor?: string | null;
  /**
   * Bearer token, or a function that returns one for each request. If that fails, the request counts as lost and is made
   * again after a pause.
   */
  token?: string | (() => string | null | undefined | Promise<string | null | undefined>) | null;
  /** Whether cookies are sent, as of `fetch`; `same-origin` if missing. */
  credentials?: RequestCredentials;
  /** Of this and the next two: a promise is waited for, and meanwhile the stream is not read. */
  onSnapshot?: (snapshot: Snapshot) => unknown;
  onChange?: (change: Change) => unknown;
  onProgress?: (progress: Progress) => unknown;
  /**
   * Receives each resync. It may read a snapshot by itself and return its cursor, from which the watch goes on; with
   * another result the watcher reads one.
   */
  onResync?: (resync: Resync) => string | null | undefined | void | Promise<string | null | undefined | void>;
  /**
   * Reads a snapshot of a range, at its newest version, from the source of a soft topic, whose snapshots the hub does not
   * have; null if there is none at the moment. After that, and after a failure, it is called again after a growing pause.
   * It excludes `onResync`.
   */
  snapshots?: (range: {
    low: string | null;
    high: string | null;
  }) => SourceSnapshot | null | Promise<SourceSnapshot | null>;
  /** Receives reports of lost streams, resyncs and faults of the hub. The watch goes on by itself. */
  onReport?: (report: WatchReport) => void;
  /** Receives each new state. */
  onPhase?: (phase: WatchPhase) => void;
  /** Seconds between progress, a setting of the topic, 10 if missing. A longer interval is learned. */
  interval?: number;
  /** Bytes of a snapshot, 64 MB if missing, each event counted with 200 more. With more of them the watch fails. */
  snapshotMax?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

/**
 * Changes of a range of keys of a topic, given to callbacks or to an iteration.
 *
 * A change is a transaction, as far as it is in the range: each one is given once, in order, and whole. Progress promises
 * that all changes up to a version were given; it comes also when nothing happens. A snapshot takes the place of all that
 * was given before, and the changes behind exactly its version follow: it is the first message, unless `cursor` names a
 * place, and it follows a resync, when the hub does not retain the changes from the place that was reached.
 *
 * Lost connections, 429, 502, 503 and 504 are followed by another attempt after a growing pause, without end, also after
 * sleep. Where the hub refuses the watch it ends with `WatchFailed`. An error thrown by a callback ends it with that.
 */
export class Watcher {
  /**
   * @param url of the hub with the prefix of its route, relative to the page or absolute.
   * @throws RangeError for a name that no topic has, or a range without keys; BadAnswer for a cursor that is none.
   */
  constructor(url: string, options: WatcherOptions);
  /** Place up to which all changes were given, to begin another watcher at; null before the first. */
  readonly cursor: string | null;
  readonly phase: WatchPhase;
  /**
   * Begin.
   * @returns promise of the end: it resolves after `stop`, and rejects with `WatchFailed` or an error of a callback.
   */
  start(): Promise<void>;
  /** End all requests, for good. */
  stop(): void;
  /** Begin; messages are iterated over, beside callbacks. The end of the iteration stops the watcher. */
  [Symbol.asyncIterator](): AsyncGenerator<WatchMessage, void, void>;
}

/** Answer that is not one of a hub. */
export class BadAnswer extends Error {}

/** Answer of a hub that no repetition cures. */
export class WatchFailed extends Error {}

/** Order of two keys by their bytes in UTF-8, for `sort`: negative, 0 or positive. That of `<` differs from it. */
export function compareKeys(one: string, other: string): number;

/** Order of two cursors, -1, 0 or 1; undefined if they are of different epochs. Throws BadAnswer if one is none. */
export function compareCursors(one: string, other: string): -1 | 0 | 1 | undefined;

/** Version of a store. Numbers are compared within one epoch only; the beginning has an empty one. */
export interface Version {
  readonly epoch: string;
  readonly number: bigint;
}

/** Version that a cursor names. Throws BadAnswer if it is none. */
export function versionOf(cursor: unknown): Version;

/** Keys from `low` on and below `high`; null is an open end. Throws RangeError if there are none. */
export class KeyRange {
  constructor(low: string | null | undefined, high: string | null | undefined);
  low: string | null;
  high: string | null;
  readonly whole: boolean;
  has(key: string): boolean;
  overlap(other: KeyRange): KeyRange | null;
  equals(other: KeyRange): boolean;
}

/** Block of an event stream; `data` is null if it only moves the id. */
export interface Block {
  event: string;
  data: string | null;
  id: string;
  /** Bytes. */
  size: number;
}

/** Lines of bytes, each as text at its end. Throws BadAnswer above the limit in bytes. */
export class LineParser {
  constructor(limit?: number);
  readonly waiting: number;
  feed(chunk: Uint8Array): Generator<{ text: string; size: number }, void, void>;
}

/** Blocks of an event stream, each at its blank line. Throws BadAnswer above the limit in bytes. */
export class EventStreamParser {
  constructor(limit?: number);
  feed(chunk: Uint8Array): Generator<Block, void, unknown>;
}

/** Lines of a snapshot: its place, then the events. It is void unless `complete` is true at the end. */
export class SnapshotParser {
  complete: boolean;
  feed(
    chunk: Uint8Array,
  ): Generator<{ cursor: string; event?: undefined } | { event: HubEvent; size: number }, void, unknown>;
}

/** Line of a watch; `size` in bytes. */
export type WatchLine =
  | { type: "event"; event: HubEvent; version: Version; size: number }
  | { type: "progress"; range: KeyRange; version: Version; cursor: string }
  | { type: "expired" }
  | Resync;

/** Line of a block; null if it has none. Throws BadAnswer. */
export function watchLine(block: Block): WatchLine | null;

/** Order of a watch: lines in, whole changes and progress out. */
export class WatchSequence {
  constructor(range: KeyRange, cursor: string, version?: Version);
  cursor: string;
  repeated: number;
  reopen(epochs?: Iterable<string>): void;
  event(line: Extract<WatchLine, { type: "event" }>): (Change | Progress)[];
  progress(line: Extract<WatchLine, { type: "progress" }>): (Change | Progress)[];
}

/** Request of a watcher, which takes the place of the one under way. Answers name its number. */
export type WatchRequest =
  | { do: "open"; number: number; cursor: string }
  | { do: "snapshot"; number: number }
  | { do: "ask"; number: number; resync: Resync };

/** Action of a watcher. A report ends the request under way. */
export type WatchAction =
  | WatchRequest
  | { do: "deliver"; message: WatchMessage }
  | { do: "report"; report: WatchReport }
  | { do: "fail"; reason: string };

export interface WatchStateOptions {
  range: KeyRange;
  cursor?: string | null;
  /** Makes random numbers from 0 up to 1. */
  chance: () => number;
  /** Whether the application answers resyncs. */
  handed?: boolean;
  /** Seconds between progress. */
  interval?: number;
  /** Bytes. */
  snapshotMax?: number;
}

/** Decisions of a watcher: inputs with a number of their request and a time in seconds, actions out. */
export class WatchState {
  constructor(options: WatchStateOptions);
  readonly phase: WatchPhase;
  /** Time in seconds at which `timer` is due; Infinity for never. */
  readonly deadline: number;
  begin(now: number): WatchAction[];
  stop(): void;
  waiting(now: number): void;
  timer(now: number): WatchAction[];
  opened(number: number, now: number): void;
  line(number: number, line: WatchLine, now: number): WatchAction[];
  gone(number: number, resync: Resync, now: number): WatchAction[];
  ended(number: number, reason: string, now: number, asked?: number | null): WatchAction[];
  refused(number: number, reason: string): WatchAction[];
  versioned(number: number, cursor: string, now: number, begin?: string): WatchAction[];
  took(number: number, event: HubEvent, size: number, now: number): WatchAction[];
  complete(number: number, now: number): WatchAction[];
  placed(number: number, cursor: string | null, now: number): WatchAction[];
}
