"""Delivery: from one item of the handler to the sessions of this worker.

Imports ``grip``, ``pipe`` and ``stats``. ``channel_table`` holds every ``channel`` with its subscriptions and asks
the handler to confirm them; ``fanout`` takes an item, makes its bytes once per kind of connection and writes them to
all sessions whose next id it is, several items at a time.

Other deliveries take the slow path: ``filter_queue`` (items of one session on their way through its filters, in
order), ``rate_limiter`` (``message_rate``, shared fairly), ``sharing`` (results that sessions have in common),
``turns`` (long work in bounded turns of the loop).

Bounds: ``send_buffers`` totals the bytes that wait for slow peers and names the ones to cut, ``backpressure`` stops
the intake while clients on the whole do not keep up, ``refusals`` counts items that exceeded a bound.

Per delivery there is no task, future, coroutine, log line or dict copy.
"""
