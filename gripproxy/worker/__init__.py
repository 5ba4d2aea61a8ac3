"""The worker process: accepts clients, proxies, and holds every session it accepted.

Imports everything below; only ``cli`` imports it. ``worker.Worker`` is the composition root: it builds the parts in
the order of their layers and passes each its collaborators, so that no attribute is set on an object after it was
made.

``handler_link`` is this end of the pipe, ``commands`` carries out the handler's commands for sessions, ``totals``
collects statistics of all parts, ``routes`` receives new routes, ``drain`` ends the process (retired by a successor,
or stopped), and ``error_boundary`` limits an unexpected exception to the session or message it occurred in.

One tick a second drives all timeouts; everything else is a callback of the event loop.
"""
