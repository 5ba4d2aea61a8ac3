"""The smallest settings that run; those of GRIP and of django-eventstream are the last lines."""

from __future__ import annotations

import os
import pathlib
import secrets

SECRET_KEY = secrets.token_hex()
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "chat.urls"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE") or pathlib.Path(__file__).parent.parent / "chat.db",
    }
}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django_eventstream",
    "chat",
]
SESSION_COOKIE_SAMESITE = "Strict"  # no other site can post with a person's cookie

MIDDLEWARE = [
    "django_grip.GripMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
GRIP_URL = os.environ["GRIP_URL"]  # where to publish; its key also verifies Grip-Sig

EVENTSTREAM_STORAGE_CLASS = "django_eventstream.storage.DjangoModelStorage"  # events have ids, and are stored
EVENTSTREAM_CHANNELMANAGER_CLASS = "chat.rooms.Rooms"  # who may read which channel
