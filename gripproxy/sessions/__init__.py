"""Held clients, one file per kind: state machines, time comes in as an argument."""
