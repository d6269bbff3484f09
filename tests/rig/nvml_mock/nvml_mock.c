/* A libnvidia-ml.so.1 whose card is a text file: for tests only.
 *
 * The calls, records and return codes are those of the real library, so that nvidia-ml-py and
 * gpumon's probe run on it unchanged. -DDRIVER=535086 leaves out what that driver did not export
 * and brings back what it did wrong. See scenario.h for the file that it reads.
 */
#include "nvml_abi.h"
#include "scenario.h"

#ifndef DRIVER
#define DRIVER 610057
#endif
#define API __attribute__((visibility("default")))
#define MAX_GPUS 32
#define MAX_MIGS 8
#define NONE_ID 0xFFFFFFFFu

typedef struct { int gpu, mig; char section[24]; } Device;
static Device devices[MAX_GPUS][MAX_MIGS + 1];
static int initialised;
static double epoch_at_init;

static int gpu_count(void) {
    char section[24];
    int count = 0;
    while (count < MAX_GPUS && (snprintf(section, sizeof section, "gpu%d", count), section_exists(section)))
        count++;
    return count;
}

static Device *device_at(int gpu, int mig) {
    Device *device = &devices[gpu][mig + 1];
    device->gpu = gpu;
    device->mig = mig;
    if (mig < 0) snprintf(device->section, sizeof device->section, "gpu%d", gpu);
    else snprintf(device->section, sizeof device->section, "gpu%d.mig%d", gpu, mig);
    return device;
}

static Device *parent_of(const Device *device) { return device_at(device->gpu, -1); }

/* Before every call but init: a handle from before a driver restart is stale (999). */
static int entered(const char *section, const char *call) {
    int rc = injected(section, call);
    if (!initialised) return RC_UNINITIALIZED;
    if (!rc && number_or("system", "epoch", 0) != epoch_at_init) return RC_UNKNOWN;
    return rc;
}

static int entered_device(Device *device, const char *call) {
    if (!device) return RC_INVALID;
    int rc = entered(device->section, call);
    double all;
    if (!rc && device->mig >= 0 && flag(parent_of(device)->section, "rc", "*", &all)) rc = (int)all;
    return rc;
}

#define SYSTEM(call) do { int rc_ = entered("system", call); if (rc_) return rc_; } while (0)
#define DEVICE(call) do { int rc_ = entered_device(d, call); if (rc_) return rc_; } while (0)

static int put_unsigned(const char *section, const char *key, u32 *out) {
    double value;
    if (!number(section, key, &value)) return RC_UNSUPPORTED;
    *out = (u32)value;
    return RC_OK;
}

static int put_text(const char *section, const char *key, char *out, u32 size, int missing) {
    char text[256];
    if (!text_of(section, key, text, sizeof text)) return missing;
    if (strlen(text) + 1 > size) return RC_SMALL;
    strcpy(out, text);
    return RC_OK;
}

/* --- library -------------------------------------------------------------------------------- */

static int started(const char *call) {
    int rc = injected("system", call);
    if (rc) return rc;
    epoch_at_init = number_or("system", "epoch", 0);
    initialised++;
    return RC_OK;
}
API int nvmlInit(void) { return started("Init"); }
API int nvmlInit_v2(void) { return started("Init_v2"); }
API int nvmlInitWithFlags(u32 flags) { (void)flags; return started("InitWithFlags"); }
API int nvmlShutdown(void) {
    int rc = injected("system", "Shutdown");
    if (rc) return rc;
    if (!initialised) return RC_UNINITIALIZED;
    initialised--;
    return RC_OK;
}
API const char *nvmlErrorString(int rc) { (void)rc; return "an error of the mock"; }

