"""A Flask application that holds with the ``gripcontrol`` library and publishes over HTTP and over ZeroMQ.

Nothing in it waits: every view returns at once, and the headers (or, for /poll, the body) tell gripproxy to keep the
client's connection and which channel it listens to.
"""

from __future__ import annotations

import os

from flask import Flask, Response, abort, render_template, request
from gripcontrol import (
    Channel,
    GripPubControl,
    HttpResponseFormat,
    HttpStreamFormat,
    create_grip_channel_header,
    create_hold_response,
    parse_grip_uri,
    validate_sig,
)
from gripcontrol import Response as HeldResponse
from pubcontrol import Item

EVENTS = "flask-events"  # text/event-stream and long-polls
LINES = "flask-lines"  # plain text, a line each

app = Flask(__name__)
proxy = parse_grip_uri(os.environ["GRIP_URL"])
over_http = GripPubControl(proxy)
over_zmq = GripPubControl({"control_zmq_uri": os.environ["GRIP_ZMQ_URL"]})


def require_proxy() -> None:
    """Refuse a hold to a client that did not come through gripproxy: nobody would keep its connection."""
    if not validate_sig(request.headers.get("Grip-Sig", ""), proxy["key"]):
        abort(501, "This resource needs a GRIP proxy in front.")


@app.get("/")
def page() -> str:
    """A page that shows the events."""
    return render_template("page.html")


@app.get("/events")
def events() -> Response:
    """A stream hold, for EventSource."""
    require_proxy()
    response = Response(": connected\n\n", content_type="text/event-stream")
    response.headers["Grip-Hold"] = "stream"
    response.headers["Grip-Channel"] = create_grip_channel_header(Channel(EVENTS))
    response.headers["Grip-Keep-Alive"] = r":\n\n; format=cstring; timeout=20"
    return response


@app.get("/lines")
def lines() -> Response:
    """A stream hold, for anything that reads lines."""
    require_proxy()
    response = Response("connected\n", content_type="text/plain")
    response.headers["Grip-Hold"] = "stream"
    response.headers["Grip-Channel"] = create_grip_channel_header(LINES)
    return response


@app.get("/poll")
def poll() -> Response:
    """A response hold, told in the body instead of in headers."""
    require_proxy()
    nothing = HeldResponse(headers={"Content-Type": "text/plain"}, body="nothing new\n")
    return Response(create_hold_response(EVENTS, nothing, timeout=30), content_type="application/grip-instruct")


@app.post("/publish/<way>")
def publish(way: str) -> str:
    """Publish the posted text to every kind of client, over ``http`` or ``zmq``."""
    publisher = {"http": over_http, "zmq": over_zmq}.get(way)
    if publisher is None:
        abort(404)
    text = request.get_data(as_text=True)
    event = "".join(f"data: {line}\n" for line in text.splitlines() or [""]) + "\n"
    publisher.publish(EVENTS, Item([HttpStreamFormat(event), HttpResponseFormat(body=text + "\n")]), blocking=True)
    publisher.publish(LINES, Item(HttpStreamFormat(text + "\n")), blocking=True)
    return "Published\n"


if __name__ == "__main__":
    app.run("127.0.0.1", int(os.environ["PORT"]), threaded=True)
