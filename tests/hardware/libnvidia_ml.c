/* A stand-in for NVIDIA's libnvidia-ml.so.1, for tests: two cards that do what the environment says.
 *
 * Struct layouts and return codes are those of nvml.h 13.5. It proves that the bindings, units and error
 * paths are right; it can't prove update rates, averaging, or what a real card supports.
 *
 *   STAND_IN_CARDS=N            number of cards (2)
 *   STAND_IN_FAIL=name=code,..  calls that fail with a return code; `*` is every call about a device
 *   STAND_IN_FIELD_FAIL=n=code  fields that fail by themselves, as GetFieldValues does it
 *   STAND_IN_LOST_AFTER=N       after N calls about a device, the card is lost
 *   STAND_IN_SM_CLOCKS=a,b,..   SM clocks in MHz, one for each reading; the last one stays (2520)
 *   STAND_IN_REASONS=MASK       clocks event reasons (0)
 *   STAND_IN_SLOWDOWN=n=ns,..   nanoseconds that field n grows by with each reading (0)
 *   STAND_IN_ENERGY_STEP_MJ=N   millijoules that the counter grows by with each reading (30000)
 *   STAND_IN_PIDS=a,b           compute processes on each card
 *   STAND_IN_MEMORY_TOTAL=N     bytes (24 GiB)
 *   STAND_IN_MIG=1              card 0 is split: one slice of 10 GiB at place 2
 *   STAND_IN_TEMPERATURES=a,..  degrees Celsius, one for each reading (60)
 * With -DOLD_DRIVER the symbols of newer drivers are missing.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int ret_t;
typedef void *dev_t_;
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, LOST = 15 };

static int cards[2], slice_handle;
static int initialised, calls, sm_readings, temperature_readings, energy_readings, field_readings;

void stand_in_reset(void) {
    initialised = calls = sm_readings = temperature_readings = energy_readings = field_readings = 0;
}

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

/* Value of `key` in a list "key=value,key=value", or `otherwise`. */
static long entry(const char *name, const char *key, long otherwise) {
    const char *at = getenv(name);
    size_t length = strlen(key);
    while (at && *at) {
        if (strncmp(at, key, length) == 0 && at[length] == '=') return strtol(at + length + 1, NULL, 0);
        at = strchr(at, ',');
        if (at) at++;
    }
    return otherwise;
}

/* Element `index` of a list "a,b,c"; its last one beyond the end. */
static long element(const char *name, int index, long otherwise) {
    const char *at = getenv(name);
    long value = otherwise;
    for (; at && *at && index >= 0; index--) {
        value = strtol(at, NULL, 0);
        at = strchr(at, ',');
        if (at) at++;
    }
    return value;
}

static ret_t fails(const char *call) {
    if (!initialised) return 1;
    return (ret_t)entry("STAND_IN_FAIL", call, OK);
}

static ret_t device_fails(const char *call) {
    long lost_after = number("STAND_IN_LOST_AFTER", -1);
    ret_t code = fails(call);
    calls++;
    if (lost_after >= 0 && calls > lost_after) return LOST;
    if (code) return code;
    return (ret_t)entry("STAND_IN_FAIL", "*", OK);
}
#define SYSTEM { ret_t code_ = fails(__func__); if (code_) return code_; }
#define DEVICE { ret_t code_ = device_fails(__func__); if (code_) return code_; }
#define NO_SLICE if (device == &slice_handle) return NOT_SUPPORTED;

static int index_of(dev_t_ device) { return device == &cards[1]; }

ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ret_t code = (ret_t)entry("STAND_IN_FAIL", "nvmlInit_v2", OK);
    if (code) return code;
    initialised++; /* the driver counts, and shuts down with the last */
    return OK;
}
ret_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ret_t nvmlShutdown(void) { SYSTEM initialised--; return OK; }
const char *nvmlErrorString(ret_t code) { (void)code; return "stand-in error"; }
ret_t nvmlSystemGetDriverVersion(char *text, unsigned length) {
    SYSTEM snprintf(text, length, "580.65.06"); return OK;
}
ret_t nvmlSystemGetCudaDriverVersion_v2(int *version) { SYSTEM *version = 13000; return OK; }
ret_t nvmlDeviceGetCount_v2(unsigned *count) { SYSTEM *count = number("STAND_IN_CARDS", 2); return OK; }
ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, dev_t_ *device) {
    SYSTEM
    if (index >= 2) return INVALID;
    char key[64];
    snprintf(key, sizeof key, "card%u", index);
    *device = &cards[index];
    return (ret_t)entry("STAND_IN_FAIL", key, OK);
}

