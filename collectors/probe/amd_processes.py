"""Processes on AMD cards: ROCm's from KFD, the others from their open files' fdinfo.

KFD's files (/sys/class/kfd/kfd/proc, as rocm-smi reads them) are open to all. fdinfo
(Documentation/gpu/drm-usage-stats.rst, kernel 5.19) tells of one's own processes, and
of all to root.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import glob
import os

from gpumon_probe_nvml_presence import pci_text, read_text

VRAM_KEYS = ("drm-resident-vram", "drm-memory-vram")


def read_processes(presence, gpus):
    """Process rows of the cards that are awake; None where neither source is there."""
    uuid_of = dict((row["pci_id"], row["uuid"]) for row in gpus if row.get("state") != "asleep")
    found = {}
    kfd = _read_kfd(presence.sysfs_root)
    for pid, pci_id, size in kfd or []:
        _add(found, pid, uuid_of.get(pci_id), "compute", size)
    for pid, pci_id, size in _read_fdinfo(presence.proc_root, uuid_of):
        _add(found, pid, uuid_of.get(pci_id), "graphics", size)
    if not gpus:
        return []
    return [
        {
            "pid": pid,
            "gpu_uuid": uuid,
            "kind": "+".join(entry["kinds"]),
            "memory_bytes": entry["size"],
            "unknown": {"sm_percent": "unsupported"},
        }
        for (pid, uuid), entry in sorted(found.items())
    ]


def _add(found, pid, uuid, kind, size):
    if uuid is None:
        return
    entry = found.setdefault((pid, uuid), {"kinds": [], "size": 0})
    if kind not in entry["kinds"]:
        entry["kinds"].append(kind)
    entry["size"] = max(entry["size"], size)


def _read_kfd(sysfs_root):
    """[(pid, pci id, bytes)]; None where there is no KFD."""
    base = os.path.join(sysfs_root, "class/kfd/kfd")
    pci_of = {}
    for node in glob.glob(os.path.join(base, "topology/nodes/*")):
        properties = {}
        for line in (read_text(node, "properties") or "").splitlines():
            name, _, value = line.partition(" ")
            if value.isdigit():
                properties[name] = int(value)
        gpu_id = read_text(node, "gpu_id")
        place = properties.get("location_id")
        if gpu_id and gpu_id != "0" and place:
            pci_of[gpu_id] = "%04x:%02x:%02x.%x" % (
                properties.get("domain", 0),
                place >> 8,
                place >> 3 & 0x1F,
                place & 7,
            )
    if not pci_of:
        return None
    rows = []
    for path in glob.glob(os.path.join(base, "proc/*/vram_*")):
        pid = os.path.basename(os.path.dirname(path))
        size = read_text(path) or ""
        gpu_id = os.path.basename(path)[len("vram_") :]
        if pid.isdigit() and size.isdigit() and gpu_id in pci_of:
            rows.append((int(pid), pci_of[gpu_id], int(size)))
    return rows


def _read_fdinfo(proc_root, uuid_of):
    """[(pid, pci id, bytes)] of processes that hold a render node open."""
    rows = []
    for folder in glob.glob(os.path.join(proc_root, "[0-9]*")):
        seen = {}
        try:
            descriptors = os.listdir(os.path.join(folder, "fd"))
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(os.path.join(folder, "fd", descriptor))
            except OSError:
                continue
            if not target.startswith("/dev/dri/"):
                continue
            client = _client(read_text(folder, "fdinfo", descriptor) or "")
            # one client may have several descriptors: its memory counts once
            if client and client[0] in uuid_of:
                seen[client[:2]] = client[2]
        total = {}
        for (pci_id, _), size in seen.items():
            total[pci_id] = total.get(pci_id, 0) + size
        rows += [(int(os.path.basename(folder)), pci, size) for pci, size in total.items()]
    return rows


def _client(text):
    """(pci id, client id, bytes of VRAM) of one fdinfo file, or None."""
    fields = dict(
        (key.strip(), value.strip())
        for key, _, value in (line.partition(":") for line in text.splitlines())
    )
    if fields.get("drm-driver") != "amdgpu" or not fields.get("drm-pdev"):
        return None
    for key in VRAM_KEYS:
        number, _, unit = fields.get(key, "").partition(" ")
        if number.isdigit():
            scale = {"": 1, "KiB": 1024, "MiB": 1024**2}.get(unit)
            if scale:
                return (
                    pci_text(fields["drm-pdev"]),
                    fields.get("drm-client-id"),
                    int(number) * scale,
                )
    return None
