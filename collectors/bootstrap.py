"""The commands that start a probe on a host.

The command only loads: it reads ``b"%d\\n" % length`` and then exactly that many bytes
from stdin, inflates and runs them. (``python3 -`` would wait for the end of stdin.)
Neither command holds a backslash, ``!``, ``%`` or newline, and the loader no quote at
all, so that sh, bash, dash, busybox, fish and tcsh hand them on unchanged; the plain one
has no single quote and no ``$`` either, which also suits restricted shells.

``-I -S`` keeps the host's own packages, ``PYTHON*`` variables and start-up files out, and
halves the start-up time.
"""

from __future__ import annotations

__all__ = ["NO_PYTHON_EXIT", "bootstrap_command", "plain_command"]

#: Exit status of the bootstrap where no Python 3.6 or newer was found.
NO_PYTHON_EXIT = 97

#: Tried in this order. ``platform-python`` is RHEL 8's, which is not on the PATH; an ssh
#: session without a login often has a short PATH.
_CANDIDATES = (
    "python3",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/usr/libexec/platform-python",
    "/opt/conda/bin/python3",
    "/opt/homebrew/bin/python3",
    "python",
)

#: A buffer of one byte never reads ahead of the payload, so that what follows on stdin
#: is left for the probe.
_LOADER = (
    "import io,sys,zlib;"
    "r=io.BufferedReader(sys.stdin.buffer.raw,1);"
    "exec(zlib.decompress(r.read(int(r.readline()))))"
)
#: Distributions split parts of the standard library off; without these it can't run.
_CHECK = "import sys,zlib,json,socket,select,threading;sys.exit(sys.version_info<(3,6))"


def bootstrap_command() -> str:
    """The usual command: finds a Python 3.6 or newer, else exits with ``NO_PYTHON_EXIT``."""
    return (
        "exec /bin/sh -c '"
        f"for p in {' '.join(_CANDIDATES)};do "
        f'"$p" -ISc "{_CHECK}" </dev/null >/dev/null 2>&1 && exec "$p" -ISuc "{_LOADER}";'
        f"done;exit {NO_PYTHON_EXIT}'"
    )


def plain_command() -> str:
    """For shells that refuse ``exec`` and paths (rbash): python3 from the PATH, or nothing.

    Exits with the shell's own 127 where there is none; an older Python than 3.6 fails
    with ``NO_PYTHON_EXIT`` when it runs the payload.
    """
    return f'python3 -ISuc "{_LOADER}"'
