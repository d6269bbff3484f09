"""Makes probe modules importable that exist only as text in memory.

Every file of this folder is known on the host as ``gpumon_probe_<file>``; that is also
how they import each other, so no relative import is needed and nothing is written to
the host's disk. ``pynvml`` is known by its own name. A module is compiled when it is
first imported: ``pynvml`` costs 0.1 s and 10 MB, and a host without an NVIDIA driver
never imports it.

The payload begins with this file's text. In the source tree (tests, benchmarks)
``gpumon.collectors.payload.install_probe_modules`` uses the same finder.
"""

import binascii
import sys
import zlib
from importlib.machinery import ModuleSpec


class SourceFinder(object):
    """A finder and loader over ``{module name: text, or base64 of zlib of text}``."""

    def __init__(self, sources, packed=None):
        self.sources = dict(sources)
        self.packed = dict(packed or {})

    def source_of(self, name):
        """The text of a module as bytes or str; KeyError for one that is not carried."""
        if name in self.packed:
            return zlib.decompress(binascii.a2b_base64(self.packed[name]))
        return self.sources[name]

    def find_spec(self, name, path=None, target=None):
        """Import protocol: a spec for what is carried, else None."""
        if name in self.sources or name in self.packed:
            return ModuleSpec(name, self, origin="gpumon payload")
        return None

    def create_module(self, spec):
        """Import protocol: the default module will do."""
        return

    def exec_module(self, module):
        """Import protocol: compile without docstrings (they would stay in memory) and run."""
        name = module.__name__
        code = compile(self.source_of(name), "<%s>" % name, "exec", 0, True, 2)
        exec(code, module.__dict__)

    def install(self):
        """Come before the host's own modules, so that a strange pynvml there is not used."""
        sys.meta_path.insert(0, self)
