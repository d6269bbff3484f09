/* The scenario file: INI, read from $GPUMON_FAKE_NVML and read again when it changes.
 *
 *   [system]            driver= nvml= cuda= rc.<Call>= delay_ms.<Call>= hang.<Call>=1 epoch=
 *   [gpu0]              values of one card; a value that is not given is "not supported"
 *   [gpu0.mig1]         one MIG slice; the number is its index, so that there can be gaps
 *   [gpu0.proc0]        one process
 *
 * <Call> is the C name without "nvml"; rc.* stands for every call on that card. A number may be
 *   73          constant        80Gi        with Ki, Mi, Gi
 *   10>50>90@2  a step each 2 s, for ever round
 *   40..95/30   a sine with a period of 30 s
 *   1000+250    1000 and 250 more per second since boot
 */
#ifndef GPUMON_SCENARIO_H
#define GPUMON_SCENARIO_H

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_ENTRIES 8192
#define BUCKETS 4096
typedef struct { char section[24]; char key[48]; char *value; int next; } Entry;
static Entry entries[MAX_ENTRIES];
static int entry_count;
static int buckets[BUCKETS]; /* place + 1 of the newest entry; the mock must not cost more than
                                the reader that is measured on it */
static struct timespec read_mtime;
static off_t read_size = -1;
static pthread_mutex_t scenario_lock = PTHREAD_MUTEX_INITIALIZER;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned bucket_of(const char *section, const char *key) {
    unsigned hash = 2166136261u;
    for (; *section; section++) hash = (hash ^ (unsigned char)*section) * 16777619u;
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash % BUCKETS;
}

static void add(const char *section, const char *key, const char *value) {
    if (entry_count == MAX_ENTRIES) return;
    Entry *entry = &entries[entry_count++];
    snprintf(entry->section, sizeof entry->section, "%s", section);
    snprintf(entry->key, sizeof entry->key, "%s", key);
    entry->value = strdup(value);
    int *bucket = &buckets[bucket_of(entry->section, entry->key)];
    entry->next = *bucket;
    *bucket = entry_count;
}

static const char *find(const char *section, const char *key) {
    for (int i = buckets[bucket_of(section, key)]; i; i = entries[i - 1].next)
        if (!strcmp(entries[i - 1].key, key) && !strcmp(entries[i - 1].section, section))
            return entries[i - 1].value;
    return NULL;
}

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

static void load(const char *path) {
    for (int i = 0; i < entry_count; i++) free(entries[i].value);
    entry_count = 0;
    memset(buckets, 0, sizeof buckets);
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[4096], section[24] = "system";
    while (fgets(line, sizeof line, file)) {
        char *text = trimmed(line);
        if (*text == 0 || *text == '#' || *text == ';') continue;
        if (*text == '[') {
            char *end = strchr(text, ']');
            if (end) *end = 0;
            snprintf(section, sizeof section, "%s", text + 1);
            add(section, "", "");
            continue;
        }
        char *equals = strchr(text, '=');
        if (!equals) continue;
        *equals = 0;
        add(section, trimmed(text), trimmed(equals + 1));
    }
    fclose(file);
}

/* Must be called with the lock held. */
static void reload(void) {
    const char *path = getenv("GPUMON_FAKE_NVML");
    struct stat info;
    if (!path || stat(path, &info)) return;
    if (info.st_size == read_size && info.st_mtim.tv_sec == read_mtime.tv_sec &&
        info.st_mtim.tv_nsec == read_mtime.tv_nsec) return;
    read_size = info.st_size;
    read_mtime = info.st_mtim;
    load(path);
}

static int has_section(const char *section) { return find(section, "") != NULL; }

static double scaled(const char *text, char **end) {
    double value = (text[0] == '0' && (text[1] | 32) == 'x') ? (double)strtoull(text, end, 16)
                                                             : strtod(text, end);
    if ((*end)[-1] == '.' && **end == '.') (*end)--; /* "40..95": strtod takes the first dot */
    const char *units = "KMG";
    const char *unit = **end ? strchr(units, **end) : NULL;
    if (unit && (*end)[1] == 'i') {
        for (long n = unit - units; n >= 0; n--) value *= 1024;
        *end += 2;
    }
    return value;
}

static double evaluated(const char *text) {
    char *end;
    double first = scaled(text, &end), now = now_s();
    if (*end == '+') return first + scaled(end + 1, &end) * now;
    if (end[0] == '.' && end[1] == '.') {
        double high = scaled(end + 2, &end), period = *end == '/' ? strtod(end + 1, &end) : 60;
        return first + (high - first) * (0.5 + 0.5 * sin(2 * M_PI * now / period));
    }
    if (*end == '>') {
        double steps[64] = {first}, each = 1;
        int count = 1;
        while (*end == '>' && count < 64) steps[count++] = scaled(end + 1, &end);
        if (*end == '@') each = strtod(end + 1, NULL);
        return steps[(long)(now / each) % count];
    }
    return first;
}

/* 1 and the value, or 0 where the scenario does not give one ("na" is none too). */
static int number(const char *section, const char *key, double *value) {
    pthread_mutex_lock(&scenario_lock);
    const char *text = find(section, key);
    int given = text && *text && strcmp(text, "na");
    if (given) *value = evaluated(text);
    pthread_mutex_unlock(&scenario_lock);
    return given;
}

static double number_or(const char *section, const char *key, double otherwise) {
    double value;
    return number(section, key, &value) ? value : otherwise;
}

/* A text; \xHH stands for a byte, so that a name need not be UTF-8. */
static int text_of(const char *section, const char *key, char *out, unsigned size) {
    pthread_mutex_lock(&scenario_lock);
    const char *text = find(section, key);
    unsigned length = 0;
    for (const char *p = text; p && *p && length + 1 < size; p++) {
        unsigned byte;
        if (p[0] == '\\' && p[1] == 'x' && sscanf(p + 2, "%2x", &byte) == 1) {
            out[length++] = (char)byte;
            p += 3;
        } else out[length++] = *p;
    }
    if (size) out[length] = 0;
    pthread_mutex_unlock(&scenario_lock);
    return text != NULL;
}

static int section_exists(const char *section) {
    pthread_mutex_lock(&scenario_lock);
    int there = has_section(section);
    pthread_mutex_unlock(&scenario_lock);
    return there;
}

/* One line per call into $GPUMON_FAKE_NVML_LOG: what a reader touched, and what it left alone. */
static void log_call(const char *section, const char *call) {
    const char *path = getenv("GPUMON_FAKE_NVML_LOG");
    if (!path) return;
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%s %s\n", section, call);
    fclose(file);
}

static int flag(const char *section, const char *kind, const char *call, double *value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", kind, call);
    return number(section, key, value);
}

/* What the scenario has in store for a call: it may take long, never return, or fail. */
static int injected(const char *section, const char *call) {
    double value;
    pthread_mutex_lock(&scenario_lock);
    reload();
    pthread_mutex_unlock(&scenario_lock);
    log_call(section, call);
    while ((flag(section, "hang", call, &value) || flag("system", "hang", call, &value)) && value) {
        usleep(10000);
        pthread_mutex_lock(&scenario_lock);
        reload();
        pthread_mutex_unlock(&scenario_lock);
    }
    if (flag(section, "delay_ms", call, &value) || flag("system", "delay_ms", call, &value))
        usleep((useconds_t)(value * 1000));
    if (flag(section, "rc", call, &value) || flag("system", "rc", call, &value)) return (int)value;
    if (strcmp(section, "system") && flag(section, "rc", "*", &value)) return (int)value;
    return 0;
}

#endif
