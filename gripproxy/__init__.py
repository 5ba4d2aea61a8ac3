"""gripproxy: a GRIP reverse proxy that adds realtime push to any web backend."""

__version__ = "0.1.0"
