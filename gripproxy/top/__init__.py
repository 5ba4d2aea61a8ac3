"""``gripproxy top``: a live view of stats sockets, gripproxy's or Pushpin's (docs/top.md).

Messages become events (``event``), events a picture of what is there and what happens (``picture``, with ``instance``
and ``channel``), of which snapshots are taken (``snapshot``). Keys (``keys``) change what is looked at (``view``), and
``screen`` draws it. None of these does I/O or reads a clock. Around them: ``source`` has the sockets, ``terminal`` the
terminal, ``watch`` the loop.
"""
