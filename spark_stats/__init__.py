"""Recorder of stats events, and Spark jobs over the record.

Lives here: the recorder, from socket to Parquet file (``recorder``, ``recording``, ``journal``, ``event``, ``batch``,
``segment``, ``directory``, ``quarantine``, ``loss_detector``), the columns of the record (``schema``), the check of a
record (``survey``), the tree of errors (``errors``) and the command line (``__main__``). The Spark jobs are in
``reports``.

May import: ``gripproxy.stats.subscriber``, the one reader of stats sockets in the project, and nothing else of it. The
meaning of an event is defined by docs/grip.md §9 alone, so that the stats of Pushpin can be recorded as well.

Way of an event: ``Recorder`` takes messages off a SUB socket; ``Recording`` writes them to the journal, decodes them in
batches (``event.parse``, ``Batch``) and, when the journal is large or old enough, closes its segments: Parquet files of
``schema.SCHEMA`` by date and type, complete from the moment they have their names. Messages that are no events go to
``Quarantine``; ``LossDetector`` infers from reports how many never arrived. After a crash the next recorder turns the
journals it finds into segments by these functions.
"""
