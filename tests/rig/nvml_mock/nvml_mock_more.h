/* The second half of the mock: health, links, MIG, processes, events. Part of nvml_mock.c. */

/* --- health --------------------------------------------------------------------------------- */

API int nvmlDeviceGetEccMode(Device *d, u32 *current, u32 *pending) {
    DEVICE("DeviceGetEccMode");
    int rc = put_unsigned(d->section, "ecc", current);
    if (!rc) *pending = *current;
    return rc;
}
API int nvmlDeviceGetTotalEccErrors(Device *d, u32 kind, u32 counter, u64 *out) {
    char key[32];
    double value;
    DEVICE("DeviceGetTotalEccErrors");
    snprintf(key, sizeof key, "ecc_%s%s", kind ? "unc" : "corr", counter ? "_total" : "");
    if (!number(d->section, key, &value)) return RC_UNSUPPORTED;
    *out = (u64)value;
    return RC_OK;
}
API int nvmlDeviceGetRetiredPages(Device *d, u32 cause, u32 *count, u64 *pages) {
    double value;
    DEVICE("DeviceGetRetiredPages");
    if (!number(d->section, cause ? "retired_dbe" : "retired_sbe", &value)) return RC_UNSUPPORTED;
    u32 room = *count;
    *count = (u32)value;
    if (!pages || room < *count) return *count ? RC_SMALL : RC_OK;
    for (u32 i = 0; i < *count; i++) pages[i] = 0x4000ull * (i + 1);
    return RC_OK;
}
API int nvmlDeviceGetRemappedRows(Device *d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    DEVICE("DeviceGetRemappedRows");
    if (put_unsigned(d->section, "remap_pending", pending)) return RC_UNSUPPORTED;
    *failed = (u32)number_or(d->section, "remap_failed", 0);
    *corrected = (u32)number_or(d->section, "remap_corr", 0);
    *uncorrected = (u32)number_or(d->section, "remap_unc", 0);
    return RC_OK;
}
API int nvmlDeviceGetCudaComputeCapability(Device *d, int *major, int *minor) {
    char text[16];
    DEVICE("DeviceGetCudaComputeCapability");
    if (!text_of(d->section, "capability", text, sizeof text)) return RC_UNSUPPORTED;
    return sscanf(text, "%d.%d", major, minor) == 2 ? RC_OK : RC_UNKNOWN;
}

/* --- links and field values ----------------------------------------------------------------- */

API int nvmlDeviceGetPcieThroughput(Device *d, u32 counter, u32 *out) {
    DEVICE("DeviceGetPcieThroughput");
    usleep(20000); /* the real one measures for 20 ms */
    return put_unsigned(d->section, counter ? "pcie_rx_kbs" : "pcie_tx_kbs", out);
}
API int nvmlDeviceGetNvLinkState(Device *d, u32 link, u32 *out) {
    DEVICE("DeviceGetNvLinkState");
    if (link >= number_or(d->section, "nvlinks", 0)) return RC_UNSUPPORTED;
    *out = 1;
    return RC_OK;
}
/* field.<id>=value, field_rc.<id>=code; ids newer than this driver are not supported */
API int nvmlDeviceGetFieldValues(Device *d, int count, FieldValue *values) {
    DEVICE("DeviceGetFieldValues");
    for (int i = 0; i < count; i++) {
        char id[16];
        double value;
        FieldValue *v = &values[i];
        snprintf(id, sizeof id, "%u", v->field);
        int known = DRIVER >= 570000 || v->field < (DRIVER >= 550000 ? 220 : DRIVER >= 525000 ? 190 : 168);
        if (flag(d->section, "field_rc", id, &value)) v->rc = (int)value;
        else if (!known || !flag(d->section, "field", id, &value)) v->rc = RC_UNSUPPORTED;
        else if (v->field == 193 || v->field == 194 || v->field == 195 || v->field == 196) {
            v->rc = RC_OK; v->type = 5; v->value.si = (int)value;
        } else if (v->field == 197 || v->field == 198) {
            v->rc = RC_OK; v->type = 3; v->value.ull = (u64)value;
        } else {
            v->rc = RC_OK; v->type = 1; v->value.ui = (u32)value;
        }
    }
    return RC_OK;
}

