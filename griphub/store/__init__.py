"""Store: events of all topics, in one total order of ids.

Engines implement two interfaces, ``StoreWriter`` and ``StoreReader`` (``interface``), and are judged by one conformance
suite. SQLite is the engine that comes with the hub: one writer, any number of readers on connections of their own.

    cursor        places in the order of ids: epoch and id, and the intervals of the epochs
    event         events, stored and drafted
    topic         named sequences of events, and their retention
    subscription  standing requests by callback, and states of their deliveries
    publication   atomic publish requests with condition and idempotency, and their outcomes
    interface     duties of an engine
    errors        failures of a store
    retention     how far a floor may rise
    plain_records   records as tuples, as they cross between processes
    schema, sqlite_writer, sqlite_sweep, sqlite_subscriptions, sqlite_stamps, sqlite_reader   the SQLite engine
    file_lock     one writer for each file
    ballast       disk space kept for the retention of a full disk
    maintenance   check, vacuum, backup, restore, export and import of a file

The writer commits many publications together; each has its outcome only after the commit. A reader returns pages: the
rows of a page, and the floor that they are checked against, are read in one transaction, so that an event deleted by
retention is never mistaken for silence.
"""
