"""Recorder and Spark jobs over the stats socket."""
