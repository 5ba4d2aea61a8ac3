"""Shim below SQLite: sees each operation that changes or synchronises a file, and may fail it or end the process.

SQLite reaches files through tables of functions (sqlite3_vfs, sqlite3_io_methods). Those of the default VFS are
replaced in place, in the library that the interpreter has loaded; nothing is compiled, and nothing preloaded.
"""

from __future__ import annotations

import ctypes
import pathlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["FULL", "IOERR_FSYNC", "IOERR_WRITE", "OK", "Operation", "install"]

OK: Final = 0
FULL: Final = 13
IOERR_WRITE: Final = 10 | 3 << 8
IOERR_FSYNC: Final = 10 | 4 << 8
"""Result codes of SQLite."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation on a file, before it happens.

    Attributes:
        kind: ``write``, ``truncate``, ``sync`` or ``delete``.
        path: of the file.
        offset: first byte that is written, or the size after a truncation; 1 for a deletion that is synchronised.
        data: bytes that are written.
    """

    kind: str
    path: str
    offset: int = 0
    data: bytes = b""


_File = ctypes.c_void_p
_Open = ctypes.CFUNCTYPE(
    # The name as an address: SQLite keeps it, and reads parameters behind its end.
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, _File),
    *(ctypes.c_int, ctypes.POINTER(ctypes.c_int)),
)
_Write = ctypes.CFUNCTYPE(ctypes.c_int, _File, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, _File, ctypes.c_int64)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, _File, ctypes.c_int)


class _Vfs(ctypes.Structure):
    _fields_ = (
        *(("version", ctypes.c_int), ("file_size", ctypes.c_int), ("path_max", ctypes.c_int)),
        *(("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("open", _Open)),
        ("delete", _Delete),
    )


class _Methods(ctypes.Structure):
    _fields_ = (
        *(("version", ctypes.c_int), ("close", ctypes.c_void_p), ("read", ctypes.c_void_p)),
        *(("write", _Write), ("truncate", _Truncate), ("sync", _Sync)),
        *((f"other{number}", ctypes.c_void_p) for number in range(13)),
    )


class _OpenFile(ctypes.Structure):
    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


def _library() -> ctypes.CDLL:
    """Return the SQLite that the interpreter uses."""
    sqlite3.connect(":memory:").close()
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[1] + line.partition("/")[2]
        if "libsqlite3" in path or "_sqlite3" in path:
            library = ctypes.CDLL(path)
            if hasattr(library, "sqlite3_vfs_find"):
                return library
    raise RuntimeError("the interpreter's SQLite is no shared library, so that its functions cannot be replaced")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_kept: list[Any] = []
"""Callbacks and tables that the library refers to."""


def install(on_operation: Callable[[Operation], int]) -> None:
    """Have a function called before each operation on a file that is opened from now on.

    Args:
        on_operation: returns ``OK`` for the operation to happen, or the result code that it fails with.
    """
    library = _library()
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    # Pointers of their own: the fields are about to change.
    original_open, original_delete = _Open(_address(vfs.open)), _Delete(_address(vfs.delete))
    paths: dict[int, str] = {}
    tables: dict[int, _Methods] = {}

    def opened(table: int, name: int | None, file: int, flags: int, out: Any) -> int:
        result: int = original_open(table, name, file, flags, out)
        if result == OK and name is not None:
            paths[file] = ctypes.string_at(name).decode()
            entry = ctypes.cast(file, ctypes.POINTER(_OpenFile)).contents
            address = ctypes.addressof(entry.methods.contents)
            if address not in tables:
                tables[address] = _patched(entry.methods.contents)
            entry.methods = ctypes.pointer(tables[address])
        return result

    def deleted(table: int, name: bytes, synchronise: int) -> int:
        code = on_operation(Operation("delete", name.decode(), synchronise))
        return code or int(original_delete(table, name, synchronise))

    def _patched(methods: _Methods) -> _Methods:
        write = _Write(_address(methods.write))
        truncate = _Truncate(_address(methods.truncate))
        sync = _Sync(_address(methods.sync))

        def on_write(file: int, data: int, size: int, offset: int) -> int:
            code = on_operation(Operation("write", paths[file], offset, ctypes.string_at(data, size)))
            return code or int(write(file, data, size, offset))

        def on_truncate(file: int, size: int) -> int:
            return on_operation(Operation("truncate", paths[file], size)) or int(truncate(file, size))

        def on_sync(file: int, flags: int) -> int:
            return on_operation(Operation("sync", paths[file])) or int(sync(file, flags))

        copy = _Methods()
        ctypes.pointer(copy)[0] = methods
        copy.write, copy.truncate, copy.sync = _Write(on_write), _Truncate(on_truncate), _Sync(on_sync)
        _kept.extend((write, truncate, sync, copy.write, copy.truncate, copy.sync))
        return copy

    on_open, on_delete = _Open(opened), _Delete(deleted)
    _kept.extend((original_open, original_delete, on_open, on_delete, paths, tables))
    vfs.open, vfs.delete = on_open, on_delete
