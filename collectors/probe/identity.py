"""What does not change while a probe lives: the hello line.

Runs on the host under Python 3.6 or newer, standard library only.
"""

import os
import re
import sys

from gpumon_probe_cgroup import container_of
from gpumon_probe_procfs import read_text


def describe_host(proc="/proc", etc="/etc", root="/"):
    """``HostFacts``' fields, and the probe's pid and the host's boot id."""
    system = os.uname()
    return {
        "hostname": system.nodename or None,
        "os": os_name(etc) or system.sysname,
        "kernel": system.release,
        "cpu_model": cpu_model(proc) or system.machine,
        "cpu_count": os.cpu_count(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "container": container_kind(proc, root),
        "pid": os.getpid(),
        "boot_id": (read_text(os.path.join(proc, "sys/kernel/random/boot_id")) or "").strip()
        or None,
    }


def os_name(etc="/etc"):
    """The distribution's own name for itself (os-release(5)), or None."""
    for line in (read_text(os.path.join(etc, "os-release")) or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip("\"'") or None
    return None


def cpu_model(proc="/proc"):
    """The processor's name, or None; ARM boards say it in the device tree."""
    text = read_text(os.path.join(proc, "cpuinfo"), 16384) or ""
    match = re.search(r"^(?:model name|Hardware|cpu model|cpu)\s*:\s*(.+)$", text, re.M)
    if match:
        return " ".join(match.group(1).split())
    tree = read_text(os.path.join(proc, "device-tree/model"))
    return tree.strip("\0 \n") or None if tree else None


def container_kind(proc="/proc", root="/"):
    """docker, podman, kubernetes, lxc, wsl, ...: what the probe itself runs in, or None.

    Marks: /.dockerenv, podman's /run/.containerenv, systemd's /run/systemd/container.
    """
    if os.environ.get("KUBERNETES_SERVICE_HOST") or os.path.exists(
        os.path.join(root, "var/run/secrets/kubernetes.io")
    ):
        return "kubernetes"
    if os.path.exists(os.path.join(root, ".dockerenv")):
        return "docker"
    if os.path.exists(os.path.join(root, "run/.containerenv")):
        return "podman"
    told = (read_text(os.path.join(root, "run/systemd/container")) or "").strip()
    if told:
        return told
    if container_of(read_text(os.path.join(proc, "self/cgroup")) or ""):
        return "container"
    if "microsoft" in (read_text(os.path.join(proc, "version")) or "").lower():
        return "wsl"
    return None
