"""Statements of the PostgreSQL ingester: the outbox with its triggers, polls as differences of snapshots, snapshots.

Rows of the outbox are written by triggers, in the transactions of the changes. A poll gives the rows that are visible
in a snapshot and were not in the one before, so a version is a set of whole transactions, and its result a state of the
table. Order by transaction id or by ``seq`` alone would be wrong: transactions do not commit in that order.
"""

from __future__ import annotations

import hashlib

from griphub.ingesters.postgresql_view import View, quoted

__all__ = [
    "KEY_MAX",
    "ROW_MAX",
    "key_type",
    "lock_number",
    "page",
    "remove",
    "setup",
    "snapshot_begin",
    "snapshot_rows",
    "snapshot_version",
    "store_mark",
    "trim",
    "truncated",
]

KEY_MAX = 1024
"""Bytes of a key that a hub takes."""

ROW_MAX = 900_000
"""Bytes of a row that is given with its data: a line has at most a megabyte. A larger one is given without."""


SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
"""Settings on which texts of values depend: equal for the sessions of all writers and readers."""

KEY_TYPES = "'uuid', 'bool', 'int2', 'int4', 'int8', 'numeric', 'oid', 'inet', 'cidr', 'macaddr', 'macaddr8'"
"""Types of keys beside texts and enumerations: those whose text depends on no setting."""


def setup(view: View, *, notify: bool = True) -> list[str]:
    """Return the statements that make the outbox of a view and its triggers, or make them anew.

    Args:
        view: the view.
        notify: whether commits wake the ingester.
    """
    schema, outbox, state = quoted(view.schema), view.part("_outbox"), f"{quoted(view.schema)}.state"
    return [
        f"create schema if not exists {schema}",
        f"""create table if not exists {state} (
    view text primary key,
    source text not null,            -- system identifier, timeline and definition: another one is another source
    version bigint, snapshot text,   -- given and answered; null: nothing yet
    next_version bigint not null, next_snapshot text not null)  -- being given""",
        f"""create table if not exists {outbox} (
    seq bigint generated always as identity primary key,
    xid xid8 not null default pg_current_xact_id(),
    k text collate "C" not null,
    op "char" not null,              -- p: put, d: deleted, t: truncated
    data jsonb, old jsonb)""",
        f"create index if not exists {quoted(view.name + '_outbox_xid')} on {outbox} (xid)",
        f"""create or replace view {view.part("")} as
select r.{quoted(view.key)}::text collate "C" as key, {_row(view)} as data
from {view.table_sql} r where {view.condition_sql}""",
        _snapshot_view(view),
        _note_function(view),
        _truncate_function(view),
        _notify_function(view),
        *_triggers(view, notify=notify),
        f"comment on table {outbox} is 'griphub {view.digest}'",
    ]


def _row(view: View) -> str:
    columns = ", ".join(f"r.{quoted(column)}" for column in view.columns)
    return f"(select to_jsonb(v) from (select {columns}) v)"


def _note_function(view: View) -> str:
    outbox, key = view.part("_outbox"), quoted(view.key)

    def part(record: str) -> str:
        return f"""select r.{key}::text, {_row(view)} into griphub_{record}_key, griphub_{record}_row
      from (select {record}.*) r where {view.condition_sql};"""

    settings = " ".join(f"set {name} = '{value}'" for name, value in SETTINGS.items())
    # AFTER ROW: seq is taken under the lock of the row, so the last one of a key is the newest.
    return f"""create or replace function {view.part("_note")}() returns trigger language plpgsql
security definer set search_path = pg_catalog, pg_temp
{settings} as $griphub$
#variable_conflict use_column
declare
  griphub_old_key text; griphub_old_row jsonb; griphub_new_key text; griphub_new_row jsonb;
begin
  if tg_op <> 'INSERT' then
    {part("old")}
  end if;
  if tg_op <> 'DELETE' then
    {part("new")}
  end if;
  if griphub_old_key is not null and griphub_old_key is distinct from griphub_new_key then
    insert into {outbox} (k, op, old) values (griphub_old_key, 'd', griphub_old_row);
    griphub_old_row := null;
  end if;
  if griphub_new_key is not null and griphub_new_row is distinct from griphub_old_row then
    insert into {outbox} (k, op, data, old) values (griphub_new_key, 'p', griphub_new_row, griphub_old_row);
  end if;
  return null;
end $griphub$"""


def _truncate_function(view: View) -> str:
    return f"""create or replace function {view.part("_truncated")}() returns trigger language plpgsql
security definer set search_path = pg_catalog, pg_temp as $griphub$
begin
  insert into {view.part("_outbox")} (k, op) values ('', 't');
  return null;
end $griphub$"""


def _notify_function(view: View) -> str:
    return f"""create or replace function {view.part("_notify")}() returns trigger language plpgsql
security definer set search_path = pg_catalog, pg_temp as $griphub$
begin
  perform pg_notify('{view.channel}', '');
  return null;
end $griphub$"""


def _triggers(view: View, *, notify: bool) -> list[str]:
    triggers = [
        ("_note", "after insert or update or delete", "row"),
        ("_truncated", "after truncate", "statement"),
        ("_notify", "after insert or update or delete or truncate", "statement"),
    ]
    statements = []
    for suffix, when, level in triggers:
        name, table = quoted(f"griphub_{view.name}{suffix}"), view.table_sql
        statements.append(f"drop trigger if exists {name} on {table}")
        if suffix == "_notify" and not notify:
            continue
        statements += [
            f"create trigger {name} {when} on {table} for each {level} execute function {view.part(suffix)}()",
            # Rows that replication applies are changes too.
            f"alter table {table} enable always trigger {name}",
        ]
    return statements


