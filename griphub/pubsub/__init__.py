"""Decisions about Google's Pub/Sub API: names, JSON, errors, resources, filters and messages. Sans-I/O."""