ret_t nvmlDeviceGetName(dev_t_ device, char *text, unsigned length) {
    DEVICE
    snprintf(text, length, device == &slice_handle ? "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
                           : number("STAND_IN_MIG", 0) ? "NVIDIA A100-SXM4-80GB" : "NVIDIA GeForce RTX 4090");
    return OK;
}
ret_t nvmlDeviceGetUUID(dev_t_ device, char *text, unsigned length) {
    DEVICE
    if (device == &slice_handle) snprintf(text, length, "MIG-cccccccc-0000-0000-0000-000000000003");
    else snprintf(text, length, index_of(device) ? "GPU-bbbbbbbb-0000-0000-0000-000000000002"
                                                 : "GPU-aaaaaaaa-0000-0000-0000-000000000001");
    return OK;
}
typedef struct {
    char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32];
} pci_t;
ret_t nvmlDeviceGetPciInfo_v3(dev_t_ device, pci_t *pci) {
    DEVICE NO_SLICE
    memset(pci, 0, sizeof *pci);
    pci->bus = index_of(device) ? 0x81 : 0x01;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return OK;
}
ret_t nvmlDeviceGetCudaComputeCapability(dev_t_ device, int *major, int *minor) {
    DEVICE *major = 8; *minor = 9; return OK;
}
ret_t nvmlDeviceGetNumGpuCores(dev_t_ device, unsigned *n) { DEVICE *n = 16384; return OK; }
ret_t nvmlDeviceGetMemoryBusWidth(dev_t_ device, unsigned *n) { DEVICE *n = 384; return OK; }
ret_t nvmlDeviceGetMaxClockInfo(dev_t_ device, int type, unsigned *mhz) {
    DEVICE NO_SLICE *mhz = type == 1 ? 2520 : 10501; return OK;
}
ret_t nvmlDeviceGetApplicationsClock(dev_t_ device, int type, unsigned *mhz) {
    DEVICE NO_SLICE *mhz = type == 1 ? 2235 : 10501; return OK;
}
ret_t nvmlDeviceGetClockInfo(dev_t_ device, int type, unsigned *mhz) {
    DEVICE NO_SLICE
    *mhz = type == 1 ? element("STAND_IN_SM_CLOCKS", sm_readings++, 2520) : 10501;
    return OK;
}
ret_t nvmlDeviceGetEnforcedPowerLimit(dev_t_ device, unsigned *mw) { DEVICE *mw = 450000; return OK; }
ret_t nvmlDeviceGetPowerManagementDefaultLimit(dev_t_ device, unsigned *mw) { DEVICE *mw = 450000; return OK; }
ret_t nvmlDeviceGetPowerUsage(dev_t_ device, unsigned *mw) { DEVICE NO_SLICE *mw = 300500; return OK; }
ret_t nvmlDeviceGetTotalEnergyConsumption(dev_t_ device, unsigned long long *mj) {
    DEVICE NO_SLICE
    *mj = 1000000 + (long long)number("STAND_IN_ENERGY_STEP_MJ", 30000) * energy_readings++;
    return OK;
}
ret_t nvmlDeviceGetEccMode(dev_t_ device, unsigned *now, unsigned *pending) {
    DEVICE *now = *pending = 0; return OK;
}
ret_t nvmlDeviceGetMigMode(dev_t_ device, unsigned *now, unsigned *pending) {
    DEVICE
    *now = *pending = number("STAND_IN_MIG", 0) && !index_of(device);
    return OK;
}
ret_t nvmlDeviceGetMaxMigDeviceCount(dev_t_ device, unsigned *count) { DEVICE *count = 7; return OK; }
ret_t nvmlDeviceGetMigDeviceHandleByIndex(dev_t_ device, unsigned index, dev_t_ *found) {
    DEVICE
    if (index != 2) return NOT_FOUND;
    *found = &slice_handle;
    return OK;
}
ret_t nvmlDeviceGetPersistenceMode(dev_t_ device, unsigned *on) { DEVICE *on = 0; return OK; }
ret_t nvmlDeviceGetDisplayActive(dev_t_ device, unsigned *on) { DEVICE *on = 1; return OK; }
ret_t nvmlDeviceGetPerformanceState(dev_t_ device, int *state) { DEVICE *state = 2; return OK; }
ret_t nvmlDeviceGetPcieThroughput(dev_t_ device, int counter, unsigned *kb_per_s) {
    DEVICE *kb_per_s = counter ? 2000000 : 1000000; return OK;
}
typedef struct { unsigned gpu, memory; } rates_t;
ret_t nvmlDeviceGetUtilizationRates(dev_t_ device, rates_t *rates) {
    DEVICE
    if (number("STAND_IN_MIG", 0) && !index_of(device)) return NOT_SUPPORTED;
    rates->gpu = 97; rates->memory = 41;
    return OK;
}
static unsigned long long memory_total(dev_t_ device) {
    return device == &slice_handle ? 10ull << 30 : (unsigned long long)number("STAND_IN_MEMORY_TOTAL", 24l << 30);
}
typedef struct { unsigned long long total, free, used; } memory_t;
ret_t nvmlDeviceGetMemoryInfo(dev_t_ device, memory_t *memory) {
    DEVICE
    memory->total = memory_total(device);
    memory->used = memory->total / 4;
    memory->free = memory->total - memory->used;
    return OK;
}
ret_t nvmlDeviceGetTemperature(dev_t_ device, int sensor, unsigned *celsius) {
    DEVICE NO_SLICE (void)sensor;
    *celsius = element("STAND_IN_TEMPERATURES", temperature_readings++, 60);
    return OK;
}
ret_t nvmlDeviceGetCurrentClocksThrottleReasons(dev_t_ device, unsigned long long *mask) {
    DEVICE NO_SLICE *mask = number("STAND_IN_REASONS", 0); return OK;
}
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
static ret_t processes(unsigned *count, process_t *found) {
    unsigned n = 0;
    const char *at = getenv("STAND_IN_PIDS");
    for (; at && *at; n++) {
        if (found && n < *count) {
            found[n].pid = strtol(at, NULL, 10);
            found[n].used = n ? ~0ull : 1ull << 30; /* all bits set: not available */
        }
        at = strchr(at, ',');
        if (at) at++;
    }
    ret_t code = n > (found ? *count : 0) ? SMALL : OK;
    *count = n;
    return code;
}
ret_t nvmlDeviceGetComputeRunningProcesses_v2(dev_t_ device, unsigned *count, process_t *found) {
    DEVICE return processes(count, found);
}

typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; } value_t;
typedef struct {
    unsigned id, scope; long long timestamp, latency; int type; ret_t code; value_t value;
} field_t;
ret_t nvmlDeviceGetFieldValues(dev_t_ device, int count, field_t *fields) {
    DEVICE NO_SLICE
    for (int i = 0; i < count; i++) {
        field_t *field = &fields[i];
        char key[16];
        snprintf(key, sizeof key, "%u", field->id);
        field->code = (ret_t)entry("STAND_IN_FIELD_FAIL", key, OK);
        field->value.ull = 0; /* as the driver leaves it where the field is not supported */
        field->type = 3;
        if (field->code) continue;
        switch (field->id) {
#ifndef OLD_DRIVER
        case 185: field->type = 1; field->value.ui = 299000; break;
        case 186: field->type = 1; field->value.ui = 310000; break;
        case 269: case 270: case 271:
#endif
        case 74: case 76:
            field->value.ull = 5000000000ull + (unsigned long long)entry("STAND_IN_SLOWDOWN", key, 0) * field_readings;
            break;
        case 197: case 198: field->value.ull = 1000ull * field_readings; break;
        default: field->code = NOT_SUPPORTED;
        }
    }
    if (count && fields[0].id == 74) field_readings++;
    return OK;
}

#ifndef OLD_DRIVER
typedef struct { unsigned version; int sensor; int celsius; } temperature_t;
ret_t nvmlDeviceGetTemperatureV(dev_t_ device, temperature_t *temperature) {
    DEVICE NO_SLICE
    if (temperature->version != 0x100000C) return 25;
    temperature->celsius = element("STAND_IN_TEMPERATURES", temperature_readings++, 60);
    return OK;
}
ret_t nvmlDeviceGetCurrentClocksEventReasons(dev_t_ device, unsigned long long *mask) {
    DEVICE NO_SLICE *mask = number("STAND_IN_REASONS", 0); return OK;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
ret_t nvmlDeviceGetMemoryInfo_v2(dev_t_ device, memory_v2_t *memory) {
    DEVICE
    if (memory->version != 0x02000028) return 25;
    memory->total = memory_total(device);
    memory->reserved = memory->total / 64;
    memory->used = memory->total / 8;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}
ret_t nvmlDeviceGetComputeRunningProcesses_v3(dev_t_ device, unsigned *count, process_t *found) {
    DEVICE return processes(count, found);
}
#endif
