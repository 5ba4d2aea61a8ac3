"""Clients of a hub. Nothing of the server is imported."""
