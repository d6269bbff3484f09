"""The real application in its own process, over a feed made by hand.

``python -m tests.tui.fake_gpumon [HOSTS]`` from the repository's root: HOSTS times eight
cards, a tenth of their figures changing each second.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from gpumon.feed import FeedStatus
from gpumon.inventory import Inventory
from gpumon.snapshot import HostView
from gpumon.tui.app import GpumonApp
from tests.tui import fleet_fixture as made

__all__ = ["ChangingFeed"]


class ChangingFeed:
    """Hosts whose values move a little whenever a second has passed."""

    def __init__(self, hosts: int) -> None:
        self._random = random.Random(7)
        template = made.eight_gpus()
        self._views = [replace(template, host=f"node-{number:02}") for number in range(hosts)]
        self._second = 0

    def views(self) -> Sequence[HostView]:
        """Every host, one second older or sampled anew."""
        if int(time.time()) != self._second:
            self._second = int(time.time())
            if self._second % 2 == 0:
                self._views = [self._sampled(view) for view in self._views]
        return self._views

    def _sampled(self, view: HostView) -> HostView:
        taken = view.snapshot
        assert taken is not None
        gpus = tuple(
            replace(gpu, util_percent=float(self._random.randrange(101)))
            if gpu.util_percent is not None and self._random.random() < 0.5
            else gpu
            for gpu in taken.gpus
        )
        sample = replace(
            taken, host=view.host, gpus=gpus, received_at=time.time(), seq=taken.seq + 1
        )
        return replace(view, snapshot=sample)

    def status(self) -> FeedStatus:
        """Live."""
        return FeedStatus()

    async def take_over(self) -> bool:
        """Nothing to take."""
        return False

    async def retry(self, host: str) -> bool:
        """Nothing to retry."""
        return True


if __name__ == "__main__":
    if log := os.environ.get("GPUMON_TEST_STDERR"):
        # As the shell does for ``2>log``: __stderr__ keeps its descriptor.
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    app = GpumonApp(
        ChangingFeed(int(sys.argv[1]) if len(sys.argv) > 1 else 8), inventory=Inventory()
    )
    app.run()
    sys.exit(app.return_code)
