"""Store: events of all topics, in one total order of ids.

Engines implement two interfaces, ``StoreWriter`` and ``StoreReader`` (``interface``), and are judged by one conformance
suite. SQLite is the engine that comes with the hub: one writer, any number of readers on connections of their own.

    cursor        places in the order: epoch and id, and the intervals of ids that an epoch covers
    event         one event, and what a publisher gives of it
    topic         a named sequence of events and its retention
    publication   one atomic publish request: events, condition, idempotency; and its outcome
    interface     what an engine must do
    errors        failures of a store, by whose fault they are
    retention     which events a topic may lose: decisions only
    schema        tables and settings of the SQLite engine
    sqlite_writer, sqlite_reader   the engine
    file_lock     one writer for each file
    ballast       disk space kept for the retention of a full disk

A publication is given to the writer, which commits many of them at once; each has its outcome only after the commit.
Pages go from a reader to the API. Rows of a page, and the floor that they are checked against, come from one read
transaction, so that retention is never mistaken for silence.
"""
