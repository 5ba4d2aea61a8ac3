"""The Autobahn fuzzing client against gripproxy; see run.py."""
