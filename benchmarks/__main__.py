"""``python -m benchmarks [NAME ...] [--quick]``: figures beside their budgets.

A figure is of this machine at this moment; nothing fails here by being slow.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys

from benchmarks.figures import table

#: in the order of the printed table
NAMES = ("startup", "tui_cost", "collector", "host_loss", "probe", "store")


def main() -> int:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="shorter runs, rougher figures")
    given = parser.parse_args()
    wrong = [name for name in given.names if name not in NAMES]
    if wrong:
        parser.error(f"no benchmark is called {wrong[0]}; there are {', '.join(NAMES)}")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} at the start"
    )
    failed = 0
    for name in given.names or NAMES:
        print(f"\n{name}", flush=True)
        module = importlib.import_module(f"benchmarks.{name}")
        try:
            figures = module.measure(quick=given.quick)
        except Exception as error:
            failed += 1
            print(f"  failed: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        for line in table(figures):
            print(f"  {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
