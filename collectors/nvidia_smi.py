"""Hosts without Python: ``nvidia-smi`` and /proc by the shell, under the probe's contract.

``fallback_command`` runs ``fallback.sh`` on the host; ``SmiReader`` turns its lines into
the same hello, sample and bye records that a probe sends, with ``"source": "nvidia-smi"``
and the reason "fallback" for what can't be had this way. There is no engine reading: the
records never hold ``watched`` or ``http`` rows.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumon.collectors.probe import procfs
from gpumon.collectors.smi_rows import QUERY_FIELDS, gpu_row, lost_gpu, process_row

__all__ = ["NONCE", "SmiReader", "fallback_command"]

#: What the greeting line holds behind the record separator, unless another was given.
NONCE = "gpumon-fallback"
#: An nvidia-smi that runs longer hangs; several cards without persistence mode need 6 s
#: to wake (netdata#14522), one of 10 s was seen (netdata#18690).
_HUNG_S = 15.0
_MOST_TEXT_LINES = 8
_MOST_ROWS = 4096

#: nvidia-smi's exit status is NVML's code (telegraf#4388); 127 and 126 are the shell's.
_STATES = {
    4: "no-permission",
    9: "no-driver",
    12: "library-missing",
    18: "mismatch",
    126: "library-missing",
    127: "library-missing",
}

# The parsers run on hosts too and so carry no annotations.
_parse_cpu: Callable[..., tuple[int, int] | None] = procfs.parse_cpu
_parse_memory: Callable[..., dict[str, int]] = procfs.parse_memory
_parse_network: Callable[..., dict[str, tuple[int, int]]] = procfs.parse_network
_network_rates: Callable[..., tuple[float, float] | None] = procfs.network_rates

_UPTIME = re.compile(r"\d{1,9}(?:\.\d{1,9})?(?= |$)", re.ASCII)
#: After these a line goes on; after anything else a command ends.
_GOES_ON = re.compile(r"(?:\b(?:do|then|else|in)|[{(|;&]|\*\))$")


@functools.cache
def _script() -> str:
    """The shell script as one line: no newline survives csh's single quotes."""
    text = Path(__file__).with_name("fallback.sh").read_text(encoding="utf-8")
    joined = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if joined:
            joined += " " if _GOES_ON.search(joined) else "; "
        joined += line
    return joined


