// A hub of scripted answers on loopback: each request takes the next one of its path.

import { createServer } from "node:http";
import { once } from "node:events";

export const line = (document) => `${JSON.stringify(document)}\n`;
export const block = (document, name = "") =>
  `${name && `event: ${name}\n`}id: ${document.cursor ?? name}\ndata: ${JSON.stringify(document)}\n\n`;

export const event = (id, key, data, version = id) => ({
  type: "event",
  id: String(id),
  cursor: `e.${id}`,
  prev_id: "0",
  version: String(version),
  version_cursor: `e.${version}`,
  time: "2026-11-25T00:00:00.000000Z",
  ...(key !== null && { key, op: data === undefined ? "delete" : "put" }),
  content_type: "application/json",
  data,
});
export const progress = (version, stamp = 1) => ({
  type: "progress",
  low: null,
  high: null,
  version: String(version),
  cursor: `e.${version}.${stamp}`,
});

// Answers: `status`, `type`, `headers`, `body` as parts; `open` leaves the answer unended, `cut` resets the connection behind it.
export const stream = (...body) => ({ status: 200, type: "text/event-stream", body, open: true });
export const snapshot = (version, ...events) => ({
  status: 200,
  type: "application/x-ndjson",
  body: [
    line({ type: "snapshot", version: String(version), cursor: `e.${version}` }),
    ...events.map(line),
    line({ complete: String(version), cursor: `e.${version}` }),
  ],
});
export const problem = (status, members = {}, headers = {}) => ({
  status,
  type: "application/problem+json",
  headers,
  body: [JSON.stringify({ detail: `refused ${status}`, ...members })],
});

export class FakeHub {
  static async start() {
    const hub = new FakeHub();
    hub.server = createServer((request, response) => hub.take(request, response));
    hub.server.listen(0, "127.0.0.1");
    await once(hub.server, "listening");
    hub.url = `http://127.0.0.1:${hub.server.address().port}/hub`;
    return hub;
  }

  constructor() {
    this.scripts = { watch: [], snapshot: [] };
    this.requests = [];
    this.open = new Set();
    this.closed = 0;
  }

  async take(request, response) {
    const url = new URL(request.url, "http://hub");
    const kind = url.pathname.split("/").at(-1);
    this.requests.push({
      kind,
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: request.headers,
    });
    const answer = this.scripts[kind]?.shift();
    if (answer === undefined) return response.writeHead(503).end();
    if (answer.silent) return;
    response.writeHead(answer.status, { ...(answer.type && { "Content-Type": answer.type }), ...answer.headers });
    response.flushHeaders();
    this.open.add(response);
    let go = () => {};
    response.on("drain", () => go());
    response.on("close", () => {
      this.open.delete(response);
      this.closed += 1;
      go();
    });
    for (const part of answer.body ?? []) {
      if (response.destroyed) return;
      if (!response.write(part)) await new Promise((resolve) => (go = resolve));
    }
    this.written = true;
    if (answer.cut) setImmediate(() => response.destroy());
    else if (!answer.open) response.end();
  }

  // To all streams that are open.
  send(text) {
    for (const response of this.open) response.write(text);
  }

  asked(kind) {
    return this.requests.filter((request) => request.kind === kind);
  }

  async stop() {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }
}

// Wait for what is true within a generous time.
export async function until(true_, text) {
  const deadline = Date.now() + 30_000;
  while (!true_()) {
    if (Date.now() > deadline) throw new Error(`not within 30 s: ${text ?? true_}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
