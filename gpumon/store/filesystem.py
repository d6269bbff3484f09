"""Whether a folder's file system can carry SQLite's write-ahead log.

The log needs memory shared by all its processes, which network file systems have not
(sqlite.org/wal.html, "Disadvantages"): corruption and locking errors were reported there
(charmbracelet/crush#3461, anomalyco/opencode#14970).
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_networked", "kind_of"]

_NETWORKED = frozenset(
    """
    nfs nfs4 cifs smb3 smbfs 9p afs ceph lustre gpfs beegfs glusterfs ncpfs ocfs2 gfs2
    orangefs virtiofs vboxsf vmhgfs prl_fs drvfs
    """.split()
)


def kind_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The name of the file system that a path lies on; None where it can't be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        wanted = path.resolve()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = Path(fields[4].replace("\\040", " "))
        if wanted == point or point in wanted.parents:
            depth = len(point.parts)
            # A later mount on the same point covers the earlier one.
            if best is None or depth >= best[0]:
                best = (depth, right.split()[0])
    return best[1] if best else None


def is_networked(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """True where a write-ahead log must not be used."""
    kind = kind_of(path, mounts)
    # What a FUSE program does with shared memory is its own affair. fuseblk is a local disk.
    return kind is not None and (kind in _NETWORKED or kind.partition(".")[0] == "fuse")