API int nvmlSystemGetDriverVersion(char *out, u32 size) {
    SYSTEM("SystemGetDriverVersion");
    return put_text("system", "driver", out, size, RC_UNKNOWN);
}
API int nvmlSystemGetNVMLVersion(char *out, u32 size) {
    SYSTEM("SystemGetNVMLVersion");
    return put_text("system", "nvml", out, size, RC_UNKNOWN);
}
API int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    SYSTEM("SystemGetCudaDriverVersion_v2");
    return put_unsigned("system", "cuda", (u32 *)out);
}
API int nvmlSystemGetCudaDriverVersion(int *out) {
    SYSTEM("SystemGetCudaDriverVersion");
    return put_unsigned("system", "cuda", (u32 *)out);
}

/* --- finding a card ------------------------------------------------------------------------- */

API int nvmlDeviceGetCount_v2(u32 *out) { SYSTEM("DeviceGetCount_v2"); *out = (u32)gpu_count(); return RC_OK; }
API int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **out) {
    SYSTEM("DeviceGetHandleByIndex_v2");
    if ((int)index >= gpu_count()) return RC_INVALID;
    Device *d = device_at((int)index, -1);
    DEVICE("DeviceGetHandleByIndex_v2");
    *out = d;
    return RC_OK;
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    char text[96];
    SYSTEM("DeviceGetHandleByUUID");
    for (int gpu = 0; gpu < gpu_count(); gpu++)
        for (int mig = -1; mig < MAX_MIGS; mig++) {
            Device *d = device_at(gpu, mig);
            if (!text_of(d->section, "uuid", text, sizeof text) || strcmp(text, uuid)) continue;
            DEVICE("DeviceGetHandleByUUID");
            *out = d;
            return RC_OK;
        }
    return RC_NOT_FOUND;
}
static int pci_of(const char *text, u32 place[3]) {
    return sscanf(text, "%x:%x:%x", &place[0], &place[1], &place[2]) == 3;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, Device **out) {
    char text[64];
    u32 want[3], have[3];
    SYSTEM("DeviceGetHandleByPciBusId_v2");
    if (!pci_of(wanted, want)) return RC_INVALID;
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        Device *d = device_at(gpu, -1);
        if (!text_of(d->section, "pci", text, sizeof text) || !pci_of(text, have)) continue;
        if (memcmp(want, have, sizeof want)) continue;
        DEVICE("DeviceGetHandleByPciBusId_v2");
        *out = d;
        return RC_OK;
    }
    return RC_NOT_FOUND;
}

#define TEXT(symbol, key, missing)                                            \
    API int nvml##symbol(Device *d, char *out, u32 size) {                    \
        DEVICE(#symbol);                                                      \
        return put_text(d->section, key, out, size, missing);                 \
    }
TEXT(DeviceGetName, "name", RC_UNKNOWN)
TEXT(DeviceGetUUID, "uuid", RC_UNKNOWN)
TEXT(DeviceGetSerial, "serial", RC_UNSUPPORTED)
TEXT(DeviceGetVbiosVersion, "vbios", RC_UNSUPPORTED)

API int nvmlDeviceGetIndex(Device *d, u32 *out) {
    DEVICE("DeviceGetIndex");
    *out = (u32)(d->mig < 0 ? d->gpu : d->mig);
    return RC_OK;
}
API int nvmlDeviceGetPciInfo_v3(Device *d, PciInfo3 *out) {
    char text[64];
    u32 place[3];
    DEVICE("DeviceGetPciInfo_v3");
    if (!text_of(parent_of(d)->section, "pci", text, sizeof text) || !pci_of(text, place)) return RC_UNKNOWN;
    memset(out, 0, sizeof *out);
    out->domain = place[0]; out->bus = place[1]; out->device = place[2];
    out->device_id = (u32)number_or(parent_of(d)->section, "device_id", 0x233010de);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0", place[0] & 0xFFFF, place[1] & 255, place[2] & 255);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", place[0], place[1], place[2]);
    return RC_OK;
}

/* --- plain numbers -------------------------------------------------------------------------- */

