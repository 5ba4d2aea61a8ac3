// Webhook receiver for the pushes of a hub, with Node's own modules only.
//
//     WEBHOOK_KEY=whsec_… PORT=8001 node receiver.mjs
//
// It verifies the signature, repeats the challenge, drops repetitions by the ids of the chain, and prints each event once.
// Keep `last` where your data is, in one transaction with it, and the effect of an event is there once.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const KEYS = process.env.WEBHOOK_KEY.split(" ").map((key) => Buffer.from(key.replace(/^whsec_/, ""), "base64"));
const TOLERANCE = 300; // seconds between the clock of the hub and this one
const BODY_MAX = 64 * 1024 * 1024; // bytes; a text has 10 MB at most, and a control character six bytes in JSON

let last = 0n; // id of the last event that was processed: a BigInt, since ids exceed 2^53

function isSigned(headers, body) {
  const id = headers["webhook-id"] ?? "", timestamp = headers["webhook-timestamp"] ?? "";
  if (!/^[0-9]{1,12}$/.test(timestamp) || Math.abs(Number(timestamp) - Date.now() / 1000) > TOLERANCE) return false;
  let right = false;
  for (const key of KEYS) {
    const expected = Buffer.from(`v1,${createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest("base64")}`);
    for (const text of (headers["webhook-signature"] ?? "").split(" ").slice(0, 16)) {
      const given = Buffer.from(text);
      if (given.length === expected.length && timingSafeEqual(given, expected)) right = true;
    }
  }
  return right;
}

// Process an event that may be a repetition.
function take(event) {
  const id = BigInt(event.id), previous = BigInt(event.prev_id);
  if (id <= last) return;
  if (last > 0n && previous > last) console.log(`gap: read the history from ${last} to ${previous}`);
  console.log(`${id} ${event.key ?? "-"} ${JSON.stringify(event.data ?? event.data_base64 ?? null)}`);
  last = id;
}

function answer(response, status, body = "") {
  // A content that was not read ends the connection.
  response.writeHead(status, status >= 400 ? { Connection: "close" } : {}).end(body);
}

const server = createServer(async (request, response) => {
  if (request.method !== "POST") return answer(response, 405);
  if (Number(request.headers["content-length"] ?? 0) > BODY_MAX) return answer(response, 413);
  try {
    const chunks = [];
    let size = 0;
    for await (const chunk of request) {
      size += chunk.length;
      if (size > BODY_MAX) return answer(response, 413);
      chunks.push(chunk);
    }
    const body = Buffer.concat(chunks);
    if (!isSigned(request.headers, body)) return answer(response, 401);
    const event = JSON.parse(body);
    if (event.type === "challenge") return answer(response, 200, event.challenge);
    // Only when it was processed: with 2xx the hub goes on to the next event.
    take(event);
    return answer(response, 204);
  } catch (error) {
    console.error(error.message);
    return answer(response, 500);
  }
});
server.requestTimeout = 20_000;
server.listen(Number(process.env.PORT ?? 8001), "127.0.0.1");
