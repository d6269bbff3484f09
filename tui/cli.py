"""The ``gpumon`` command: picks a subcommand, and turns what goes wrong into one line."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType

from gpumon.errors import GpumonError
from gpumon.tui.exit_codes import ExitCode
from gpumon.tui.options import parse_arguments

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run gpumon; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or os.environ.get("GPUMON_DEBUG") == "1"
    if not debug and not sys.warnoptions:
        # What a library has to say to its callers is not for who reads a host's name.
        warnings.simplefilter("ignore")
    try:
        with _ended_by_signals():
            try:
                return _run(arguments)
            finally:
                # Here, where a full disk or a closed pipe can still be told.
                sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone: no more may be written, not even at exit.
        _drop_output()
        return ExitCode.OK
    except GpumonError as error:
        if debug:
            raise
        _tell(error)
        return error.exit_code
    except OSError as error:
        if debug:
            raise
        _drop_output()
        what = f"{error.filename}: " if error.filename else ""
        _say(f"{what}{error.strerror or error}")
        return ExitCode.USAGE
    except Exception as error:
        if debug:
            raise
        _log_bug()
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        _say(f"this is a mistake in gpumon: {said}; run it again with --debug, and report it")
        return ExitCode.HOST_FAILED


def _run(arguments: Sequence[str]) -> int:
    # A terminal that can't show a character gets another one, not an error.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = parse_arguments(arguments)
    if options.typo is not None:
        from gpumon.tui.commands.typos import refuse_typo

        refuse_typo(options)
    module = importlib.import_module(f"gpumon.tui.commands.{options.command}")
    return int(module.run(options))


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP clean up on their way out, as Ctrl-C does.

    Not where they are ignored: ``nohup`` asks for that.
    """

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {
        number: signal.signal(number, leave)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(error: GpumonError) -> None:
    *most, last = str(error).splitlines() or [""]
    for line in most:
        _say(line)
    _say(f"{last}; {error.fix}" if error.fix else last)


def _say(line: str) -> None:
    from gpumon.text import safe

    with contextlib.suppress(OSError):
        print(f"gpumon: {safe(line)}", file=sys.stderr)


def _log_bug() -> None:
    import logging

    if logging.getLogger().handlers:
        logging.getLogger(__name__).exception("a mistake in gpumon")


def _drop_output() -> None:
    """Let what is still buffered go nowhere, for Python would try again at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