#define NUMBER(symbol, key)                                                   \
    API int nvml##symbol(Device *d, u32 *out) {                               \
        DEVICE(#symbol);                                                      \
        return put_unsigned(d->section, key, out);                            \
    }
NUMBER(DeviceGetMinorNumber, "minor")
NUMBER(DeviceGetBrand, "brand")
NUMBER(DeviceGetArchitecture, "arch")
NUMBER(DeviceGetPowerUsage, "power_mw")
NUMBER(DeviceGetEnforcedPowerLimit, "limit_mw")
NUMBER(DeviceGetPowerManagementLimit, "limit_set_mw")
NUMBER(DeviceGetPerformanceState, "pstate")
NUMBER(DeviceGetFanSpeed, "fan")
NUMBER(DeviceGetNumFans, "fans")
NUMBER(DeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(DeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(DeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
NUMBER(DeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(DeviceGetMemoryBusWidth, "bus_bits")
NUMBER(DeviceGetNumGpuCores, "cores")
NUMBER(DeviceGetPersistenceMode, "persistence")
NUMBER(DeviceGetComputeMode, "compute_mode")
NUMBER(DeviceGetMaxMigDeviceCount, "mig_max")
NUMBER(DeviceGetGpuInstanceId, "gi")
NUMBER(DeviceGetComputeInstanceId, "ci")
NUMBER(DeviceGetAccountingMode, "accounting")
NUMBER(DeviceGetRetiredPagesPendingStatus, "retired_pending")

API int nvmlDeviceGetFanSpeed_v2(Device *d, u32 fan, u32 *out) {
    (void)fan;
    DEVICE("DeviceGetFanSpeed_v2");
    return put_unsigned(d->section, "fan", out);
}
API int nvmlDeviceGetTotalEnergyConsumption(Device *d, u64 *out) {
    double value;
    DEVICE("DeviceGetTotalEnergyConsumption");
    if (!number(d->section, "energy_mj", &value)) return RC_UNSUPPORTED;
    *out = (u64)value;
    return RC_OK;
}
API int nvmlDeviceGetUtilizationRates(Device *d, Utilization *out) {
    DEVICE("DeviceGetUtilizationRates");
    if (put_unsigned(d->section, "util", &out->gpu)) return RC_UNSUPPORTED;
    out->memory = (u32)number_or(d->section, "mem_util", 0);
    return RC_OK;
}
#define ENGINE(symbol, key)                                                   \
    API int nvml##symbol(Device *d, u32 *out, u32 *period_us) {               \
        DEVICE(#symbol);                                                      \
        *period_us = 167000;                                                  \
        return put_unsigned(d->section, key, out);                            \
    }
ENGINE(DeviceGetEncoderUtilization, "enc")
ENGINE(DeviceGetDecoderUtilization, "dec")
#if DRIVER >= 545000
ENGINE(DeviceGetJpgUtilization, "jpg")
ENGINE(DeviceGetOfaUtilization, "ofa")
#endif

static const char *const clock_names[] = {"clock_gr", "clock_sm", "clock_mem", "clock_video"};
static const char *const max_clock_names[] = {"max_clock_gr", "max_clock_sm", "max_clock_mem", "max_clock_video"};
API int nvmlDeviceGetClockInfo(Device *d, u32 type, u32 *out) {
    DEVICE("DeviceGetClockInfo");
    return type > 3 ? RC_INVALID : put_unsigned(d->section, clock_names[type], out);
}
API int nvmlDeviceGetMaxClockInfo(Device *d, u32 type, u32 *out) {
    DEVICE("DeviceGetMaxClockInfo");
    return type > 3 ? RC_INVALID : put_unsigned(d->section, max_clock_names[type], out);
}

static int reasons(Device *d, u64 *out) {
    double value;
    if (!number(d->section, "reasons", &value)) return RC_UNSUPPORTED;
    *out = (u64)value;
    return RC_OK;
}
#if DRIVER >= 535000
API int nvmlDeviceGetCurrentClocksEventReasons(Device *d, u64 *out) {
    DEVICE("DeviceGetCurrentClocksEventReasons");
    return reasons(d, out);
}
#endif
#if DRIVER < 700000
API int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, u64 *out) {
    DEVICE("DeviceGetCurrentClocksThrottleReasons");
    return reasons(d, out);
}
API int nvmlDeviceGetTemperature(Device *d, u32 sensor, u32 *out) {
    DEVICE("DeviceGetTemperature");
    return sensor ? RC_INVALID : put_unsigned(d->section, "temp", out);
}
#endif
#if DRIVER >= 560000
API int nvmlDeviceGetTemperatureV(Device *d, Temperature1 *out) {
    double value;
    DEVICE("DeviceGetTemperatureV");
    if (out->version != WORD(Temperature1, 1)) return RC_VERSION;
    if (!number(d->section, "temp", &value)) return RC_UNSUPPORTED;
    out->celsius = (int)value;
    return RC_OK;
}
API int nvmlDeviceGetMarginTemperature(Device *d, Margin1 *out) {
    double value;
    DEVICE("DeviceGetMarginTemperature");
    if (out->version != WORD(Margin1, 1)) return RC_VERSION;
    if (!number(d->section, "margin", &value)) return RC_UNSUPPORTED;
    out->celsius = (int)value;
    return RC_OK;
}
API int nvmlDeviceGetFanSpeedRPM(Device *d, FanRpm1 *out) {
    DEVICE("DeviceGetFanSpeedRPM");
    if (out->version != WORD(FanRpm1, 1)) return RC_VERSION;
    return put_unsigned(d->section, "fan_rpm", &out->rpm);
}
API int nvmlDeviceGetAddressingMode(Device *d, Addressing1 *out) {
    DEVICE("DeviceGetAddressingMode");
    if (out->version != WORD(Addressing1, 1)) return RC_VERSION;
    return put_unsigned(d->section, "addressing", &out->value);
}
#endif
API int nvmlDeviceGetTemperatureThreshold(Device *d, u32 kind, u32 *out) {
    DEVICE("DeviceGetTemperatureThreshold");
    if (kind > 1) return RC_UNSUPPORTED;
    return put_unsigned(d->section, kind ? "temp_slowdown" : "temp_shutdown", out);
}

/* --- memory --------------------------------------------------------------------------------- */

static int memory(Device *d, Memory2 *out) {
    double total;
    if (!number(d->section, "mem_total", &total)) return RC_UNSUPPORTED;
    out->total = (u64)total;
    out->reserved = (u64)number_or(d->section, "mem_reserved", 0);
    out->used = (u64)number_or(d->section, "mem_used", 0);
    u64 taken = out->reserved + out->used;
    out->free = taken > out->total ? 0 : out->total - taken;
    return RC_OK;
}
API int nvmlDeviceGetMemoryInfo(Device *d, Memory1 *out) {
    Memory2 m;
    DEVICE("DeviceGetMemoryInfo");
    int rc = memory(d, &m);
    if (rc) return rc;
    out->total = m.total; out->free = m.free; out->used = m.used + m.reserved;
    return RC_OK;
}
#if DRIVER >= 510000
API int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *out) {
    DEVICE("DeviceGetMemoryInfo_v2");
    return out->version == WORD(Memory2, 2) ? memory(d, out) : RC_VERSION;
}
#endif
API int nvmlDeviceGetBAR1MemoryInfo(Device *d, Bar1Memory *out) {
    double total, used = number_or(d->section, "bar1_used", 0);
    DEVICE("DeviceGetBAR1MemoryInfo");
    if (!number(d->section, "bar1_total", &total)) return RC_UNSUPPORTED;
    out->total = (u64)total; out->used = (u64)used; out->free = out->total - out->used;
    return RC_OK;
}

#include "nvml_mock_more.h"
