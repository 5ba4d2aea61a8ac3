"""Database table of the people who were thrown out of a room."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import models


class ThrownOut(models.Model):
    """A person may not read a room any more."""

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    room = models.CharField(max_length=40)

    class Meta:
        """One is enough."""

        constraints = (models.UniqueConstraint(fields=("user", "room"), name="once"),)
