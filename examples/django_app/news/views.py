"""Views that hold and publish with ``django-grip``. Each returns at once."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST
from django_grip import publish as grip_publish
from django_grip import set_hold_longpoll, set_hold_stream
from gripcontrol import HttpResponseFormat, HttpStreamFormat

CHANNEL = "django-news"

PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>gripproxy and Django</title><link rel="icon" href="data:,"></head>
<body>
  <h1>News</h1>
  <ol id="events"></ol>
  <script>
    new EventSource("/events").onmessage = (event) => {
      const line = document.createElement("li");
      line.textContent = event.data;
      document.getElementById("events").append(line);
    };
  </script>
</body>
</html>
"""


@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """A page that shows the events."""
    return HttpResponse(PAGE)


@require_GET
def events(request: HttpRequest) -> HttpResponse:
    """A stream hold, for EventSource."""
    set_hold_stream(request, CHANNEL, keep_alive_data=":\n\n", keep_alive_timeout=20)
    return HttpResponse(": connected\n\n", content_type="text/event-stream")


@require_GET
def poll(request: HttpRequest) -> HttpResponse:
    """A response hold; the body is what the client gets when nothing was published in 30 seconds."""
    set_hold_longpoll(request, CHANNEL, timeout=30)
    return HttpResponse("nothing new\n", content_type="text/plain")


# No CSRF check here: the example is to be tried with curl, and has neither users nor cookies.
@require_POST
def publish(request: HttpRequest) -> HttpResponse:
    """Publish the posted text to every kind of client."""
    text = request.body.decode(errors="replace")
    event = "".join(f"data: {line}\n" for line in text.splitlines() or [""]) + "\n"
    grip_publish(CHANNEL, [HttpStreamFormat(event), HttpResponseFormat(body=text + "\n")], blocking=True)
    return HttpResponse("Published\n", content_type="text/plain")
