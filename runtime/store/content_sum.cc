#include "runtime/store/content_sum.h"

#include <string.h>

#include <algorithm>

#include "runtime/base/checksum.h"

namespace weir::store {
namespace {

inline uint32_t Mix(uint32_t bits, uint32_t key) {
  uint32_t h = bits ^ key;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return h;
}

constexpr uint32_t kPlaceFactor = 0x9e3779b1u;

inline uint32_t KeyOf(uint32_t seed, uint64_t position) {
  return (static_cast<uint32_t>(position) * kPlaceFactor) ^
         (static_cast<uint32_t>(position >> 32) * 0x7feb352du) ^ seed;
}

template <typename T>
uint64_t AddRun(uint32_t seed, int64_t position, int64_t count, const uint8_t* data) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    T bits;
    memcpy(&bits, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    const uint32_t key = KeyOf(seed, static_cast<uint64_t>(position + i));
    sum += Mix(static_cast<uint32_t>(bits), key);
    if constexpr (sizeof(T) == 8)
      sum += uint64_t{Mix(static_cast<uint32_t>(bits >> 32), ~key)} << 32;
  }
  return sum;
}

// Adds elements of four bytes, eight at a time, for processors with AVX2. The result is that of
// AddRun<uint32_t>. Precondition: `count` is a multiple of 8.
using Eight = uint32_t __attribute__((vector_size(32)));
using Four = uint64_t __attribute__((vector_size(32)));

__attribute__((always_inline)) inline uint64_t AddEights(uint32_t seed, int64_t position,
                                                         int64_t count, const uint8_t* data) {
  Four sum = {};
  Eight key = {};
  for (uint32_t lane = 0; lane < 8; ++lane)
    key[lane] = (static_cast<uint32_t>(position) + lane) * kPlaceFactor;
  const uint32_t high = KeyOf(seed, static_cast<uint64_t>(position) >> 32 << 32);
  for (int64_t i = 0; i < count; i += 8) {
    Eight h;
    memcpy(&h, data + 4 * i, sizeof(h));
    h ^= key ^ high;
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    Four pairs;
    memcpy(&pairs, &h, sizeof(h));
    sum += (pairs & 0xffffffffu) + (pairs >> 32);
    key += 8 * kPlaceFactor;
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t AddEightsAvx2(uint32_t seed, int64_t position,
                                                       int64_t count, const uint8_t* data) {
  return AddEights(seed, position, count, data);
}
#endif

uint64_t AddRun32(uint32_t seed, int64_t position, int64_t count, const uint8_t* data) {
  uint64_t sum = 0;
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  // The place of an element has 32 low bits, which must not wrap within eights.
  const bool wraps = (position >> 32) != ((position + count) >> 32);
  if (has_avx2 && !wraps) {
    const int64_t eights = count / 8 * 8;
    sum = AddEightsAvx2(seed, position, eights, data);
    position += eights;
    count -= eights;
    data += 4 * eights;
  }
#endif
  return sum + AddRun<uint32_t>(seed, position, count, data);
}

uint64_t AddRunOf(uint32_t seed, int64_t width, int64_t position, int64_t count,
                  const uint8_t* data) {
  switch (width) {
    case 1: return AddRun<uint8_t>(seed, position, count, data);
    case 2: return AddRun<uint16_t>(seed, position, count, data);
    case 8: return AddRun<uint64_t>(seed, position, count, data);
    default: return AddRun32(seed, position, count, data);
  }
}

}  // namespace

uint32_t ContentSeed(const std::string& tensor) { return Crc32c(tensor.data(), tensor.size()); }

uint64_t AddContent(uint32_t seed, int64_t width, const Shape& global_shape, const Shape& offset,
                    const Shape& shape, int64_t first, int64_t count, const void* data) {
  if (count <= 0) return 0;
  // Axes from `inner` on are whole, so a run covers them and a part of axis inner - 1.
  int inner = static_cast<int>(shape.size());
  int64_t stride = 1;
  while (inner > 0 && shape[inner - 1] == global_shape[inner - 1]) stride *= shape[--inner];
  const int64_t run = stride * (inner > 0 ? shape[inner - 1] : 1);
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  uint64_t sum = 0;
  while (count > 0) {
    const int64_t within = first % run;
    int64_t rest = (first - within) / stride, position = within, step = stride;
    for (int axis = inner - 1; axis >= 0; --axis) {
      position += (offset[axis] + rest % shape[axis]) * step;
      rest /= shape[axis];
      step *= global_shape[axis];
    }
    const int64_t taken = std::min(count, run - within);
    sum += AddRunOf(seed, width, position, taken, bytes);
    bytes += taken * width;
    first += taken;
    count -= taken;
  }
  return sum;
}

}  // namespace weir::store
