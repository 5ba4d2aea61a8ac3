"""Ingesters: programs that give the changes of another store to a soft topic of a hub.

    postgresql          ``python -m griphub.ingesters.postgresql``: a view of a PostgreSQL database, by an outbox
    postgresql_view     the view: its table, key, columns and condition
    postgresql_sql      statements: outbox, triggers, polls, snapshots
    postgresql_source   the database: polls, marks, trimming
    marks               versions that were given or are being given, and their repetition. Sans-I/O
    ingest_request      contents of requests to the hub, and the meaning of their answers. Sans-I/O
    ingest_client       requests to the hub, with repetitions

Imports: ``griphub.client``. The driver is in the extra ``postgresql`` of the distribution.
"""
