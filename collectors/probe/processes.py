"""The processes that matter: those that look like an engine, and those on a GPU.

Looking at every process each time would cost more than all else together: a process is
looked at when it is new (and, as it may still exec, for some seconds more), then every
15th time in turn. Runs on the host under Python 3.6 or newer, standard library only.
"""

import collections
import os
import re
import time

from gpumon_probe_cgroup import container_of, group_of
from gpumon_probe_listening import listening_ports
from gpumon_probe_process_files import TICKS_PER_S, ProcessFiles
from gpumon_probe_redact import may_send_variable, redact_argv, redact_text
from gpumon_probe_user_names import UserNames

#: A process that is younger may still exec or set its title.
YOUNG_S = 10.0
#: Everything else is looked at once in this many rounds.
ROUNDS = 15
MOST_NEW_A_ROUND = 400
MOST_WATCHED = 256
MOST_ANCESTORS = 16
#: An ancestor is sent to be recognised by its first words, once per descendant.
MOST_ANCESTOR_ARGUMENTS = 32
MOST_ANCESTOR_ARGUMENT_CHARACTERS = 512
MOST_ARGUMENT_CHARACTERS = 4096
MOST_COMMAND_CHARACTERS = 1024
_CLOCK_BOOTTIME = 7  # not named in Python 3.6

#: What is read of /proc for a process on a GPU; None and a reason where it can't be.
GPU_FIELDS = (
    "start_ticks",
    "user",
    "name",
    "command",
    "container",
    "parent_pid",
    "started_s_ago",
    "cpu_percent",
    "rss_bytes",
)


