"""Which view answers which path."""

from __future__ import annotations

from django.urls import path

from news import views

urlpatterns = [
    path("", views.page),
    path("events", views.events),
    path("poll", views.poll),
    path("publish", views.publish),
]
