/* The records that cross the NVML boundary, laid out as the x86-64 driver lays them out.
 *
 * Written from the public description of the interface (field order and sizes), not from NVIDIA's
 * header. Every size is asserted here; tests/rig/test_nvml_mock.py holds nvidia-ml-py's ctypes
 * records against the same numbers.
 */
#ifndef GPUMON_NVML_ABI_H
#define GPUMON_NVML_ABI_H

typedef unsigned int u32;
typedef unsigned long long u64;

enum {
    RC_OK = 0, RC_UNINITIALIZED = 1, RC_INVALID = 2, RC_UNSUPPORTED = 3, RC_NO_PERMISSION = 4,
    RC_NOT_FOUND = 6, RC_SMALL = 7, RC_TIMEOUT = 10, RC_LOST = 15, RC_VERSION = 25, RC_UNKNOWN = 999
};

typedef struct { u64 total, free, used; } Memory1;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
typedef struct { u64 total, free, used; } Bar1Memory;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct {
    char bus_id_legacy[16];
    u32 domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo3;
typedef struct { u32 version; int sensor; int celsius; } Temperature1;
typedef struct { u32 version; int celsius; } Margin1;
typedef struct { u32 version, fan, rpm; } FanRpm1;
typedef struct { u32 version, value; } Addressing1;
typedef struct { u32 pid; u64 memory; } Process1;
typedef struct { u32 pid; u64 memory; u32 gi, ci; } Process2;
/* what 535.43 to 535.86 wrote under the name of the record above */
typedef struct { u32 pid; u64 memory; u32 gi, ci; u64 confidential; } ProcessWide;
typedef struct { u32 pid; u64 when_us; u32 sm, memory, enc, dec; } ProcessSample;
typedef struct { u64 when_us; u32 pid, sm, memory, enc, dec, jpg, ofa; } ProcessSampleInfo;
typedef struct { u32 version, count; u64 since_us; ProcessSampleInfo *samples; } ProcessSampleList;
typedef union { double d; u32 ui; unsigned long ul; u64 ull; long long sll; int si; unsigned short us; } FieldUnion;
typedef struct {
    u32 field, scope;
    long long when_us, latency_us;
    int type, rc;
    FieldUnion value;
} FieldValue;
typedef struct {
    u32 multiprocessors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    u64 memory_mb;
} Attributes;
typedef struct { void *device; u64 type, data; u32 gi, ci; } EventData;
typedef struct {
    u32 gpu, memory;
    u64 peak, ms, started;
    u32 running, reserved[5];
} AccountingStats;
typedef struct { u32 version, supported; } GpmSupport;
typedef struct { u32 id; int rc; double value; const char *names[3]; } GpmMetric;
typedef struct { u32 version, count; void *first, *second; GpmMetric metrics[]; } GpmMetricsGet;

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
SIZE(Memory1, 24); SIZE(Memory2, 40); SIZE(Bar1Memory, 24); SIZE(Utilization, 8);
SIZE(PciInfo3, 68); SIZE(Temperature1, 12); SIZE(Margin1, 8); SIZE(FanRpm1, 12);
SIZE(Process1, 16); SIZE(Process2, 24); SIZE(ProcessWide, 32); SIZE(ProcessSample, 32);
SIZE(ProcessSampleInfo, 40); SIZE(ProcessSampleList, 24); SIZE(FieldValue, 40);
SIZE(Attributes, 40); SIZE(EventData, 32); SIZE(AccountingStats, 56); SIZE(GpmMetric, 40);

/* a versioned record names its size and version in its first word */
#define WORD(type, version) ((u32)(sizeof(type) | ((version) << 24)))
_Static_assert(WORD(Memory2, 2) == 0x02000028, "memory v2 word");
_Static_assert(WORD(Temperature1, 1) == 0x0100000C, "temperature word");
_Static_assert(WORD(Margin1, 1) == 0x01000008, "margin word");
_Static_assert(WORD(FanRpm1, 1) == 0x0100000C, "fan word");
_Static_assert(WORD(ProcessSampleList, 1) == 0x01000018, "process utilisation word");

#endif
