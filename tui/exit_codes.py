"""What gpumon's exit status says; README lists the same."""

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit statuses of every command."""

    OK = 0
    #: some host did not answer
    HOST_FAILED = 1
    #: a wrong option, host or config
    USAGE = 2
    #: the database can't be used
    STORE = 3
    #: Ctrl-C
    INTERRUPTED = 130
