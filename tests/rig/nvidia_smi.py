"""An ``nvidia-smi`` for hosts of the rig: a shell script with two cards and one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["CARDS", "write_script"]

MIB = 1024 * 1024

_A4000: Mapping[str, str] = {
    "name": "NVIDIA RTX A4000",
    "memory.total": "16376",
    "memory.reserved": "282",
    "utilization.memory": "12",
    "utilization.encoder": "0",
    "utilization.decoder": "0",
    "temperature.memory": "N/A",
    "enforced.power.limit": "140.00",
    "fan.speed": "41",
    "clocks.max.sm": "2100",
    "clocks.max.mem": "7001",
    "clocks_event_reasons.active": "0x0000000000000004",
    "pcie.link.gen.current": "4",
    "pcie.link.width.current": "16",
    "pcie.link.gen.max": "4",
    "pcie.link.width.max": "16",
    "ecc.errors.corrected.volatile.total": "0",
    "ecc.errors.uncorrected.volatile.total": "0",
    "persistence_mode": "Enabled",
    "compute_mode": "Default",
    "compute_cap": "8.6",
    "vbios_version": "94.04.57.00.1C",
    "mig.mode.current": "[N/A]",
    "driver_version": "570.86.15",
}

#: field of --query-gpu -> text, for each card
CARDS: Sequence[Mapping[str, str]] = (
    {
        **_A4000,
        "index": "0",
        "uuid": "GPU-91f0a6d2-4c1b-7e35-a2d8-5b6c7d8e9f01",
        "pci.bus_id": "00000000:01:00.0",
        "memory.used": "9214",
        "memory.free": "6880",
        "utilization.gpu": "87",
        "temperature.gpu": "66",
        "power.draw": "131.52",
        "clocks.sm": "1920",
        "clocks.mem": "7001",
        "pstate": "P0",
    },
    {
        **_A4000,
        "index": "1",
        "uuid": "GPU-2a7be0c4-93d5-1f68-b4e0-6c7d8e9fa012",
        "pci.bus_id": "00000000:25:00.0",
        "memory.used": "3",
        "memory.free": "16091",
        "utilization.gpu": "0",
        "temperature.gpu": "31",
        "power.draw": "[N/A]",
        "clocks.sm": "210",
        "clocks.mem": "405",
        "pstate": "P8",
        "clocks_event_reasons.active": "0x0000000000000001",
    },
)


def write_script(cards: Sequence[Mapping[str, str]] = CARDS) -> str:
    """The script; an unknown field ends it with status 2 and nvidia-smi's own words."""
    rows = []
    for number, card in enumerate(cards):
        rows += [f"    {number}/{name}) v='{text}' ;;" for name, text in card.items()]
    values = "\n".join(rows)
    numbers = " ".join(str(number) for number in range(len(cards)))
    process = f"{cards[0]['uuid']}, 4711, 9180, /opt/serve/bin/python3"
    return f"""#!/bin/sh
value() {{
  case "$1/$2" in
{values}
    *) echo "Field \\"$2\\" is not a valid field to query."; exit 2 ;;
  esac
}}
fields=
for word in "$@"; do
  case "$word" in
    --query-gpu=*) fields=$(echo "${{word#*=}}" | tr , ' ') ;;
    --query-compute-apps=*) echo '{process}'; exit 0 ;;
  esac
done
for card in {numbers}; do
  line=
  for field in $fields; do value $card $field; line="${{line:+$line, }}$v"; done
  echo "$line"
done
"""
