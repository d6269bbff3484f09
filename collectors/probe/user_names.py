"""Names of user ids, without ever waiting for a directory service.

/etc/passwd is read at once; any other id is looked up in a thread (LDAP or SSSD may take
seconds, or for ever) and is shown as its number until then, as ``ps`` does.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import pwd
import threading

from gpumon_probe_procfs import read_text


class UserNames(object):
    """Answers at once, better later."""

    def __init__(self, passwd="/etc/passwd"):
        self.names = {}
        for line in (read_text(passwd, 1 << 20) or "").splitlines():
            parts = line.split(":")
            if len(parts) > 3 and parts[2].isdigit():
                self.names.setdefault(int(parts[2]), parts[0])
        self.asked = set()

    def name(self, uid):
        """The user's name, or the id as text while (or where) there is none."""
        if uid in self.names:
            return self.names[uid]
        if uid not in self.asked and len(self.asked) < 1000:
            self.asked.add(uid)
            thread = threading.Thread(target=self._look_up, args=(uid,), name="user")
            thread.daemon = True
            thread.start()
        return str(uid)

    def _look_up(self, uid):
        try:
            self.names[uid] = pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError, OSError):
            pass
