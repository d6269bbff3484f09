"""Work that may hang, in a thread that nobody waits for longer than told.

Reading the command line of a process that is stuck in a driver, or the size of a file
system whose server is gone, may never return. Runs on the host under Python 3.6 or newer,
standard library only.
"""

import threading
import time


class Worker(object):
    """Calls ``work(argument)`` when asked; keeps the newest result."""

    def __init__(self, work, on_error):
        self.work = work
        self.on_error = on_error
        self.condition = threading.Condition()
        self.argument = None
        self.asked = 0
        self.done = 0
        self.value = None
        self.asked_at = None
        thread = threading.Thread(target=self._run, name=getattr(work, "__name__", "worker"))
        thread.daemon = True
        thread.start()

    def ask(self, argument):
        """Start anew; False while the last call has not returned."""
        with self.condition:
            if self.asked != self.done:
                return False
            self.asked += 1
            self.asked_at = time.monotonic()
            self.argument = argument
            self.condition.notify_all()
            return True

    def result(self, wait_s):
        """(newest value, seconds the call in progress has taken or 0.0).

        Waits at most ``wait_s`` for it. The value is None before the first return.
        """
        until = time.monotonic() + wait_s
        with self.condition:
            while self.asked != self.done:
                left = until - time.monotonic()
                if left <= 0:
                    return self.value, time.monotonic() - self.asked_at
                self.condition.wait(left)
            return self.value, 0.0

    def _run(self):
        while True:
            with self.condition:
                while self.asked == self.done:
                    self.condition.wait()
                argument = self.argument
            try:
                value = self.work(argument)
            except Exception as error:
                self.on_error(error)
                value = None
            with self.condition:
                if value is not None:
                    self.value = value
                self.done = self.asked
                self.condition.notify_all()
