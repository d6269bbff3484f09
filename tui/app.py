"""The application: takes a frame from the feed each second and hands it to a screen.

Screens that are opened later are imported later, for the first paint's sake.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.filter import Monochrome, NoColor
from textual.screen import Screen

from gpumon.feed import Feed, FeedMode
from gpumon.inventory import Inventory
from gpumon.snapshot import HostView
from gpumon.text import safe
from gpumon.tui.actions import Scope, bindings
from gpumon.tui.frame import Frame, says_the_same
from gpumon.tui.rows.troubles import Trouble, troubles
from gpumon.tui.screens.base import FrameScreen
from gpumon.tui.screens.fleet import FleetScreen
from gpumon.tui.screens.too_small import TooSmallScreen, is_too_small
from gpumon.tui.terminal import TerminalDriver, is_terminal_gone
from gpumon.tui.themes import THEMES, choose_theme, defaults_for

__all__ = ["GpumonApp"]

#: Ages move once a second.
_TICK_S = 1.0
#: A new sample is on screen within this.
_PEEK_S = 0.25
_TERMINAL_CHECK_S = 2.0
#: the exit status of a shell command that a signal ended
_BY_SIGNAL = 128


class GpumonApp(App[None]):
    """The screens of gpumon over one feed.

    ``theme`` is a name from ``themes.theme_names()`` and goes before the inventory's;
    None of both lets the terminal decide. Raises ``themes.UnknownThemeError``.
    """

    CSS_PATH = "themes/gpumon.tcss"
    TITLE = "gpumon"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.EVERYWHERE)

    def __init__(
        self,
        feed: Feed,
        *,
        inventory: Inventory,
        theme: str | None = None,
        clock: Callable[[], float] = time.time,
        tick_s: float = _TICK_S,
    ) -> None:
        chosen = choose_theme(theme or inventory.theme, os.environ)
        super().__init__(driver_class=TerminalDriver)
        self.animation_level = "none"
        self._feed = feed
        self._clock = clock
        self._tick_s = tick_s
        self._frame: Frame | None = None
        self._judged: dict[str, tuple[HostView, int, list[Trouble]]] = {}
        self._first_seen: dict[tuple[str, str], float] = {}
        #: troubles of each host in the newest frame
        self.found: dict[str, list[Trouble]] = {}
        for own in THEMES:
            self.register_theme(own)
        self.theme = chosen
        if self.native_ansi_color:
            # Textual chose while its own theme was still set: greys, which are colours too.
            self._filters = [
                NoColor() if isinstance(each, Monochrome) else each for each in self._filters
            ]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """What the stylesheet needs where a theme of Textual does not say it."""
        return defaults_for(self.current_theme)

    def get_default_screen(self) -> Screen[None]:
        """The fleet, from the first paint on."""
        return FleetScreen()

    def on_mount(self) -> None:
        """Timers and signals."""
        self.set_interval(self._tick_s, self._tick)
        if self._tick_s > _PEEK_S:
            self.set_interval(_PEEK_S, self._peek)
        self.set_interval(_TERMINAL_CHECK_S, self._check_terminal)
        self.app_resume_signal.subscribe(self, self._paint_all)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._leave_by_signal, number)

    def _leave_by_signal(self, number: int) -> None:
        """Leave the alternate screen and the mouse mode before the process ends."""
        self.exit(return_code=_BY_SIGNAL + number)

    def _paint_all(self, _: App[None]) -> None:
        """After ``fg`` the alternate screen is empty, though nothing has changed here."""
        self.screen.refresh()

    def _check_terminal(self) -> None:
        """A terminal that vanished without SIGHUP would be read in a busy loop."""
        if is_terminal_gone(self._driver):
            self.exit(return_code=_BY_SIGNAL + signal.SIGHUP)

    # --- frames ----------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        """What is shown now; taken from the feed at the first call."""
        if self._frame is None:
            self._frame = self._take_frame()
        return self._frame

    def _take_frame(self) -> Frame:
        now = self._clock()
        frame = Frame(tuple(self._feed.views()), self._feed.status(), now)
        self.found = {view.host: self._troubles(view, now) for view in frame.views}
        return frame

    def _troubles(self, view: HostView, now: float) -> list[Trouble]:
        """A host's troubles; looked for again when it said something or a second went by."""
        known = self._judged.get(view.host)
        if known is None or known[1] != int(now) or not says_the_same(known[0], view):
            found = self._dated(troubles(view, now), now)
            known = self._judged[view.host] = (view, int(now), found)
        return known[2]

    def _peek(self) -> None:
        """Between two ticks: draw again where a host has said something new."""
        frame = self.frame
        if frame.paused_at is not None or frame.now > self._clock() - _PEEK_S / 2:
            return
        views = self._feed.views()
        if len(views) != len(frame.views) or not all(map(says_the_same, views, frame.views)):
            self._tick()

    def _dated(self, found: list[Trouble], now: float) -> list[Trouble]:
        """Troubles with the time they were first seen, where they do not know it."""
        dated = []
        for trouble in found:
            first = self._first_seen.setdefault((trouble.host, trouble.key), now)
            dated.append(trouble if trouble.since is not None else trouble.dated(first))
        return dated

    def _forget_resolved(self) -> None:
        now_wrong = {(t.host, t.key) for each in self.found.values() for t in each}
        for key in self._first_seen.keys() - now_wrong:
            del self._first_seen[key]

    def _tick(self) -> None:
        frame = self.frame
        if frame.paused_at is not None:
            minutes = int((self._clock() - frame.paused_at) // 60)
            if minutes != frame.paused_minutes:
                self._frame = frame.paused(frame.paused_at, minutes)
                self.show_latest()
            return
        if isinstance(self._driver, TerminalDriver) and self._driver.is_behind:
            return
        self._frame = self._take_frame()
        self._forget_resolved()
        self.show_latest()

    def show_latest(self) -> None:
        """Draw the present frame on the screen that is on top."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and screen.is_mounted:
            screen.show_frame(self.frame, self.found)

    # --- size ------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """One line instead of cut screens where the terminal is too small."""
        width, height = event.size
        top = self.screen
        if is_too_small(width, height):
            if isinstance(top, TooSmallScreen):
                top.say(width, height)
            else:
                self.push_screen(TooSmallScreen())
        elif isinstance(top, TooSmallScreen):
            self.pop_screen()

    # --- what screens ask for ----------------------------------------------------

    def open_host(self, host: str) -> None:
        """Drill down."""
        from gpumon.tui.screens.host import HostScreen

        self.push_screen(HostScreen(host))

    def show_fix(self, host: str) -> None:
        """The page with a host's cause and the command that mends it."""
        from gpumon.tui.rows.details import fix_lines
        from gpumon.tui.screens.page import PageScreen

        view = self.frame.view(host)
        if view is None:
            return
        lines = fix_lines(view, self.found.get(host, []), self.frame.now)
        title = f"{safe(host, 40)} › fix"
        self.push_screen(PageScreen(title, lines, copies=view.status.fix))

    def show_details(self, host: str, table: str, key: str) -> None:
        """The page with every field of a row's record."""
        from gpumon.tui.rows.details import record_lines, record_of
        from gpumon.tui.screens.page import PageScreen

        view = self.frame.view(host)
        found = None if view is None else record_of(view, table, key)
        if found is not None:
            title, record = found
            self.push_screen(PageScreen(f"{safe(host, 40)} › {title}", record_lines(record)))

    async def retry(self, host: str) -> None:
        """Try a host again now."""
        if await self._feed.retry(host):
            self.notify(f"trying {safe(host, 40)} again", timeout=3, markup=False)
            return
        pid = self._feed.status().collector_pid
        who = "the gpumon that collects" + (f" (process {pid})" if pid else "")
        self.notify(
            f"{safe(host, 40)}: this gpumon only shows what is recorded;"
            f" R works in {who}, which also tries by itself",
            timeout=8,
            markup=False,
        )

    # --- actions -----------------------------------------------------------------

    def action_pause(self) -> None:
        """Hold the screen still, or let it go on. Collecting goes on either way."""
        frame = self.frame
        if frame.paused_at is None:
            self._frame = frame.paused(frame.now, 0)
        else:
            self._frame = self._take_frame()
        self.show_latest()

    def action_fleet(self) -> None:
        """Back to the fleet from anywhere."""
        while len(self.screen_stack) > 1 and not isinstance(self.screen, TooSmallScreen):
            self.pop_screen()

    def action_help(self) -> None:
        """Open the help, or close it."""
        from gpumon.tui.screens.help import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        elif not isinstance(self.screen, TooSmallScreen):
            self.push_screen(HelpScreen())

    async def action_take_over(self) -> None:
        """Collect here where the gpumon that collected has died."""
        if self._feed.status().mode is not FeedMode.ORPHANED:
            return
        taken = await self._feed.take_over()
        said = "collecting here now" if taken else "the other gpumon is back: still viewing"
        self.notify(said, timeout=4)
        if self.frame.paused_at is None:
            self._frame = self._take_frame()
            self.show_latest()

    async def action_quit(self) -> None:
        """Leave with status 0."""
        self.exit(return_code=0)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette offers: themes, and what keys do everywhere."""
        yield SystemCommand("Theme", "change the colours", self.action_change_theme)
        yield SystemCommand("Fleet", "go to the fleet", self.action_fleet)
        yield SystemCommand("Pause", "hold the screen still, or go on", self.action_pause)
        yield SystemCommand("Help", "keys and signs", self.action_help)
        yield SystemCommand("Quit", "leave gpumon", self.action_quit)
        for view in self.frame.views:
            host = view.host
            yield SystemCommand(
                f"Host {safe(host, 60)}",
                "open this host",
                lambda host=host: self.open_host(host),
                discover=False,
            )