/* --- MIG ------------------------------------------------------------------------------------ */

API int nvmlDeviceGetMigMode(Device *d, u32 *current, u32 *pending) {
    DEVICE("DeviceGetMigMode");
    int rc = put_unsigned(d->section, "mig", current);
    if (!rc) *pending = *current;
    return rc;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, u32 index, Device **out) {
    DEVICE("DeviceGetMigDeviceHandleByIndex");
    if (index >= MAX_MIGS) return RC_INVALID;
    Device *slice = device_at(d->gpu, (int)index);
    if (!section_exists(slice->section)) return RC_NOT_FOUND;
    *out = slice;
    return RC_OK;
}
API int nvmlDeviceIsMigDeviceHandle(Device *d, u32 *out) {
    DEVICE("DeviceIsMigDeviceHandle");
    *out = d->mig >= 0;
    return RC_OK;
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *d, Device **out) {
    DEVICE("DeviceGetDeviceHandleFromMigDeviceHandle");
    *out = parent_of(d);
    return RC_OK;
}
API int nvmlDeviceGetAttributes_v2(Device *d, Attributes *out) {
    DEVICE("DeviceGetAttributes_v2");
    if (d->mig < 0) return RC_UNSUPPORTED;
    memset(out, 0, sizeof *out);
    out->multiprocessors = (u32)number_or(d->section, "multiprocessors", 16);
    out->gpu_slices = (u32)number_or(d->section, "gpu_slices", 1);
    out->compute_slices = (u32)number_or(d->section, "compute_slices", out->gpu_slices);
    out->memory_mb = (u64)(number_or(d->section, "mem_total", 0) / 1048576);
    return RC_OK;
}

/* --- processes ------------------------------------------------------------------------------ */

typedef struct { char section[24]; u32 pid, gi, ci; u64 memory; } Process;

/* Processes of a card (or of the slice alone) on one of the lists c, g, m. */
static int processes(Device *d, char kind, Process *out, int room) {
    int count = 0;
    u32 gi = (u32)number_or(d->section, "gi", NONE_ID), ci = (u32)number_or(d->section, "ci", NONE_ID);
    for (int i = 0; i < 64 && count < room; i++) {
        Process p;
        char kinds[8] = "c";
        double memory_bytes;
        snprintf(p.section, sizeof p.section, "gpu%d.proc%d", d->gpu, i);
        if (!section_exists(p.section)) continue;
        text_of(p.section, "type", kinds, sizeof kinds);
        p.pid = (u32)number_or(p.section, "pid", 0);
        p.gi = (u32)number_or(p.section, "gi", NONE_ID);
        p.ci = (u32)number_or(p.section, "ci", NONE_ID);
        p.memory = number(p.section, "mem", &memory_bytes) ? (u64)memory_bytes : ~0ull;
        if (!strchr(kinds, kind) || (d->mig >= 0 && (p.gi != gi || p.ci != ci))) continue;
        out[count++] = p;
    }
    return count;
}
#define PROCESS_LIST(symbol, kind, Record, FILL)                              \
    API int nvml##symbol(Device *d, u32 *count, Record *out) {                \
        Process all[64];                                                      \
        DEVICE(#symbol);                                                      \
        u32 room = *count, found = (u32)processes(d, kind, all, 64);          \
        *count = found;                                                       \
        if (!out || room < found) return found ? RC_SMALL : RC_OK;            \
        for (u32 i = 0; i < found; i++) {                                     \
            out[i].pid = all[i].pid;                                          \
            out[i].memory = all[i].memory;                                    \
            FILL                                                              \
        }                                                                     \
        return RC_OK;                                                         \
    }
