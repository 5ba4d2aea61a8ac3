"""``gripproxy top``: a live view of stats sockets in a terminal (docs/top.md).

Imports ``live`` and ``stats``. ``app`` is the loop: it reads stats sockets through ``stats.subscriber`` into the
live model, keys from the ``terminal`` through ``keys`` into the ``view`` (which table, order and part is shown), and
draws a snapshot by ``screen`` with amounts as ``format`` writes them. ``--once`` prints one snapshot as plain text.
"""
