"""Which view answers which path."""

from __future__ import annotations

import django_eventstream.urls
from django.urls import include, path

from chat import views

urlpatterns = [
    path("", views.page),
    path("join", views.join),
    path("rooms/<room>/say", views.say),
    path("rooms/<room>/throw-out", views.throw_out),
    path("rooms/<room>/let-in", views.let_in),
    # A stream of events for each room: /rooms/kitchen/events
    path("rooms/<channel>/events", include(django_eventstream.urls)),
]
