"""Calls into NVIDIA's library through nvidia-ml-py: one at a time, each refusal with a reason.

nvidia-ml-py (the module ``pynvml``) travels beside this one. It does not fall back
to older symbols, decodes names as strict UTF-8 and looks for the library under one
name only; what is added here makes up for that.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import ctypes
import os
import re
import time

UNINITIALIZED, UNSUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, NO_LIBRARY, NO_FUNCTION = 9, 10, 12, 13
LOST, RESET_REQUIRED, OPERATING_SYSTEM, MISMATCH, NO_DATA, UNKNOWN = 15, 16, 17, 18, 21, 999

#: NVML return code -> reason code of gpumon/snapshot.py
REASON_OF_CODE = {
    2: "unsupported",
    UNSUPPORTED: "unsupported",
    NO_PERMISSION: "no-permission",
    NOT_FOUND: "no-data",
    TIMEOUT: "timeout",
    NO_FUNCTION: "no-symbol",
    LOST: "lost",
    RESET_REQUIRED: "reset-required",
    OPERATING_SYSTEM: "no-permission",
    NO_DATA: "no-data",
    25: "no-symbol",
    26: "unsupported",
    27: "no-data",
    28: "not-visible",
}

#: after the loader's own search: WSL, NixOS, container toolkit, Debian, GKE/COS, GPU operator
LIBRARY_FOLDERS = (
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib64",
    "/usr/lib",
    "/home/kubernetes/bin/nvidia/lib64",
    "/var/lib/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
)
LIBRARY_NAME = "libnvidia-ml.so.1"


class RefusedError(Exception):
    """The library answered with an error; ``code`` is NVML's, ``reason`` is gpumon's."""

    def __init__(self, code):
        Exception.__init__(self, "NVML code %d" % code)
        self.code = code
        self.reason = REASON_OF_CODE.get(code, "driver-error")


class LibraryMissingError(Exception):
    """No usable libnvidia-ml.so.1 was found; the text says what was tried."""


class Driver(object):
    """The library, and the call that is under way.

    ``call`` is (name, monotonic second) while a call runs, else None: another
    thread sees by it that the driver hangs.
    """

    def __init__(self):
        self.call = None
        self.library_path = None
        self._library = None
        #: names asked for, found or not: a test holds them against a driver's exports
        self.asked = set()

    @property
    def pynvml(self):
        """The nvidia-ml-py module, imported where it is first used."""
        import pynvml

        return pynvml

    def open_library(self, extra_paths=()):
        """Load the first usable library; raise LibraryMissingError where there is none."""
        tried = []
        places = [_library_in(path) for path in extra_paths] + [LIBRARY_NAME]
        places += [os.path.join(folder, LIBRARY_NAME) for folder in LIBRARY_FOLDERS]
        for place in places:
            if os.sep in place and not os.path.exists(place):
                continue
            self.call = ("dlopen", time.monotonic())
            try:
                library = ctypes.CDLL(place)
            except OSError as error:
                if "No such file" not in str(error):
                    tried.append(str(error))
                continue
            finally:
                self.call = None
            path = _mapped_path() or place
            # The CUDA toolkit's stub answers nothing and prints a banner.
            if "/stubs/" in path:
                tried.append("%s is the CUDA toolkit's stub" % path)
                _unload(library)
                continue
            try:
                self.pynvml.nvmlLib = library
                self.pynvml._nvmlGetFunctionPointer_cache.clear()
            except ImportError:
                _unload(library)
                raise LibraryMissingError("%s is there, but nvidia-ml-py was not sent along" % path)
            self.library_path, self._library = path, library
            _give_memory_back()
            return
        raise LibraryMissingError(
            "; ".join(tried) or "libnvidia-ml.so.1 is in none of the known places"
        )

    def close_library(self):
        """Unload a library whose init failed, so that a newer file can be loaded later."""
        self.pynvml.nvmlLib = None
        self.pynvml._nvmlGetFunctionPointer_cache.clear()
        if self._library is not None:
            _unload(self._library)
        self._library = None

    def library_version(self):
        """The version in the library's file name, or None."""
        real = os.path.realpath(self.library_path or "")
        match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", real)
        return match.group(1) if match else None

    def ask(self, name, *args):
        """Call nvidia-ml-py's function of that name; raise RefusedError."""
        function = getattr(self.pynvml, name, None)
        self.asked.add(name)
        if function is None:
            raise RefusedError(NO_FUNCTION)
        self.call = (name, time.monotonic())
        try:
            return function(*args)
        except self.pynvml.NVMLError as error:
            # "success" as an error: a call that found nothing
            raise RefusedError(error.value or NO_DATA)
        except UnicodeDecodeError:
            raise RefusedError(UNKNOWN)
        except (
            AttributeError,
            TypeError,
            getattr(self.pynvml, "NVMLLibraryMismatchError", RefusedError),
        ):
            raise RefusedError(NO_FUNCTION)
        finally:
            self.call = None

    def raw(self, symbol, *args):
        """Call the C function itself and give back its return code."""
        self.asked.add(symbol)
        try:
            function = self.pynvml._nvmlGetFunctionPointer(symbol)
        except self.pynvml.NVMLError as error:
            return error.value
        self.call = (symbol, time.monotonic())
        try:
            return function(*args)
        finally:
            self.call = None

    def first(self, *calls):
        """The first of several calls that answers: newest symbol first.

        Each call is (name, argument, ...). A lost card ends the search. What is raised
        in the end is the refusal that says most: a missing symbol says least.
        """
        telling = RefusedError(NO_FUNCTION)
        for call in calls:
            try:
                return self.ask(*call)
            except RefusedError as refusal:
                if is_gone(refusal):
                    raise
                if refusal.code != NO_FUNCTION:
                    telling = refusal
        raise telling

    def text(self, symbol, handle=None, size=96):
        """A text of the driver; bytes that are not UTF-8 become U+FFFD."""
        buffer = ctypes.create_string_buffer(size)
        args = (buffer, ctypes.c_uint(size))
        rc = self.raw(symbol, *(args if handle is None else (handle,) + args))
        if rc:
            raise RefusedError(rc)
        return buffer.value.decode("utf-8", "replace")


def is_gone(refusal):
    """True where the refusal is about the whole card or library, not about one value."""
    return refusal.code in (UNINITIALIZED, LOST, RESET_REQUIRED)


def _library_in(path):
    return os.path.join(path, LIBRARY_NAME) if os.path.isdir(path) else path


def _mapped_path():
    """Where the loader found the library (it is asked for by name alone)."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if "libnvidia-ml.so" in path:
                    return "/" + path
    except OSError:
        pass
    return None


def _give_memory_back():
    """Compiling nvidia-ml-py leaves 11 MB free that glibc keeps unless it is told."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass  # another C library


def _unload(library):
    try:
        import _ctypes

        _ctypes.dlclose(library._handle)
    except (ImportError, OSError, AttributeError):
        pass
