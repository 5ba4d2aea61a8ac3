"""Statistics of the service: counted here from the differences that workers send.

Imports no other room of the handler. ``counters`` are the totals of items; ``aggregator`` adds up counts by route and
channel and decides which events follow and when (docs/grip.md §9); ``socket`` publishes them on a ZeroMQ PUB socket;
``prometheus`` exposes them as metrics.
"""