def _snapshot_view(view: View) -> str:
    outbox, state = view.part("_outbox"), f"{quoted(view.schema)}.state"
    later = f"""select o.* from {outbox} o where o.xid >= pg_snapshot_xmin(s.snapshot::pg_snapshot)
      and not pg_visible_in_snapshot(o.xid, s.snapshot::pg_snapshot)"""
    # The table as it is, with the changes since the version undone: the first one of a key has the row before it.
    return f"""create or replace view {view.part("_snapshot")} as
select s.version, l.key, l.data
from (select s.* from {state} s where s.view = '{view.name}' and s.version is not null
    and not exists (select from ({later}) o where o.op = 't')) s
left join lateral (
    select t.key, t.data from {view.part("")} t where not exists (select from ({later}) o where o.k = t.key)
    union all
    select c.k, c.old from (select distinct on (o.k) o.k, o.old from ({later}) o order by o.k, o.seq) c
    where c.old is not null) l on true"""


def remove(view: View) -> list[str]:
    """Return the statements that remove a view from the database.

    Args:
        view: the view.
    """
    parts = ("_note", "_truncated", "_notify")
    return [
        *(f"drop trigger if exists {quoted(f'griphub_{view.name}{part}')} on {view.table_sql}" for part in parts),
        *(f"drop function if exists {view.part(part)}()" for part in parts),
        f"drop view if exists {view.part('_snapshot')}, {view.part('')}",
        f"drop table if exists {view.part('_outbox')}",
        f"delete from {quoted(view.schema)}.state where view = '{view.name}'",
    ]


def page(view: View) -> str:
    """Return the query of changed keys between two snapshots, by key: key, operation, size and row.

    Its parameters are ``before`` and ``now``, snapshots.

    Args:
        view: the view.
    """
    return f"""select k, op, octet_length(text), case when octet_length(text) <= {ROW_MAX} then text end from (
    select distinct on (k) k, op::text, data::text as text from {view.part("_outbox")}
    where xid >= pg_snapshot_xmin(%(before)s::pg_snapshot)
      and not pg_visible_in_snapshot(xid, %(before)s::pg_snapshot)
      and pg_visible_in_snapshot(xid, %(now)s::pg_snapshot)
      and k > ''
    order by k, seq desc) changed order by k"""


def truncated(view: View) -> str:
    """Return the query whether the table was truncated between the snapshots ``before`` and ``now``.

    Args:
        view: the view.
    """
    return f"""select exists (select from {view.part("_outbox")} where op = 't'
    and xid >= pg_snapshot_xmin(%(before)s::pg_snapshot) and not pg_visible_in_snapshot(xid, %(before)s::pg_snapshot)
    and pg_visible_in_snapshot(xid, %(now)s::pg_snapshot))"""


def store_mark(view: View) -> str:
    """Return the statement that stores a mark, unless another ingester has stored one meanwhile.

    Args:
        view: the view.
    """
    state = f"{quoted(view.schema)}.state"
    return f"""insert into {state} as s (view, source, version, snapshot, next_version, next_snapshot)
values (%(view)s, %(source)s, %(version)s, %(snapshot)s, %(next_version)s, %(next_snapshot)s)
on conflict (view) do update set source = excluded.source, version = excluded.version, snapshot = excluded.snapshot,
    next_version = excluded.next_version, next_snapshot = excluded.next_snapshot
where s.next_version = %(expected)s"""


def trim(view: View) -> str:
    """Return the statement that deletes a slice of rows that no poll needs any more; its parameter is a snapshot.

    Args:
        view: the view.
    """
    outbox = view.part("_outbox")
    return f"""delete from {outbox} where seq in (
    select seq from {outbox} where xid < pg_snapshot_xmin(%(before)s::pg_snapshot) limit 10000)"""


def key_type(view: View) -> str:
    """Return the query of the type of the key, and whether the text of its values depends on no setting of a session.

    Args:
        view: the view.
    """
    return f"""with recursive kind as (
    select t.* from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = %(table)s::regclass and a.attname = %(key)s
    union all
    select t.* from kind k join pg_type t on t.oid = k.typbasetype where k.typtype = 'd')
select (select format_type(atttypid, atttypmod) from pg_attribute
        where attrelid = %(table)s::regclass and attname = %(key)s),
    typcategory in ('S', 'E') or typname in ({KEY_TYPES})
from kind where typtype <> 'd'"""


def snapshot_begin(view: View) -> list[str]:
    """Return the statements with which the transaction of a snapshot begins, before its first query.

    The lock comes before the first look at the data: TRUNCATE shows an empty table to a transaction of before as well.

    Args:
        view: the view.
    """
    lock = f"lock table {view.part('_snapshot')} in access share mode"
    return [
        "set local lock_timeout = '5s'",
        lock,
        *(f"set local {name} = '{value}'" for name, value in SETTINGS.items()),
    ]


def snapshot_version(view: View) -> str:
    """Return the query of the version that ``snapshot_rows`` gives in the same transaction (repeatable read).

    Args:
        view: the view.
    """
    return f"select version from {view.part('_snapshot')} limit 1"


def snapshot_rows(view: View) -> str:
    """Return the query of all rows at that version: key and data.

    Args:
        view: the view.
    """
    return f"select key, data from {view.part('_snapshot')} where key is not null order by key"


def lock_number(view: View) -> int:
    """Return the number of the advisory lock that an ingester of the view holds.

    Args:
        view: the view.
    """
    digest = hashlib.sha256(f"{view.schema}.{view.name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
