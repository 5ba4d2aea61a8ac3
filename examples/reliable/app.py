"""Messages that reach everybody, once and in order, whatever dies on the way: as SSE, long-poll and WebSocket.

The database has the truth, and what is published is only a hint that comes quickly. Every answer that holds a client
says with ``prev-id`` up to which message the client has been told; whenever gripproxy is not sure that nothing was
missed, it asks again, and is told the rest. docs/reliability.md goes through it step by step.
"""

from __future__ import annotations

import json
import os
import pathlib
import sqlite3
from contextlib import closing

from flask import Flask, Response, abort, request, send_file
from gripcontrol import (
    GripPubControl,
    HttpResponseFormat,
    HttpStreamFormat,
    WebSocketEvent,
    WebSocketMessageFormat,
    decode_websocket_events,
    encode_websocket_events,
    parse_grip_uri,
    validate_sig,
    websocket_control_message,
)
from pubcontrol import Item

HERE = pathlib.Path(__file__).parent
DATABASE = os.environ.get("DATABASE") or str(HERE / "messages.db")
CHANNEL = "messages"
EVENTS = "application/websocket-events"
MAX_TEXT = 500  # bytes of a message
KEEP = 500  # messages; all that a client may have missed then fits into one answer (1,000,000 bytes for a WebSocket)

app = Flask(__name__)
proxy = parse_grip_uri(os.environ["GRIP_URL"])
publisher = GripPubControl(proxy)

# --- what is stored -------------------------------------------------------------------------------------------------

with closing(sqlite3.connect(DATABASE)) as db, db:
    db.execute("CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")


def add(text: str) -> int:
    """Store a message and return its id: one more than the last one's.

    One statement finds the last id and takes the next, so no other writer comes between, and SQLite lets one write at a
    time: who sees message 7 sees 6 as well.
    """
    with closing(sqlite3.connect(DATABASE)) as db, db:
        statement = "INSERT INTO message SELECT coalesce(max(id), 0) + 1, ? FROM message RETURNING id"
        (number,) = db.execute(statement, (text,)).fetchone()
        db.execute("DELETE FROM message WHERE id <= ?", (number - KEEP,))
    return int(number)


def messages_after(last: int) -> tuple[list[tuple[int, str]], int]:
    """Return the messages behind ``last``, and the id of the newest one among all: the ``prev-id`` of what comes next.

    The newest id is read first and bounds the messages. So what is committed between the two statements is in neither.
    """
    with closing(sqlite3.connect(DATABASE)) as db:
        (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()
        if last > newest:  # an id of another database: the client begins anew
            last = 0
        statement = "SELECT id, text FROM message WHERE id > ? AND id <= ? ORDER BY id"
        return db.execute(statement, (last, newest)).fetchall(), newest


# --- how it looks to each kind of client ----------------------------------------------------------------------------


def as_json(number: int, text: str) -> str:
    """Return a message as JSON."""
    return json.dumps({"id": number, "text": text}, ensure_ascii=False)


def as_event(number: int, text: str) -> str:
    """With ``id:``, which a browser sends as Last-Event-ID when it connects again."""
    return f"id: {number}\ndata: {as_json(number, text)}\n\n"


def post(text: str) -> int | None:
    """Store a message, then publish it. Return its id, None if it is not one line of text.

    In this order: what is published before it is committed may never have happened. The publisher works in a thread of
    its own, and if it does not reach gripproxy, nothing is lost: clients get the message a little later.
    """
    if not text.isprintable() or not 0 < len(text.encode()) <= MAX_TEXT:
        return None
    number = add(text)
    formats = [
        HttpStreamFormat(as_event(number, text)),
        HttpResponseFormat(body=f"[{as_json(number, text)}]\n"),
        WebSocketMessageFormat(as_json(number, text)),
    ]
    publisher.publish(CHANNEL, Item(formats, id=str(number), prev_id=str(number - 1)))
    return number


def last_id() -> int:
    """The last message that the asking side has, 0 if none.

    gripproxy says it in Grip-Last, and knows best: the rest is from the time when the client connected. A browser's
    EventSource says it in Last-Event-ID, and the scripts of our page in the query.
    """
    _, _, from_gripproxy = request.headers.get("Grip-Last", "").rpartition("last-id=")
    for text in (from_gripproxy, request.headers.get("Last-Event-ID"), request.args.get("after")):
        if text and text.isdecimal():
            return int(text)
    return 0


def require_proxy() -> None:
    """Refuse a hold to a client that did not come through gripproxy: nobody would keep its connection."""
    if not validate_sig(request.headers.get("Grip-Sig", ""), proxy["key"]):
        abort(501, "This resource needs a GRIP proxy in front.")


# --- what is answered -----------------------------------------------------------------------------------------------


@app.get("/")
def page() -> Response:
    """A page with all three."""
    return send_file(HERE / "page.html")


@app.post("/messages")
def post_message() -> Response:
    """Post the text in the body."""
    number = post(request.get_data(as_text=True))
    if number is None:
        return Response(f"Post one line of text, at most {MAX_TEXT} bytes.\n", 400, mimetype="text/plain")
    return Response(f"Message {number}\n", mimetype="text/plain")


@app.get("/events")
def events() -> Response:
    """Server-sent events. This is also the link that gripproxy asks, and then the body continues the stream."""
    require_proxy()
    missed, newest = messages_after(last_id())
    response = Response("".join(as_event(*message) for message in missed), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["Grip-Hold"] = "stream"
    response.headers["Grip-Channel"] = f"{CHANNEL}; prev-id={newest}"
    response.headers["Grip-Link"] = "</events>; rel=next; timeout=60"
    response.headers["Grip-Keep-Alive"] = r":\n\n; format=cstring; timeout=20"
    return response


@app.get("/poll")
def poll() -> Response:
    """A long-poll: what is there behind ``?after=`` at once, otherwise what comes next, otherwise an empty list."""
    require_proxy()
    missed, newest = messages_after(last_id())
    body = ", ".join(as_json(*message) for message in missed)
    response = Response(f"[{body}]\n", content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    if not missed:
        response.headers["Grip-Hold"] = "response"
        response.headers["Grip-Channel"] = f"{CHANNEL}; prev-id={newest}"
        response.headers["Grip-Timeout"] = "30"
    return response


@app.post("/ws")
def websocket() -> Response:
    """A WebSocket over HTTP: its events in, events for it out. What the client sends is posted."""
    require_proxy()
    if request.content_type != EVENTS:
        abort(400, "Open a WebSocket here.")
    events = decode_websocket_events(request.get_data())
    opening = bool(events) and events[0].type == "OPEN"
    answer = [WebSocketEvent("OPEN")] if opening else []
    if opening or "Grip-Last" in request.headers:
        missed, newest = messages_after(last_id())
        answer += [WebSocketEvent("TEXT", f"m:{as_json(*message)}".encode()) for message in missed]
        subscribe = websocket_control_message("subscribe", {"channel": CHANNEL, "prev-id": str(newest)})
        answer.append(WebSocketEvent("TEXT", f"c:{subscribe}".encode()))
    for event in events:
        if event.type == "TEXT":
            post((event.content or b"").decode())
        elif event.type == "PING":
            answer.append(WebSocketEvent("PONG", event.content))
        elif event.type == "CLOSE":
            answer.append(event)
    response = Response(encode_websocket_events(answer))
    response.headers["Content-Type"] = EVENTS
    if opening:
        response.headers["Sec-WebSocket-Extensions"] = "grip"
    return response


if __name__ == "__main__":
    app.run("127.0.0.1", int(os.environ["PORT"]), threaded=True)
