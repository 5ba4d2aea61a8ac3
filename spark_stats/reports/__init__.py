"""Spark jobs over the record: what is reported, and what each figure means."""
