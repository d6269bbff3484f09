"""XID errors: waited for in a thread of their own, for the waiting blocks.

Nothing is known of errors from before the registration. The wait is the one driver
call that runs beside the reader's own; it is not begun while those do not return.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import ctypes
import threading

from gpumon_probe_nvml_driver import TIMEOUT, Driver, RefusedError, is_gone

XID_EVENT = 0x8
WAIT_MS = 1000
#: after a wait that failed at once
PAUSE_S = 5.0


class XidWatcher(object):
    """Waits for XIDs of some cards; ``newest`` is uuid -> the latest one."""

    def __init__(self, driver, reader_hangs):
        self.newest = {}
        #: uuid -> reason, where a card has no such events
        self.unknown = {}
        self._driver = driver
        self._reader_hangs = reader_hangs
        self._event_set = None
        self._uuid_of = {}
        self._stop = threading.Event()
        self._thread = None

    def start(self, cards):
        """Register the cards (in the reader's thread) and begin to wait."""
        try:
            self._event_set = self._driver.ask("nvmlEventSetCreate")
        except RefusedError as refusal:
            self.unknown = dict((card.uuid, refusal.reason) for card in cards)
            return
        for card in cards:
            try:
                self._driver.ask(
                    "nvmlDeviceRegisterEvents", card.handle, XID_EVENT, self._event_set
                )
            except RefusedError as refusal:
                self.unknown[card.uuid] = refusal.reason
                continue
            self._uuid_of[_address(card.handle)] = card.uuid
        if self._uuid_of:
            self._thread = threading.Thread(target=self._wait, name="xid")
            self._thread.daemon = True
            self._thread.start()

    def stop(self, timeout_s=5.0):
        """End the waiting; False where the driver does not give the thread back."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        if self._event_set is not None:
            self._driver.raw("nvmlEventSetFree", self._event_set)
            self._event_set = None
        return True

    def _wait(self):
        # its own record of the call under way: the reader's must not be overwritten
        driver = Driver()
        while not self._stop.is_set():
            if self._reader_hangs():
                self._stop.wait(PAUSE_S)
                continue
            try:
                event = driver.ask("nvmlEventSetWait_v2", self._event_set, WAIT_MS)
            except RefusedError as refusal:
                if refusal.code != TIMEOUT or is_gone(refusal):
                    self._stop.wait(PAUSE_S)
                continue
            uuid = self._uuid_of.get(_address(event.device))
            if uuid is not None and event.eventType & XID_EVENT:
                self.newest[uuid] = int(event.eventData)


def _address(handle):
    return ctypes.cast(handle, ctypes.c_void_p).value
