"""MIG slices of a card: rows of their own under their parent.

Runs on the host under Python 3.6 or newer, standard library only.
"""

import ctypes
import re
import time

from gpumon_probe_nvml_driver import RefusedError, is_gone
from gpumon_probe_nvml_row import MEASURED, Row

MEMORY_V2_WORD = 0x02000028
GPM_VERSION = 1  # the GPM records carry a bare number
GPM_GRAPHICS_UTIL = 1
#: GPM wants its two samples at least this far apart
GPM_APART_S = 0.1


class Slice(object):
    """One MIG device: a compute instance within a GPU instance."""

    def __init__(self, driver, parent, handle, index):
        self.driver = driver
        self.handle = handle
        self.parent = parent
        self.gpu_instance = driver.ask("nvmlDeviceGetGpuInstanceId", handle)
        self.compute_instance = driver.ask("nvmlDeviceGetComputeInstanceId", handle)
        uuid = driver.text("nvmlDeviceGetUUID", handle)
        name = None
        try:
            name = driver.text("nvmlDeviceGetName", handle)
        except RefusedError:
            pass
        self.identity = {
            "uuid": uuid,
            "index": index,
            "name": name,
            "parent_uuid": parent.uuid,
            "pci_id": parent.identity.get("pci_id"),
            "compute_capability": parent.identity.get("compute_capability"),
            "mig_profile": self._profile(name or ""),
        }

    @property
    def uuid(self):
        """The key of this slice."""
        return self.identity["uuid"]

    def _profile(self, name):
        """``2g.20gb``: the end of the driver's name, else made from the slice's attributes."""
        match = re.search(r"MIG ((?:\dc\.)?\dg\.\d+gb\S*)", name)
        if match:
            return match.group(1)
        try:
            attributes = self.driver.ask("nvmlDeviceGetAttributes_v2", self.handle)
        except RefusedError:
            return None
        gpu, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
        part = "" if compute == gpu else "%dc." % compute
        return "%s%dg.%dgb" % (part, gpu, -(-attributes.memorySizeMB // 1024))

    def read(self, util):
        """The slice's row; ``util`` is (percent, None) or (None, reason)."""
        row = Row()
        for field in MEASURED:
            row.miss(field, "unsupported")
        try:
            try:
                info = self.driver.ask("nvmlDeviceGetMemoryInfo", self.handle, MEMORY_V2_WORD)
                row.put("memory_reserved_bytes", info.reserved, 0, info.total)
            except RefusedError as refusal:
                if is_gone(refusal):
                    raise
                info = self.driver.ask("nvmlDeviceGetMemoryInfo", self.handle)
            if info.total:
                row.put("memory_total_bytes", info.total)
                row.put("memory_used_bytes", info.used, 0, info.total)
                row.put("memory_free_bytes", info.free, 0, info.total)
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            for field in ("total", "used", "free", "reserved"):
                row.miss("memory_%s_bytes" % field, refusal.reason)
        if util[0] is None:
            row.miss("util_percent", util[1])
        else:
            row.put("util_percent", round(util[0], 1), 0, 100)
        return row


def find_slices(driver, card):
    """The slices of a card; an index without one (rc 6) is a gap, not the end."""
    try:
        count = driver.ask("nvmlDeviceGetMaxMigDeviceCount", card.handle)
    except RefusedError as refusal:
        if is_gone(refusal):
            raise
        return []
    slices = []
    for index in range(min(count, 64)):
        try:
            handle = driver.ask("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, index)
            slices.append(Slice(driver, card, handle, index))
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
    return slices


class MigUtilisation(object):
    """Utilisation of GPU instances by GPM (Hopper and later), between two readings.

    GPM counts per GPU instance: where several compute instances share one, the figure
    is not a slice's own and none is given.
    """

    def __init__(self, driver, card):
        self.driver = driver
        self.card = card
        self._before = {}
        self._reason = None

    def read(self, slices):
        """gpu instance -> (percent, None) or (None, reason)."""
        instances = [one.gpu_instance for one in slices]
        found = {}
        for instance in set(instances):
            if instances.count(instance) > 1:
                found[instance] = (None, "unsupported")
            else:
                found[instance] = self._read_instance(instance)
        for gone in set(self._before) - set(instances):
            self._free(self._before.pop(gone)[1])
        return found

    def _read_instance(self, instance):
        if self._reason is None:
            self._reason = self._support()
        if self._reason:
            return None, self._reason
        try:
            sample = self.driver.ask("nvmlGpmSampleAlloc")
            try:
                self.driver.ask("nvmlGpmMigSampleGet", self.card.handle, instance, sample)
            except RefusedError:
                self._free(sample)
                raise
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            return None, refusal.reason
        now = time.monotonic()
        before = self._before.get(instance)
        if before is not None and now - before[0] < GPM_APART_S:
            self._free(sample)
            return None, "no-data"
        self._before[instance] = (now, sample)
        if before is None:
            return None, "no-data"
        try:
            return self._between(before[1], sample), None
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            return None, refusal.reason
        finally:
            self._free(before[1])

    def _support(self):
        """ "" where the card has GPM, else the reason why not."""
        try:
            support = self.driver.ask("nvmlGpmQueryDeviceSupport", self.card.handle)
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            return refusal.reason
        return "" if support.isSupportedDevice else "unsupported"

    def _between(self, first, second):
        request = self.driver.pynvml.c_nvmlGpmMetricsGet_t()
        request.version = GPM_VERSION
        request.numMetrics = 1
        request.sample1, request.sample2 = first, second
        request.metrics[0].metricId = GPM_GRAPHICS_UTIL
        self.driver.ask("nvmlGpmMetricsGet", request)
        if request.metrics[0].nvmlReturn:
            raise RefusedError(request.metrics[0].nvmlReturn)
        return float(request.metrics[0].value)

    def _free(self, sample):
        self.driver.raw("nvmlGpmSampleFree", ctypes.cast(sample, ctypes.c_void_p))
