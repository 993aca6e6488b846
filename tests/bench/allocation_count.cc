#include "tests/bench/allocation_count.h"

#include <errno.h>

#include <atomic>
#include <cstddef>

namespace {

// A relaxed counter: it orders nothing.
std::atomic<int64_t> num_allocations{0};

void Count() { num_allocations.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

namespace weir::bench {

int64_t NumAllocations() { return num_allocations.load(std::memory_order_relaxed); }

}  // namespace weir::bench

extern "C" {

// The allocation functions of glibc under their internal names.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  Count();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  Count();
  void* memory = __libc_memalign(alignment, size);
  if (memory == nullptr && size != 0) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"
