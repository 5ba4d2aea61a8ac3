"""Routes: the file, the table, and the route of a request.

Imports ``grip``, ``http1``, ``config`` and ``process``. ``grammar`` reads a line of the routes file into a
``route.Route`` with its targets (docs/grip.md §1.1 to §1.7), ``table`` finds the route of a request by its
precedence, ``match`` asks it with the parts of a client's request that count.

``routes_file`` reads a whole file, or the lines of ``--route``, with bounds and damage reports; ``routes_watch``
notices changes of the file in a thread beside the loop. The runner reads, the workers receive
(``runner.route_distribution``): all of them use new routes from the same moment on.

The layers above keep typed state per route in ``route_states``.
"""
