"""Make every picture in this folder, from real hosts that the tests' rig raises.

``python -m screenshots.make`` (as root; takes half a minute). An SVG is what the terminal
app itself draws; only the fonts it would fetch from the network are taken out of it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gpumon.config_file import load_config
from gpumon.snapshot import EngineState, HostState, HostView, NvmlState
from gpumon.tui.app import GpumonApp
from gpumon.tui.feeds import SwitchingFeed
from tests.rig.fleet import RigFleet

HERE = Path(__file__).parent
SIZES = ((80, 24), (120, 40))
#: Hosts of the rig that tell most on one page; the first has a screen of its own.
HOSTS = ("berlin-1", "ams-mig", "cpu-vps", "no-python", "hung", "tarpit", "refused", "changed-key")
_SETTLE_S = 45.0
#: Two requests on the CPU host, so that its slots have something to show.
_TALK = """
import sys, threading, urllib.request
def talk(port):
    body = b'{"prompt": "hello", "n_predict": 6000, "ignore_eos": true}'
    while True:
        urllib.request.urlopen("http://127.0.0.1:%s/completion" % port, body).read()
for port in sys.argv[1:]:
    threading.Thread(target=talk, args=(port,)).start()
"""
_FONT = re.compile(r"@font-face\s*\{[^}]*\}\s*", re.DOTALL)


def is_settled(view: HostView) -> bool:
    """True once a host has nothing more to say than new figures."""
    if view.status.state in (HostState.DOWN, HostState.BLOCKED):
        return view.status.cause != "none"
    snapshot = view.snapshot
    return (
        snapshot is not None
        and snapshot.seq >= 3
        and snapshot.nvml.state is not NvmlState.STARTING
        and all(one.state is not EngineState.STARTING for one in snapshot.engines)
        and (view.host != "hung" or snapshot.nvml.hung_s is not None)
    )


async def draw(feed: SwitchingFeed, rig: RigFleet, width: int, height: int) -> None:
    """Save the fleet and a GPU and a CPU host at one size."""
    inventory = load_config(rig.write_config(), required=True)
    app = GpumonApp(feed, inventory=inventory, theme="dark")
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause(1.5)
        save(app, f"fleet-{width}x{height}")
        for name, downs in (
            ("host", HOSTS.index("berlin-1")),
            ("cpu-host", HOSTS.index("cpu-vps")),
        ):
            await pilot.press("home", *["down"] * downs, "enter")
            await pilot.pause(1.5)
            save(app, f"{name}-{width}x{height}")
            await pilot.press("escape")


def save(app: GpumonApp, name: str) -> None:
    """Write one picture."""
    svg = _FONT.sub("", app.export_screenshot(title="gpumon"))
    # Which machine drew the picture is nobody's business.
    svg = svg.replace(os.uname().release, "6.12.0-amd64")
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"{name}.svg", file=sys.stderr)


async def main() -> None:
    """Raise the fleet, wait until every host has settled, draw."""
    with (
        tempfile.TemporaryDirectory(prefix="gpumon-shots-") as folder,
        RigFleet(Path(folder), only=HOSTS) as rig,
    ):
        os.environ.update(rig.environment)
        inventory = load_config(rig.write_config(), required=True)
        feed = SwitchingFeed(inventory, Path(folder) / "gpumon.db", named=False)
        feed.start()
        words = [str(rig.folder / "cpu-vps/bin/python3"), "-ISc", _TALK]
        words += [str(model.port) for model in rig.models]
        talking = rig.hosts["cpu-vps"].run_inside(words, stderr=subprocess.DEVNULL)
        try:
            waited_s = 0.0
            while waited_s < _SETTLE_S and not all(map(is_settled, feed.views())):
                await asyncio.sleep(0.5)
                waited_s += 0.5
            for width, height in SIZES:
                await draw(feed, rig, width, height)
        finally:
            talking.kill()
            await feed.close()


if __name__ == "__main__":
    asyncio.run(main())
