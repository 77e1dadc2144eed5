// The functions of CUDA's driver that `driver.py` calls, on ordinary memory, for tests without a
// GPU. Strict where a GPU would fail or compute on rubbish: a thread without a context is refused,
// copies must lie within live memory, downloads arrive at the next synchronisation, and memory is
// filled with rubbish when it is made and when it is freed.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

enum { success = 0, invalid_value = 1, out_of_memory = 2, invalid_context = 201,
       illegal_address = 700 };

struct Download { void* to; uint64_t from; size_t size; };

std::map<uint64_t, size_t> live;
std::vector<Download> downloads;
std::map<std::string, int> failures;
size_t limit = 1 << 20;
int contexts = 0, streams = 0, events = 0, allocations = 0;
int context_token, stream_token, event_token;
thread_local void* current = nullptr;

int failing(char const* function) {
    auto found = failures.find(function);
    return found == failures.end() ? success : found->second;
}

size_t used() {
    size_t total = 0;
    for (auto const& block : live) total += block.second;
    return total;
}

bool within(uint64_t address, size_t size) {
    auto next = live.upper_bound(address);
    if (next == live.begin()) return false;
    auto block = std::prev(next);
    return address + size <= block->first + block->second;
}

}  // namespace

#define BEGIN(name) if (int code = failing(name)) return code;
#define BEGIN_IN_CONTEXT(name) BEGIN(name) if (!current) return invalid_context;

extern "C" {

void fake_reset() {
    for (auto const& block : live) std::free(reinterpret_cast<void*>(block.first));
    live.clear();
    downloads.clear();
    failures.clear();
    limit = 1 << 20;
    contexts = streams = events = allocations = 0;
    current = nullptr;
}
void fake_fail(char const* function, int code) { failures[function] = code; }
void fake_limit(size_t bytes) { limit = bytes; }
int fake_live() { return static_cast<int>(live.size()); }
int fake_allocations() { return allocations; }
int fake_open() { return contexts + streams + events; }
// Whether `size` bytes at the address lie in GPU memory.
int fake_within(uint64_t address, size_t size) { return within(address, size); }

int cuInit(unsigned) { BEGIN("cuInit") return success; }
int cuDriverGetVersion(int* version) { BEGIN("cuDriverGetVersion") *version = 13020; return 0; }
int cuDeviceGet(int* device, int) { BEGIN("cuDeviceGet") *device = 0; return success; }
int cuDeviceGetName(char* name, int size, int) {
    BEGIN("cuDeviceGetName")
    std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
    return success;
}
int cuDeviceGetAttribute(int* value, int which, int) {
    BEGIN("cuDeviceGetAttribute")
    if (which != 75 && which != 76) return invalid_value;
    *value = which == 75 ? 8 : 6;
    return success;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
    BEGIN("cuDevicePrimaryCtxRetain")
    ++contexts;
    *context = &context_token;
    return success;
}
int cuDevicePrimaryCtxRelease_v2(int) {
    BEGIN("cuDevicePrimaryCtxRelease_v2")
    --contexts;
    return success;
}
int cuCtxSetCurrent(void* context) { BEGIN("cuCtxSetCurrent") current = context; return success; }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
    BEGIN_IN_CONTEXT("cuMemGetInfo_v2")
    *free = limit - used();
    *total = limit;
    return success;
}
int cuMemAlloc_v2(uint64_t* address, size_t size) {
    BEGIN_IN_CONTEXT("cuMemAlloc_v2")
    if (size == 0) return invalid_value;
    if (used() + size > limit) return out_of_memory;
    void* memory = std::malloc(size);
    std::memset(memory, 0xAA, size);
    *address = reinterpret_cast<uint64_t>(memory);
    live[*address] = size;
    ++allocations;
    return success;
}
int cuMemFree_v2(uint64_t address) {
    BEGIN_IN_CONTEXT("cuMemFree_v2")
    auto found = live.find(address);
    if (found == live.end()) return invalid_value;
    std::memset(reinterpret_cast<void*>(address), 0xDD, found->second);
    std::free(reinterpret_cast<void*>(address));
    live.erase(found);
    return success;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, void const* from, size_t size, void* stream) {
    BEGIN_IN_CONTEXT("cuMemcpyHtoDAsync_v2")
    if (stream != &stream_token || size == 0) return invalid_value;
    if (!within(to, size)) return illegal_address;
    std::memcpy(reinterpret_cast<void*>(to), from, size);
    return success;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
    BEGIN_IN_CONTEXT("cuMemcpyDtoHAsync_v2")
    if (stream != &stream_token || size == 0) return invalid_value;
    if (!within(from, size)) return illegal_address;
    downloads.push_back({to, from, size});
    return success;
}
int cuStreamCreate(void** stream, unsigned) {
    BEGIN_IN_CONTEXT("cuStreamCreate")
    ++streams;
    *stream = &stream_token;
    return success;
}
int cuStreamSynchronize(void* stream) {
    BEGIN_IN_CONTEXT("cuStreamSynchronize")
    if (stream != &stream_token) return invalid_value;
    for (auto const& copy : downloads) {
        if (!within(copy.from, copy.size)) return illegal_address;
        std::memcpy(copy.to, reinterpret_cast<void*>(copy.from), copy.size);
    }
    downloads.clear();
    return success;
}
int cuStreamDestroy_v2(void*) { BEGIN_IN_CONTEXT("cuStreamDestroy_v2") --streams; return 0; }
int cuEventCreate(void** event, unsigned) {
    BEGIN_IN_CONTEXT("cuEventCreate")
    ++events;
    *event = &event_token;
    return success;
}
int cuEventRecord(void* event, void* stream) {
    BEGIN_IN_CONTEXT("cuEventRecord")
    return event == &event_token && stream == &stream_token ? success : invalid_value;
}
int cuEventElapsedTime(float* milliseconds, void*, void*) {
    BEGIN_IN_CONTEXT("cuEventElapsedTime")
    *milliseconds = 1.5F;
    return success;
}
int cuEventDestroy_v2(void*) { BEGIN_IN_CONTEXT("cuEventDestroy_v2") --events; return success; }
int cuGetErrorString(int code, char const** text) {
    if (code == out_of_memory) *text = "out of memory";
    else if (code == invalid_context) *text = "invalid device context";
    else if (code == illegal_address) *text = "an illegal memory access was encountered";
    else return invalid_value;
    return success;
}

}  // extern "C"
