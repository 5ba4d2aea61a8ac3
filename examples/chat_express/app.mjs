// A chat over WebSockets with Express and @fanoutio/serve-grip. This program never sees a WebSocket: gripproxy keeps them
// and makes plain POST requests of what clients send (WebSocket-over-HTTP). Each is answered at once.
//
// A message is JSON. Clients send {to: "all" | "me", text} or {leave: true}; they get {kind, name, text}, where kind is
// "welcome", "chat" or "echo".
//
// Environment: PORT, and GRIP_URL (gripproxy's control port with issuer and key).

import { fileURLToPath } from "node:url";

import { WebSocketMessageFormat } from "@fanoutio/grip";
import { ServeGrip } from "@fanoutio/serve-grip";
import express from "express";

const CHANNEL = "chat-express";
const PAGE = fileURLToPath(new URL("../chat.html", import.meta.url));
const MAX_NAME = 40;

const gripUrl = process.env.GRIP_URL;
const grip = new ServeGrip({ grip: gripUrl, gripVerifyKey: new URL(gripUrl).searchParams.get("key") });
const app = express();

app.get("/", (_request, response) => response.sendFile(PAGE));

// Refuse who came around the proxy. serve-grip 2.0.0 looks at the signature too, but does not wait for the result, and so
// takes any Grip-Sig for a good one.
app.use("/chat", async (request, response, next) => {
  const { isSigned } = await grip.getPublisher().validateGripSig(request.get("Grip-Sig"));
  if (isSigned) next();
  else response.status(501).type("text").send("This resource needs a GRIP proxy in front.\n");
});

app.use("/chat", grip);

app.post("/chat", async (request, response) => {
  const socket = request.grip.wsContext;
  if (socket === null) return response.status(400).type("text").send("Open a WebSocket here.\n");

  if (socket.isOpening()) {
    const name = String(request.query.name ?? "").trim();
    if (!name || name.length > MAX_NAME) {
      // The client gets this as the answer to its handshake. It must not look like events, as which serve-grip would send it.
      return response.status(400).type("text").send(`Say who you are: /chat?name= and up to ${MAX_NAME} characters.\n`);
    }
    socket.accept();
    socket.meta.name = encodeURIComponent(name); // gripproxy keeps it, and sends it with every later request
    socket.subscribe(CHANNEL);
    socket.send(JSON.stringify({ kind: "welcome", name }));
    return response.end();
  }

  const name = decodeURIComponent(socket.meta.name);
  while (!socket.closed) {
    let data;
    try {
      // Not asked with canRecv() first: the library answers pings only in here.
      data = socket.recv();
    } catch {
      break; // thrown when all is received, and when the client has vanished; there is nobody left to answer then
    }
    if (data === null) socket.close(socket.closeCode ?? 1000);
    else await take(socket, name, data);
  }
  response.end();
});

async function take(socket, name, data) {
  let message;
  try {
    message = JSON.parse(data);
  } catch {
    return socket.close(1003); // not our kind of data
  }
  if (message?.leave) return socket.close(1000);
  const text = String(message?.text ?? "");
  if (message?.to === "me") return socket.send(JSON.stringify({ kind: "echo", name, text }));
  await grip.getPublisher().publishFormats(CHANNEL, new WebSocketMessageFormat(JSON.stringify({ kind: "chat", name, text })));
}

app.listen(Number(process.env.PORT), "127.0.0.1");
