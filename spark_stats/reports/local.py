"""Small tables from memory.

Spark knows them when it plans, and needs no job to read them: rows of Python's would be sent through a process of
Python's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["local"]


def local(spark: SparkSession, rows: Iterable[tuple[object, ...]], columns: Mapping[str, str]) -> DataFrame:
    """Return a small table from memory.

    Args:
        spark: session.
        rows: values; each is a string, a number, None, or a list of these.
        columns: types by name of the column.
    """
    values: list[object] = []

    def place(value: object) -> str:
        if isinstance(value, (list, tuple)):
            return f"array({', '.join(map(place, value))})"
        values.append(value)
        return "?"

    # Placeholders: strings may have anything in them.
    lines = ", ".join(f"({', '.join(map(place, row))})" for row in rows)
    casts = [F.col(f"col{number}").cast(kind).alias(name) for number, (name, kind) in enumerate(columns.items(), 1)]
    if not lines:
        return spark.range(0).select(*[F.lit(None).cast(kind).alias(name) for name, kind in columns.items()])
    return spark.sql(f"SELECT * FROM VALUES {lines}", args=values).select(*casts)
