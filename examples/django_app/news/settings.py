"""The smallest settings that run; the GRIP part is the last lines."""

from __future__ import annotations

import os
import secrets

SECRET_KEY = secrets.token_hex()
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "news.urls"
USE_TZ = True

MIDDLEWARE = ["django_grip.GripMiddleware"]
GRIP_URL = os.environ["GRIP_URL"]  # where to publish; its key also verifies Grip-Sig
GRIP_PROXY_REQUIRED = True  # a hold asked for by a request that did not come through gripproxy is answered with 501