def boot_age_s():
    """Seconds since boot, sleep included: what start_ticks counts from."""
    try:
        return time.clock_gettime(_CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        return time.monotonic()


def compile_all(patterns):
    """Compiled patterns; one that does not compile is left out."""
    compiled = []
    for pattern in patterns or ():
        try:
            compiled.append(re.compile(pattern))
        except (re.error, TypeError):
            continue
    return compiled


class Details(object):
    """What seldom changes about a process; read anew now and then."""

    def __init__(self):
        self.read_at = None
        self.ppid = None
        self.user = None
        self.argv = []
        self.cgroup = ""
        self.environment = None
        self.ports = None
        self.ancestors = []


class ProcessTable(object):
    """All of it. One thread only may call it."""

    def __init__(self, files=None, names=None):
        self.files = files or ProcessFiles()
        self.names = names or UserNames()
        self.own_pid = os.getpid()
        self.slow_every_s = 10.0
        self.patterns = []
        self.env_patterns = []
        self._forget()

    def _forget(self):
        self.known = set()
        self.turn = collections.deque()
        self.young = {}
        self.watched = set()
        self.stats = {}
        self.usage = {}
        self.details = {}
        self.foreign = {}
        self.why_absent = None
        self.last_set = frozenset()

    def configure(self, watch, env_names, slow_every_s):
        """Set what to look for; everything is looked at again when that changed."""
        self.slow_every_s = slow_every_s
        patterns = compile_all(watch)
        env_patterns = compile_all(env_names)
        if patterns != self.patterns or env_patterns != self.env_patterns:
            self.patterns, self.env_patterns = patterns, env_patterns
            self._forget()

    def read(self, mono, gpu_rows, others=()):
        """One round at ``mono``: (watched rows, GPU rows with details, changed, CPU percents).

        ``gpu_rows`` are the driver's and stay untouched; None stays None. ``CPU percents``
        maps the pids seen, and ``others``, to percent of one core. ``changed`` is True when
        other processes are watched than in the round before.
        """
        self.stats = {}
        self._scan(mono)
        keep = set(self.watched)
        watched = [self._watched_row(pid, mono) for pid in sorted(self.watched)]
        described = None
        if gpu_rows is not None:
            described = [self._describe(row, mono) for row in gpu_rows]
            keep.update(row["pid"] for row in gpu_rows if isinstance(row.get("pid"), int))
        keep.update(others)
        for pid in others:
            stat = self._stat(pid)
            if stat is not None:
                self._cpu_percent(pid, stat, mono)
        for store in (self.usage, self.details):
            for pid in [pid for pid in store if pid not in keep]:
                del store[pid]
        percents = dict((pid, used[3]) for pid, used in self.usage.items() if used[2] == mono)
        now = frozenset((row["pid"], row["start_ticks"]) for row in watched)
        changed, self.last_set = now != self.last_set, now
        return watched, described, changed, percents

    # --- finding ---------------------------------------------------------------------
    def _scan(self, mono):
        alive = set(self.files.pids())
        alive.discard(self.own_pid)
        first_round = not self.known
        if self.patterns:
            fresh = [pid for pid in alive if pid not in self.known]
            if not first_round:
                fresh = fresh[:MOST_NEW_A_ROUND]
            for pid in fresh:
                self.known.add(pid)
                self.turn.append(pid)
                if not first_round:
                    self.young[pid] = mono + YOUNG_S
                self._examine(pid)
        for pid in [pid for pid in self.young if pid not in alive or mono >= self.young[pid]]:
            del self.young[pid]
        for pid in self.young:
            self._examine(pid)
        for _ in range(max(20, len(self.turn) // ROUNDS) if not first_round else 0):
            if not self.turn:
                break
            pid = self.turn.popleft()
            if pid in alive:
                self.turn.append(pid)
                if pid not in self.young:
                    self._examine(pid)
            else:
                self.known.discard(pid)
        self.known &= alive
        if len(self.turn) > 2 * len(self.known) + 100:
            self.turn = collections.deque(self.known)  # numbers that were used twice
        for pid in list(self.watched):
            stat = self._stat(pid) if pid in alive else None
            usage = self.usage.get(pid)
            if stat is None or stat.state in "ZX":
                self.watched.discard(pid)
            elif usage is not None and usage[0] != stat.start_ticks:
                self._examine(pid)  # the number belongs to another process now

    def _examine(self, pid):
        """Watch the process if its names or command line match."""
        argv = self.files.argv(pid)
        wanted = False
        if argv:
            texts = (self.files.comm(pid), argv[0].rpartition("/")[2], " ".join(argv))
            wanted = any(p.search(text) for p in self.patterns for text in texts)
        if wanted and (pid in self.watched or len(self.watched) < MOST_WATCHED):
            if pid not in self.watched:
                self.details.pop(pid, None)
            self.watched.add(pid)
        else:
            self.watched.discard(pid)

    # --- reading ---------------------------------------------------------------------
    def _stat(self, pid):
        if pid not in self.stats:
            self.stats[pid] = self.files.stat(pid)
        return self.stats[pid]

    def _cpu_percent(self, pid, stat, mono):
        """Percent of one core since the last round; None at first sight."""
        before = self.usage.get(pid)
        if before is not None and before[0] == stat.start_ticks:
            if before[2] == mono:
                return before[3]
            seconds = mono - before[2]
            percent = round(max(0.0, 100.0 * (stat.ticks - before[1]) / TICKS_PER_S / seconds), 1)
        else:
            percent = None
            self.details.pop(pid, None)
        self.usage[pid] = (stat.start_ticks, stat.ticks, mono, percent)
        return percent

    def _details_of(self, pid, stat, mono, whole):
        found = self.details.get(pid)
        if found is None:
            found = self.details[pid] = Details()
        age = boot_age_s() - stat.start_ticks / float(TICKS_PER_S)
        if (
            found.read_at is None
            or found.ppid != stat.ppid
            or age < YOUNG_S * 3
            or mono - found.read_at >= self.slow_every_s
        ):
            found.read_at = mono
            found.ppid = stat.ppid
            found.argv = self._redacted(pid)
            if found.user is None or found.user.isdigit():
                uid = self.files.uid(pid)
                found.user = None if uid is None else self.names.name(uid)
            found.cgroup = self.files.cgroup(pid)
            if whole:
                found.environment = self._environment(pid)
                found.ports = listening_ports(self.files.path(pid))
                found.ancestors = self._ancestors(stat.ppid)
        return found

    def _is_foreign(self, pid, stat):
        key = (pid, stat.start_ticks)
        if key not in self.foreign:
            if len(self.foreign) > 1000:
                self.foreign.clear()
            self.foreign[key] = self.files.is_foreign(pid)
        return self.foreign[key]

    def _redacted(self, pid):
        # cut first: a secret's second half must not start anew as a harmless word
        cut = [argument[:MOST_ARGUMENT_CHARACTERS] for argument in self.files.argv(pid)]
        return redact_argv(cut)

    def _environment(self, pid):
        everything = self.files.environment(pid)
        if everything is None:
            return None
        return dict(
            (name, redact_text(value[:MOST_COMMAND_CHARACTERS]))
            for name, value in everything.items()
            if may_send_variable(name) and any(p.fullmatch(name) for p in self.env_patterns)
        )

    def _ancestors(self, pid):
        found = []
        while pid > 0 and len(found) < MOST_ANCESTORS:
            stat = self._stat(pid)
            if stat is None:
                break
            cut = [text[:MOST_ANCESTOR_ARGUMENT_CHARACTERS] for text in self._redacted(pid)]
            cut = cut[:MOST_ANCESTOR_ARGUMENTS]
            found.append({"pid": pid, "comm": stat.comm, "cmd": cut})
            pid = stat.ppid
        return found

    # --- rows ------------------------------------------------------------------------
    def _watched_row(self, pid, mono):
        stat = self._stat(pid)
        percent = self._cpu_percent(pid, stat, mono)
        details = self._details_of(pid, stat, mono, True)
        return {
            "pid": pid,
            "ppid": stat.ppid,
            "start_ticks": stat.start_ticks,
            "user": details.user,
            "comm": stat.comm,
            "cmd": details.argv,
            "cgroup": group_of(details.cgroup),
            "cpu_percent": percent,
            "rss_bytes": stat.rss_bytes,
            "ports": details.ports,
            "env": details.environment,
            "ancestors": details.ancestors,
        }

    def _describe(self, row, mono):
        """The driver's row with what /proc says of the same process."""
        row = dict(row)
        unknown = dict(row.get("unknown") or {})
        pid = row.get("pid")
        stat = self._stat(pid) if isinstance(pid, int) else None
        if stat is not None and self._is_foreign(pid, stat):
            stat = None
        if stat is None:
            if self.why_absent is None:
                self.why_absent = self.files.why_absent()
            reason = self.why_absent
            for name in GPU_FIELDS:
                row.setdefault(name, None)
                if row[name] is None:
                    unknown.setdefault(name, reason)
        else:
            percent = self._cpu_percent(pid, stat, mono)
            details = self._details_of(pid, stat, mono, pid in self.watched)
            age = boot_age_s() - stat.start_ticks / float(TICKS_PER_S)
            row.update(
                start_ticks=stat.start_ticks,
                user=details.user,
                name=(details.argv[0].rpartition("/")[2] if details.argv else "") or stat.comm,
                command=" ".join(details.argv)[:MOST_COMMAND_CHARACTERS] or None,
                container=container_of(details.cgroup),
                parent_pid=stat.ppid,
                started_s_ago=round(max(0.0, age), 1),
                cpu_percent=percent,
                rss_bytes=stat.rss_bytes,
            )
            for name, reason in (
                ("cpu_percent", "not-read"),
                ("user", "hidden"),
                ("command", "unreadable"),
            ):
                if row[name] is None:
                    unknown[name] = reason
        row["unknown"] = unknown
        return row
