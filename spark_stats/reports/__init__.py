"""Spark jobs over the record: tables, the page with charts, and the meaning of each figure.

Lives here: the batch job (``report``) and the streaming job (``stream`` with ``position`` and ``minutes``); a module
for each kind of table (``connections``, ``subscriptions``, ``deliveries``, ``channels``, ``traffic``, ``outcomes``,
``recoveries``, ``pushes``, ``gaps``); the arithmetic that they share (``bucket``, ``level``, ``quantile``,
``intervals``); reading (``inventory``, ``events``, ``span``), writing (``files``, ``page``, ``charts``) and Spark
itself (``session``, ``java``, ``local``, ``progress``).

May import: ``spark_stats.schema``, ``directory`` and ``errors``, and each other; never the recorder, which may run
elsewhere.

Way of the data: ``inventory`` reads the ends of the segments without Spark, while it starts, and finds copies;
``Events`` reads the events of a range, each once; each table's function returns figures over time, for every bucket and
set of keys; ``files`` joins the parts that Spark has written to one Parquet and one CSV file, from which ``page``
draws.
"""
