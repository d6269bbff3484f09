"""The only code that opens SQLite."""

from gpumon.store.errors import Corrupt, Foreign, Full, Locked, StoreError, TooNew, Unwritable
from gpumon.store.reader import StoreReader, open_reader
from gpumon.store.writer import StoreWriter, open_writer

__all__ = [
    "Corrupt",
    "Foreign",
    "Full",
    "Locked",
    "StoreError",
    "StoreReader",
    "StoreWriter",
    "TooNew",
    "Unwritable",
    "open_reader",
    "open_writer",
]
