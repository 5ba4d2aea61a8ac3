"""The rooms, and who may read them: django-eventstream asks when a client connects, and when a permission changes."""

from __future__ import annotations

from django.contrib.auth.models import User
from django_eventstream.channelmanager import DefaultChannelManager

from chat.models import ThrownOut

ROOMS = ("kitchen", "garden")


class Rooms(DefaultChannelManager):
    """A channel is a room; a person reads those that there are, until thrown out."""

    def can_read_channel(self, user: User | None, channel: str) -> bool:
        """Return whether ``user`` may read a room; None: a visitor who has not logged in."""
        if user is None or channel not in ROOMS:
            return False
        return not ThrownOut.objects.filter(user=user, room=channel).exists()
