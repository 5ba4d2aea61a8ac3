"""The publish side of gripproxy: takes items in, drops duplicates, orders them and passes them to the workers.

Decisions live in sans-I/O modules (time comes in as an argument): ``dedupe``, ``sequencer``, ``recent``,
``directory``, and ``exchange``, which joins them. Around them the shells: ``intake`` (ZeroMQ PULL and SUB), ``control``
(HTTP), ``commands`` (ZeroMQ ROUTER) and ``links`` (the workers). ``main`` starts and stops them.
"""
