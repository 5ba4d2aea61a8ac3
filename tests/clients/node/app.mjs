// A backend written with the unmodified @fanoutio/grip: it holds, checks Grip-Sig, and publishes through its Publisher.
// Environment: PORT, and GRIP_URL (control port with iss and key).

import http from "node:http";
import {
  GripInstruct,
  HttpResponseFormat,
  HttpStreamFormat,
  Item,
  Publisher,
  parseGripUri,
} from "@fanoutio/grip";

const publisher = new Publisher(parseGripUri(process.env.GRIP_URL));

function hold(url, isLongPoll) {
  const instruct = new GripInstruct(url.searchParams.getAll("channel"));
  if (isLongPoll) {
    instruct.setHoldLongPoll(20);
  } else {
    instruct.setHoldStream();
    instruct.setKeepAlive("alive\n", 20);
  }
  instruct.meta = { user: "ann" };
  return { headers: instruct.toHeaders({ "Content-Type": "text/plain" }), body: isLongPoll ? "nothing\n" : "opened\n" };
}

async function publish(url, body) {
  const channel = url.searchParams.get("channel");
  const [id, previous] = [url.searchParams.get("id") ?? undefined, url.searchParams.get("prev-id") ?? undefined];
  switch (url.searchParams.get("format")) {
    case "stream":
      await publisher.publishHttpStream(channel, body.toString(), id, previous);
      break;
    case "stream-bytes":
      await publisher.publishHttpStream(channel, new HttpStreamFormat(new Uint8Array(body)), id, previous);
      break;
    case "stream-close":
      await publisher.publishHttpStream(channel, new HttpStreamFormat(null, true));
      break;
    case "response":
      await publisher.publishHttpResponse(
        channel,
        new HttpResponseFormat({ code: 201, reason: "Made", headers: { "X-From": "node" }, body: body.toString() }),
        id,
        previous,
      );
      break;
    case "both":
      await publisher.publish(
        channel,
        new Item([new HttpStreamFormat(body.toString()), new HttpResponseFormat({ body: body.toString() })], id, previous),
      );
      break;
    default:
      throw new Error(`unknown format ${url.searchParams.get("format")}`);
  }
  return { headers: { "Content-Type": "text/plain" }, body: "published\n" };
}

async function answer(request, body) {
  const url = new URL(request.url, "http://backend");
  if (request.method === "POST") return publish(url, body);
  const { isProxied, isSigned } = await publisher.validateGripSig(request.headers["grip-sig"]);
  if (url.pathname === "/signed") return { headers: {}, body: JSON.stringify({ isProxied, isSigned }) };
  if (!isSigned) return { code: 501, headers: {}, body: "needs a GRIP proxy that signs with our key\n" };
  return hold(url, url.pathname === "/poll");
}

http
  .createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    try {
      const { code = 200, headers, body } = await answer(request, Buffer.concat(parts));
      response.writeHead(code, headers).end(body);
    } catch (error) {
      response.writeHead(500).end(`${error.message} ${JSON.stringify(error.context ?? {})}\n`);
    }
  })
  .listen(Number(process.env.PORT), "127.0.0.1");