#define INSTANCE out[i].gi = all[i].gi; out[i].ci = all[i].ci;
PROCESS_LIST(DeviceGetComputeRunningProcesses, 'c', Process1, )
PROCESS_LIST(DeviceGetGraphicsRunningProcesses, 'g', Process1, )
PROCESS_LIST(DeviceGetMPSComputeRunningProcesses, 'm', Process1, )
#if DRIVER >= 460000
PROCESS_LIST(DeviceGetComputeRunningProcesses_v2, 'c', Process2, INSTANCE)
PROCESS_LIST(DeviceGetGraphicsRunningProcesses_v2, 'g', Process2, INSTANCE)
PROCESS_LIST(DeviceGetMPSComputeRunningProcesses_v2, 'm', Process2, INSTANCE)
#endif
#if DRIVER >= 535043 && DRIVER <= 535086
#define Process3 ProcessWide
#define INSTANCE3 INSTANCE out[i].confidential = 0;
#else
#define Process3 Process2
#define INSTANCE3 INSTANCE
#endif
#if DRIVER >= 510000
PROCESS_LIST(DeviceGetComputeRunningProcesses_v3, 'c', Process3, INSTANCE3)
PROCESS_LIST(DeviceGetGraphicsRunningProcesses_v3, 'g', Process3, INSTANCE3)
PROCESS_LIST(DeviceGetMPSComputeRunningProcesses_v3, 'm', Process3, INSTANCE3)
#endif

/* A sample per process each half second, for those whose section gives "sm". */
static u64 sample_time_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    u64 now = (u64)t.tv_sec * 1000000u + (u64)t.tv_nsec / 1000u;
    return now - now % 500000;
}
static int sampled(Device *d, u64 since_us, ProcessSampleInfo *out) {
    Process all[64];
    const char kinds[] = "cgm";
    u64 when = sample_time_us();
    int count = 0;
    for (int k = 0; k < 3 && when > since_us; k++) {
        int found = processes(d, kinds[k], all, 64);
        for (int i = 0; i < found && count < 64; i++) {
            double sm;
            if (!number(all[i].section, "sm", &sm)) continue;
            ProcessSampleInfo *s = &out[count++];
            memset(s, 0, sizeof *s);
            s->when_us = when; s->pid = all[i].pid; s->sm = (u32)sm;
            s->memory = (u32)number_or(all[i].section, "memutil", 0);
            s->enc = (u32)number_or(all[i].section, "enc", 0);
            s->dec = (u32)number_or(all[i].section, "dec", 0);
        }
    }
    return count;
}
API int nvmlDeviceGetProcessUtilization(Device *d, ProcessSample *out, u32 *count, u64 since_us) {
    ProcessSampleInfo all[64];
    DEVICE("DeviceGetProcessUtilization");
    u32 room = *count, found = (u32)sampled(d, since_us, all);
    *count = found;
    if (!found) return RC_NOT_FOUND;
    if (!out || room < found) return RC_SMALL;
    for (u32 i = 0; i < found; i++) {
        out[i].pid = all[i].pid; out[i].when_us = all[i].when_us; out[i].sm = all[i].sm;
        out[i].memory = all[i].memory; out[i].enc = all[i].enc; out[i].dec = all[i].dec;
    }
    return RC_OK;
}
#if DRIVER >= 550000
API int nvmlDeviceGetProcessesUtilizationInfo(Device *d, ProcessSampleList *list) {
    ProcessSampleInfo all[64];
    DEVICE("DeviceGetProcessesUtilizationInfo");
    if (list->version != WORD(ProcessSampleList, 1)) return RC_VERSION;
    u32 room = list->count, found = (u32)sampled(d, list->since_us, all);
    list->count = found;
    if (!found) return RC_NOT_FOUND;
    if (!list->samples || room < found) return RC_SMALL;
    memcpy(list->samples, all, found * sizeof *all);
    return RC_OK;
}
#endif
API int nvmlSystemGetProcessName(u32 pid, char *out, u32 size) {
    char section[24];
    SYSTEM("SystemGetProcessName");
    for (int gpu = 0; gpu < gpu_count(); gpu++)
        for (int i = 0; i < 64; i++) {
            snprintf(section, sizeof section, "gpu%d.proc%d", gpu, i);
            if (number_or(section, "pid", 0) == pid) return put_text(section, "name", out, size, RC_NOT_FOUND);
        }
    return RC_NOT_FOUND;
}
API int nvmlDeviceGetAccountingPids(Device *d, u32 *count, u32 *pids) {
    Process all[64];
    DEVICE("DeviceGetAccountingPids");
    u32 room = *count, found = (u32)processes(d, 'c', all, 64);
    *count = found;
    if (!pids || room < found) return found ? RC_SMALL : RC_OK;
    for (u32 i = 0; i < found; i++) pids[i] = all[i].pid;
    return RC_OK;
}
API int nvmlDeviceGetAccountingStats(Device *d, u32 pid, AccountingStats *out) {
    Process all[64];
    DEVICE("DeviceGetAccountingStats");
    int found = processes(d, 'c', all, 64);
    for (int i = 0; i < found; i++)
        if (all[i].pid == pid) {
            memset(out, 0, sizeof *out);
            out->peak = all[i].memory; out->running = 1;
            return RC_OK;
        }
    return RC_NOT_FOUND;
}

