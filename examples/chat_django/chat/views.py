"""Joining, saying, throwing out. Streams are django-eventstream's own; each view here returns at once."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable

from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST
from django_eventstream import send_event
from django_eventstream.eventstream import channel_permission_changed

from chat.models import ThrownOut
from chat.rooms import ROOMS, Rooms

PAGE = pathlib.Path(__file__).with_name("page.html")
TEXT_MAX = 1000
NAME_MAX = 40

View = Callable[[HttpRequest, str], HttpResponse]


def text(message: str, status: int = 200) -> HttpResponse:
    """Return a response of one line."""
    return HttpResponse(message + "\n", status=status, content_type="text/plain; charset=utf-8")


def in_a_room(view: View) -> View:
    """Answer 404 for rooms that there are not, and 403 for people who may not read them."""

    @require_POST
    @functools.wraps(view)
    def checked(request: HttpRequest, room: str) -> HttpResponse:
        if room not in ROOMS:
            return text(f"no room {room!r}: there are {', '.join(ROOMS)}", 404)
        user = request.user if request.user.is_authenticated else None
        if not Rooms().can_read_channel(user, room):
            return text("join first" if user is None else f"you were thrown out of {room}", 403)
        return view(request, room)

    return checked


@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """The page with all rooms."""
    return HttpResponse(PAGE.read_text(encoding="utf-8"))


@require_POST
def join(request: HttpRequest) -> HttpResponse:
    """Log in with a name, which is enough in an example: there are no passwords."""
    name = request.POST.get("name", "").strip()
    if not name or len(name) > NAME_MAX or not name.isprintable():
        return text(f"name: from 1 to {NAME_MAX} printable characters are needed", 400)
    user, _ = User.objects.get_or_create(username=name)
    login(request, user, "django.contrib.auth.backends.ModelBackend")
    return text(f"here as {name}")


@in_a_room
def say(request: HttpRequest, room: str) -> HttpResponse:
    """Publish a message in a room."""
    said = request.POST.get("text", "")[:TEXT_MAX]
    if not said:
        return text("text: something has to be said", 400)
    send_event(room, "message", {"name": request.user.get_username(), "text": said}, async_publish=False)
    return text("said")


@in_a_room
def throw_out(request: HttpRequest, room: str) -> HttpResponse:
    """Throw a person out of one room: that stream ends, those of other rooms go on."""
    user = User.objects.filter(username=request.POST.get("name", "")).first()
    if user is None:
        return text("name: no such person is here", 404)
    ThrownOut.objects.get_or_create(user=user, room=room)
    channel_permission_changed(user, room)
    send_event(room, "message", {"name": "", "text": f"{user.get_username()} was thrown out"}, async_publish=False)
    return text("thrown out")


@in_a_room
def let_in(request: HttpRequest, room: str) -> HttpResponse:
    """Let a person in again."""
    ThrownOut.objects.filter(user__username=request.POST.get("name", ""), room=room).delete()
    return text("let in")