def fallback_command(
    interval_s: float, *, nonce: str = NONCE, heartbeat_timeout_s: float = 30.0
) -> str:
    """The command for a host without Python; the shell sleeps whole seconds only.

    It needs nothing on stdin but heartbeats, and ends when that closes.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", nonce):
        raise ValueError("a nonce has letters and digits only")
    given = (
        f"I={max(1, round(interval_s))}; T={max(1, round(heartbeat_timeout_s))}; "
        f"N={nonce}; Q={','.join(QUERY_FIELDS)}; "
    )
    return f"exec /bin/sh -c '{given}{_script()}'"


class SmiReader:
    """Follows the lines of one ``fallback_command``."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._hardware = "none"
        self._program: str | None = None
        self._seq = -1
        self._uptime: float | None = None
        self._round: dict[str, list[str]] = {}
        self._cpu: tuple[int, int] | None = None
        self._network: tuple[float, dict[str, tuple[int, int]]] | None = None
        self._disks: list[dict[str, Any]] = []
        self._fields: tuple[str, ...] = QUERY_FIELDS
        self._began: tuple[str, float] | None = None
        self._text: list[str] = []
        self._nvml: dict[str, Any] = {"state": "starting"}
        self._gpus: list[dict[str, Any]] = []
        self._gpus_mono: float | None = None
        self._uuids: dict[str, dict[str, Any]] = {}
        self._processes: list[dict[str, Any]] | None = None

    def read(self, line: bytes) -> dict[str, Any] | None:
        """Take one line; a hello, sample or bye record where it completes one.

        Lines without a known tag are noise and skipped. Nothing raises.
        """
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text.startswith("~") or text[2:3] not in (" ", ""):
            return None
        tag, rest = text[1:2], text[3:]
        if tag == "H":
            return self._take_fact(rest)
        if tag == "X":
            return {"t": "bye", "reason": rest}
        if tag == "E":
            return self._end_round(rest)
        if tag == "R":
            self._round = {}
        elif tag in "UCLMND" and tag:
            self._take_part(tag, rest)
        else:
            self._take_smi(tag, rest)
        return None

    # --- the machine -----------------------------------------------------------------
    def _take_fact(self, rest: str) -> dict[str, Any] | None:
        name, _, value = rest.partition(" ")
        if name == "end":
            facts = dict(self._facts, t="hello", v=1)
            count = facts.get("cpu_count", "")
            facts["cpu_count"] = int(count) if count.isdecimal() and len(count) < 9 else None
            return facts
        if value and len(self._facts) < 32:
            self._facts[name] = value
        return None

    def _take_part(self, tag: str, rest: str) -> None:
        part = self._round.setdefault(tag, [])
        if len(part) < _MOST_ROWS:
            part.append(rest)
        if tag == "U":
            match = _UPTIME.match(rest)
            self._uptime = float(match.group()) if match else None

    def _end_round(self, rest: str) -> dict[str, Any] | None:
        """The sample of a finished round; None where the host's clock is unknown."""
        if self._uptime is None or not rest.isdecimal() or len(rest) > 15:
            return None
        self._seq = int(rest)
        sample = {
            "t": "sample",
            "source": "nvidia-smi",
            "seq": self._seq,
            "mono": self._uptime,
            "wall": None,
            "system": self._system(self._uptime),
            "nvml": self._driver(self._uptime),
            "gpus": self._gpus,
            "gpus_mono": self._gpus_mono,
            "processes": self._processes,
            "watched": [],
            "http": [],
            "probe": {},
        }
        self._round = {}
        return sample

    def _system(self, mono: float) -> dict[str, Any]:
        found: dict[str, Any] = {"uptime_s": mono}
        unknown: dict[str, str] = {}
        cpu = _parse_cpu("\n".join(self._round.get("C", [])))
        before, self._cpu = self._cpu, cpu
        if cpu is None:
            unknown["cpu_percent"] = "unreadable"
        elif before is None or cpu[1] <= before[1]:
            unknown["cpu_percent"] = "not-read"
        else:
            share = 100.0 * (cpu[0] - before[0]) / (cpu[1] - before[1])
            found["cpu_percent"] = round(min(100.0, max(0.0, share)), 2)
        memory = _parse_memory("\n".join(self._round.get("M", [])))
        found.update(memory)
        try:
            loads = [float(part) for part in self._round.get("L", [""])[0].split()[:3]]
        except ValueError:
            loads = []
        if len(loads) == 3:
            found.update(zip(("load_1", "load_5", "load_15"), loads, strict=True))
        found.update(self._network_rates(mono, unknown))
        for name in (
            "memory_total_bytes", "memory_available_bytes", "swap_total_bytes",
            "swap_used_bytes", "load_1", "load_5", "load_15",
        ):  # fmt: skip
            if name not in found:
                unknown[name] = "unreadable"
        if disks := self._round.get("D"):
            self._disks = [disk for row in disks if (disk := _disk(row)) is not None]
        found["disks"] = self._disks
        found["unknown"] = unknown
        return found

    def _network_rates(self, mono: float, unknown: dict[str, str]) -> dict[str, float]:
        names = ("network_rx_bytes_per_s", "network_tx_bytes_per_s")
        lines = self._round.get("N", [])
        now = _parse_network("\n\n" + "\n".join(line[2:] for line in lines))
        real = {line[2:].partition(":")[0].strip() for line in lines if line.startswith("1")}
        wanted = [name for name in now if name in real] or [name for name in now if name != "lo"]
        before, self._network = self._network, (mono, now)
        if before is not None:
            rates = _network_rates(before[1], now, mono - before[0], wanted)
            if rates is not None:
                return dict(zip(names, (round(rate, 1) for rate in rates), strict=True))
        unknown.update(dict.fromkeys(names, "not-read" if now else "unreadable"))
        return {}

    # --- nvidia-smi ------------------------------------------------------------------
    def _take_smi(self, tag: str, rest: str) -> None:
        if tag == "V":
            program, _, self._hardware = rest.rpartition(" ")
            self._program = None if program == "none" else program
            if self._program is None:
                self._nvml = self._without_program()
                self._processes = []
        elif tag == "B":
            self._began = (rest, self._uptime or 0.0)
            self._text = []
            if rest == "asleep":
                self._began = None
                self._nvml = {"state": "asleep"}
                self._gpus, self._gpus_mono = [], self._uptime
        elif tag == "Q":
            self._fields = tuple(rest.split(",")) if rest else ()
        elif tag in ("g", "a"):
            if len(self._text) < _MOST_ROWS:
                self._text.append(rest)
        elif tag == "G":
            self._end_gpus(rest)
        elif tag == "A":
            self._began = None
            rows = (process_row(text) for text in self._text)
            if rest == "0":
                self._processes = [row for row in rows if row is not None]
            else:
                self._processes = None

    def _without_program(self) -> dict[str, Any]:
        if self._hardware == "none":
            return {"state": "absent"}
        if self._hardware == "nvidia":
            detail = "an NVIDIA card and its module, but neither Python nor nvidia-smi to read it"
            return {"state": "library-missing", "detail": detail}
        return self._no_driver()

    def _no_driver(self) -> dict[str, Any]:
        if self._hardware == "nouveau":
            return {"state": "nouveau", "detail": "the card is bound to nouveau"}
        return {"state": "no-driver", "detail": "no NVIDIA driver is bound to the card"}

    def _end_gpus(self, rest: str) -> None:
        self._began = None
        status = int(rest) if rest.isdecimal() and len(rest) < 4 else -1
        gpus: list[dict[str, Any]] = []
        versions: list[str] = []
        words: list[str] = []
        for text in self._text:
            if (found := gpu_row(text, self._fields)) is not None:
                gpus.append(found[0])
                versions += [found[1]] if found[1] else []
                if "pci_id" in found[0] and "uuid" in found[0]:
                    self._uuids[found[0]["pci_id"]] = found[0]
            elif (lost := lost_gpu(text)) is not None:
                gpus.append(self._lost_row(*lost))
            elif text.strip():
                words.append(text.strip())
        self._gpus, self._gpus_mono = gpus, self._uptime
        detail = " ".join(words[:_MOST_TEXT_LINES])[:500] or None
        if any(row["state"] == "ok" for row in gpus) or (status == 0 and gpus):
            self._nvml = {"state": "ok", "detail": detail}
        elif status == 9:
            self._nvml = dict(self._no_driver(), detail=detail)
        elif not gpus and self._hardware == "none" and (status == 6 or not words):
            self._nvml = {"state": "absent", "detail": detail}
        else:
            state = _STATES.get(status, "error")
            self._nvml = {
                "state": state,
                "detail": detail or f"nvidia-smi ended with status {status}",
            }
        if versions:
            self._nvml["driver_version"] = versions[0]

    def _lost_row(self, pci_id: str, detail: str) -> dict[str, Any]:
        known = self._uuids.get(pci_id, {})
        row: dict[str, Any] = {"uuid": pci_id}
        row.update((name, known[name]) for name in ("uuid", "index", "name") if name in known)
        row.update(pci_id=pci_id, state="lost", detail=detail)
        return row

    def _driver(self, mono: float) -> dict[str, Any]:
        """The driver's state now: an nvidia-smi that does not come back hangs."""
        if self._began is not None and mono - self._began[1] > _HUNG_S:
            call = f"nvidia-smi ({self._began[0]})"
            waited = round(mono - self._began[1], 1)
            return dict(self._nvml, state="hung", hung_s=waited, hung_call=call)
        return self._nvml


def _disk(row: str) -> dict[str, Any] | None:
    """A ``Disk`` from a line of ``df -Pk`` (POSIX: blocks of 1024 bytes)."""
    cells = row.split(None, 5)
    if len(cells) != 6 or not cells[1].isdecimal() or not cells[3].isdecimal():
        return None
    return {
        "path": cells[5],
        "total_bytes": int(cells[1]) * 1024,
        "free_bytes": int(cells[3]) * 1024,
    }
