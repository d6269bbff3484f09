"""Rows of cards that NVML counts but refuses, or does not show; and the order of all.

Runs on the host under Python 3.6 or newer, standard library only.
"""

from gpumon_probe_nvml_driver import LOST, RefusedError
from gpumon_probe_nvml_presence import pci_key
from gpumon_probe_nvml_row import blank_row
from gpumon_probe_nvml_states import identity_of


def rows_without_handle(cards, refused, *, pci, sleeping, information, seen):
    """Rows of all cards that are not in ``cards``.

    ``refused``: NVML index -> code; ``pci``: the cards of sysfs; ``sleeping``: the PCI ids
    of those not to be woken; ``information`` and ``seen``: what the kernel module says
    and what NVML once said, by PCI id.
    """
    known = dict(information, **seen)
    have = set(card.identity.get("pci_id") for card in cards)
    left = [card for card in pci if card.pci_id not in have]
    awake = [card for card in left if card.pci_id not in sleeping]
    rows = [
        gone_row(identity, refused[identity["index"]])
        for identity in _identify(refused, awake, have, information, seen)
    ]
    told = set(row.get("pci_id") for row in rows)
    for card in left:
        identity = identity_of(card, known)
        if card.pci_id in sleeping:
            rows.append(blank_row(identity, "asleep", "asleep"))
        elif card.driver != "nvidia" and information:
            bound = "driver %s" % card.driver if card.driver else "no driver"
            rows.append(blank_row(identity, "no-driver", "no-driver", bound))
        elif card.pci_id in information and card.pci_id not in told:
            detail = "the kernel module lists it, NVML does not: see dmesg"
            rows.append(blank_row(identity, "error", "driver-error", detail))
    return rows


def _identify(refused, awake, have, information, seen):
    """Who the refused indexes are.

    NVML counts in the order of PCI ids, so they are the cards that are left over, in that
    order; where the numbers differ (a container sees more in /sys than it was given) only
    what was seen under that index before is taken, and nothing is guessed.
    """
    indexes = sorted(refused)
    bound = [card.pci_id for card in awake if card.driver == "nvidia"]
    listed = sorted((pci_id for pci_id in information if pci_id not in have), key=pci_key)
    known = dict(information, **seen)
    for pci_ids in (bound, listed):
        if len(pci_ids) == len(indexes):
            break
    else:
        before = dict((one["index"], one["pci_id"]) for one in seen.values())
        pci_ids = [before.get(index) for index in indexes]
        pci_ids = [None if pci_id in have else pci_id for pci_id in pci_ids]
    found = []
    for index, pci_id in zip(indexes, pci_ids):
        one = known.get(pci_id) or {}
        key = "pci:%s" % pci_id if pci_id else "index:%d" % index
        found.append(
            {
                "uuid": one.get("uuid") or key,
                "pci_id": pci_id,
                "name": one.get("name"),
                "index": index,
            }
        )
    return found


def gone_row(identity, code):
    """The row of a card that NVML refuses with that code."""
    if code == LOST:
        return blank_row(identity, "lost", "lost", "fell off the bus: see dmesg for its XID")
    reason = RefusedError(code).reason
    if reason == "reset-required":
        return blank_row(identity, "reset-required", reason, "sudo nvidia-smi --gpu-reset")
    return blank_row(identity, "error", reason, "NVML refuses this card with code %d" % code)


def in_order(rows):
    """Cards by index, each followed by its slices; cards without an index last."""
    last = 1 << 20
    index_of = dict((row["uuid"], row.get("index", last)) for row in rows)

    def place(row):
        parent = row.get("parent_uuid")
        if parent is None:
            return (row.get("index", last), row.get("pci_id", ""), -1)
        return (index_of.get(parent, last), row.get("pci_id", ""), row["index"])

    return sorted(rows, key=place)


def sum_slices(row, slice_rows, more):
    """Without rights the parent's memory is closed: the sum of what is visible."""
    for field in ("memory_total_bytes", "memory_used_bytes", "memory_free_bytes"):
        values = [one.get(field) for one in slice_rows]
        if all(value is not None for value in values):
            row.put(field, sum(values))
    more["detail"] = "memory is the sum of the visible MIG slices"
