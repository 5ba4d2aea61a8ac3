"""A chat over WebSockets with Flask and ``gripcontrol``.

This program never sees a WebSocket: gripproxy keeps them and makes plain POST requests of what clients send
(WebSocket-over-HTTP). Each is answered at once.

A message is JSON. Clients send ``{"to": "all" | "me", "text": …}`` or ``{"leave": true}``; they get
``{"kind", "name", "text"}``, where kind is ``welcome``, ``chat`` or ``echo``.
"""

from __future__ import annotations

import json
import os
import pathlib
import urllib.parse

from flask import Flask, Response, abort, request, send_file
from gripcontrol import (
    GripPubControl,
    WebSocketContext,
    WebSocketEvent,
    WebSocketMessageFormat,
    decode_websocket_events,
    encode_websocket_events,
    parse_grip_uri,
    validate_sig,
)
from pubcontrol import Item

CHANNEL = "chat-python"
EVENTS = "application/websocket-events"
PAGE = pathlib.Path(__file__).parent.parent / "chat.html"
MAX_NAME = 40

app = Flask(__name__)
proxy = parse_grip_uri(os.environ["GRIP_URL"])
publisher = GripPubControl(proxy)


@app.get("/")
def page() -> Response:
    """The chat in a browser."""
    return send_file(PAGE)


@app.post("/chat")
def chat() -> Response:
    """Events of one WebSocket in, events for it out."""
    if not validate_sig(request.headers.get("Grip-Sig", ""), proxy["key"]):
        abort(501, "This resource needs a GRIP proxy in front.")
    if request.content_type != EVENTS:
        abort(400, "Open a WebSocket here.")
    # What Set-Meta-Name has set comes back as Meta-Name with every request of this WebSocket.
    meta = {"name": request.headers.get("Meta-Name", "")}
    socket = WebSocketContext(request.headers["Connection-Id"], meta, decode_websocket_events(request.get_data()))
    if socket.is_opening():
        name = request.args.get("name", "").strip()
        if not 0 < len(name) <= MAX_NAME:
            # Anything but events is the answer to the client's handshake.
            return Response(
                f"Say who you are: /chat?name= and up to {MAX_NAME} characters.\n", 400, mimetype="text/plain"
            )
        socket.accept()
        socket.meta["name"] = urllib.parse.quote(name)
        socket.subscribe(CHANNEL)
        socket.send(json.dumps({"kind": "welcome", "name": name}))
    else:
        talk(socket, urllib.parse.unquote(meta["name"]))
    return answer(socket)


def talk(socket: WebSocketContext, name: str) -> None:
    """Take what the client has sent since the last request."""
    while socket.can_recv() and not socket.closed:
        try:
            data = socket.recv()
        except OSError:  # the client has vanished; there is nobody left to answer
            return
        if data is None:
            socket.close(socket.close_code or 1000)
            return
        try:
            message = json.loads(data)
            to, text = message.get("to"), str(message.get("text", ""))
        except (ValueError, AttributeError):
            socket.close(1003)  # not our kind of data
            return
        if message.get("leave"):
            socket.close(1000)
        elif to == "me":
            socket.send(json.dumps({"kind": "echo", "name": name, "text": text}))
        else:
            said = json.dumps({"kind": "chat", "name": name, "text": text})
            publisher.publish(CHANNEL, Item(WebSocketMessageFormat(said)), blocking=True)


def answer(socket: WebSocketContext) -> Response:
    """Make the response of a context: its events, and headers for what changed."""
    events = [*socket.out_events]
    if socket.accepted:
        events.insert(0, WebSocketEvent("OPEN"))
    if socket.closed:
        events.append(WebSocketEvent("CLOSE", socket.out_close_code.to_bytes(2, "big")))
    response = Response(encode_websocket_events(events))
    response.headers["Content-Type"] = EVENTS  # exactly this: Flask's mimetype would be fine, a charset would not
    if socket.accepted:
        response.headers["Sec-WebSocket-Extensions"] = "grip"  # from now on messages begin with m: or c:
    for key, value in socket.meta.items():
        if value != socket.orig_meta.get(key):
            response.headers[f"Set-Meta-{key.title()}"] = value
    return response


if __name__ == "__main__":
    app.run("127.0.0.1", int(os.environ["PORT"]), threaded=True)
