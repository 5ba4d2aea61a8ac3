"""Coverage-guided fuzzing of the parsers and codecs that read bytes of clients, backends, publishers and the pipe.

A target (``targets/``) is a function with a contract: for any input only documented exceptions escape, an input read
whole and the input read byte by byte give equal events, and encoding what was decoded gives equal values. The fuzzer
(``fuzzer.py``) mutates inputs of the corpus, runs the target and keeps each input that reaches something new:
a pair of lines that ran one after the other in the modules of the target (``coverage.py``), or an outcome not seen
before, which is how decisions of C code (llhttp, orjson, tnetstring) become visible.

The corpus (``corpus/``) is committed: one file per target, one input per line. The unit tests run it through the
targets; ``python -m tests.fuzz.run`` searches on from it, and adds an input that breaks a contract to it.

The engine is not libFuzzer (atheris): that has wheels for some Python versions of some platforms, ends its process
after one target, and does not see into C extensions either. ``sys.settrace`` works with every Python and reads some
thousand short inputs a second, which is enough for parsers of this size.
"""
