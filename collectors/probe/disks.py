"""Free space of the file systems that matter: the root's and those of model stores.

``statvfs`` on a dead network file system never returns, so this is called from a
thread that nothing waits for. Runs on the host under Python 3.6 or newer, standard
library only.
"""

import os

#: Where engines keep models when nobody told them otherwise (Ollama's installer, its
#: container image, the Hugging Face cache of root).
MODEL_STORES = (
    "/usr/share/ollama/.ollama/models",
    "/var/lib/ollama",
    "/root/.ollama/models",
    "/root/.cache/huggingface",
)


def read_disk(path):
    """One ``Disk`` row; sizes are None where the path can't be read.

    Free is what an ordinary user may still write, as ``df`` counts it.
    """
    try:
        found = os.statvfs(path)
    except OSError:
        return {"path": path, "total_bytes": None, "free_bytes": None}
    return {
        "path": path,
        "total_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
    }


def read_disks(named, stores=MODEL_STORES):
    """Rows of the root, of every ``named`` path, and of model stores on other devices."""
    rows = []
    devices = set()
    for path in ("/",) + tuple(named):
        if any(row["path"] == path for row in rows):
            continue
        rows.append(read_disk(path))
        devices.add(_device(path))
    for path in stores:
        device = _device(path)
        if device is not None and device not in devices:
            devices.add(device)
            rows.append(read_disk(path))
    return rows


def _device(path):
    try:
        return os.stat(path).st_dev
    except OSError:
        return None