/* --- events: an XID is seen when a card's "xid" changes after registration -------------------- */

typedef struct { Device *cards[MAX_GPUS]; double seen[MAX_GPUS]; int count; } EventSet;
API int nvmlEventSetCreate(EventSet **out) {
    SYSTEM("EventSetCreate");
    *out = calloc(1, sizeof **out);
    return RC_OK;
}
API int nvmlEventSetFree(EventSet *set) { SYSTEM("EventSetFree"); free(set); return RC_OK; }
API int nvmlDeviceRegisterEvents(Device *d, u64 types, EventSet *set) {
    (void)types;
    DEVICE("DeviceRegisterEvents");
    set->cards[set->count] = d;
    set->seen[set->count++] = number_or(d->section, "xid", 0);
    return RC_OK;
}
API int nvmlEventSetWait_v2(EventSet *set, EventData *out, u32 timeout_ms) {
    double until = now_s() + timeout_ms / 1000.0;
    do {
        SYSTEM("EventSetWait_v2");
        for (int i = 0; i < set->count; i++) {
            double xid = number_or(set->cards[i]->section, "xid", 0);
            if (xid == set->seen[i]) continue;
            set->seen[i] = xid;
            if (!xid) continue;
            memset(out, 0, sizeof *out);
            out->device = set->cards[i]; out->type = 8; out->data = (u64)xid;
            out->gi = out->ci = NONE_ID;
            return RC_OK;
        }
        usleep(20000);
    } while (now_s() < until);
    return RC_TIMEOUT;
}

/* --- GPM: utilisation of MIG slices, two samples apart ---------------------------------------- */

#if DRIVER >= 520000
typedef struct { Device *card; u32 gi; double at; } GpmSample;
API int nvmlGpmQueryDeviceSupport(Device *d, GpmSupport *out) {
    DEVICE("GpmQueryDeviceSupport");
    if (out->version != 1) return RC_VERSION;
    out->supported = (u32)number_or(d->section, "gpm", 0);
    return RC_OK;
}
API int nvmlGpmSampleAlloc(GpmSample **out) { SYSTEM("GpmSampleAlloc"); *out = calloc(1, sizeof **out); return RC_OK; }
API int nvmlGpmSampleFree(GpmSample *sample) { SYSTEM("GpmSampleFree"); free(sample); return RC_OK; }
API int nvmlGpmMigSampleGet(Device *d, u32 gi, GpmSample *sample) {
    DEVICE("GpmMigSampleGet");
    if (!number_or(d->section, "gpm", 0)) return RC_UNSUPPORTED;
    sample->card = d; sample->gi = gi; sample->at = now_s();
    return RC_OK;
}
API int nvmlGpmMetricsGet(GpmMetricsGet *get) {
    SYSTEM("GpmMetricsGet");
    if (get->version != 1) return RC_VERSION;
    GpmSample *first = get->first, *second = get->second;
    if (!first || !second || first->gi != second->gi || second->at - first->at < 0.1) return RC_INVALID;
    for (u32 i = 0; i < get->count; i++) {
        get->metrics[i].rc = RC_UNSUPPORTED;
        for (int mig = 0; mig < MAX_MIGS; mig++) {
            Device *slice = device_at(first->card->gpu, mig);
            if (number_or(slice->section, "gi", -1) != first->gi) continue;
            if (get->metrics[i].id <= 2 && number(slice->section, "util", &get->metrics[i].value)) get->metrics[i].rc = RC_OK;
        }
    }
    return RC_OK;
}
#endif
