"""The live model: the state that the events of stats sockets describe, sans-I/O.

Imports ``grip`` and ``stats``. ``event`` decodes one message of a stats socket, gripproxy's or Pushpin's; ``model``
applies it to the ``instance`` it is from and to the busiest ones of the ``channel`` table; ``snapshot`` is a copy of
all figures at one moment, with rates since the moment before.

Views such as ``gripproxy top`` read snapshots only. Memory is bounded by the number of instances and channels that
are kept, not by the traffic.
"""
