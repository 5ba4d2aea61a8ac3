"""Dispatch: the way of an item through the handler.

Imports ``stats``. ``dispatcher`` takes an item and decides: ``dedupe`` drops an id that passed within its time,
``sequencer`` puts the items of a channel into ``prev-id`` order and waits a bounded time for a missing one,
``recent`` keeps the id released last, ``subscriptions`` knows which worker has subscribers.

``worker_links`` are the handler's ends of the pipe, each with a bounded queue; ``scatter_gather`` asks all workers
and collects their answers; ``timers`` give the dispatcher its time; ``refusals`` counts published messages that
cannot be used.
"""
