#include "runtime/base/draw_numbers.h"

#include <algorithm>

#include "runtime/base/random.h"

// The processor chooses a version of a function when the program starts. No version contracts a*b+c
// into one operation, so all versions give the same bits.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEIR_FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define WEIR_FOR_EACH_PROCESSOR
#endif

namespace weir {
namespace {

constexpr size_t kCounters = 256;  // how many counters are drawn at once

WEIR_FOR_EACH_PROCESSOR
void FillWords(uint64_t key, uint64_t counter, int counters, uint32_t (*words)[kCounters]) {
  for (int i = 0; i < counters; ++i) {
    uint32_t four[4];
    WriteRandomBits(key, counter + static_cast<uint64_t>(i), four);
    for (int k = 0; k < 4; ++k) words[k][i] = four[k];
  }
}

WEIR_FOR_EACH_PROCESSOR
void FillNormals(const uint32_t (*words)[kCounters], int counters, float* numbers) {
  for (int i = 0; i < counters; ++i) {
    numbers[2 * i] = NormalFrom(words[0][i], words[1][i]);
    numbers[2 * i + 1] = NormalFrom(words[2][i], words[3][i]);
  }
}

void FillUniforms(const uint32_t (*words)[kCounters], int counters, float* numbers) {
  for (int i = 0; i < counters; ++i) {
    for (int k = 0; k < 4; ++k) numbers[4 * i + k] = ToUniform(words[k][i]);
  }
}

// Fills `out` with the numbers from `first` on of a stream in which each counter has kPer numbers.
template <int kPer, typename Fill>
void Draw(uint64_t key, uint64_t first, absl::Span<float> out, const Fill& fill) {
  uint32_t words[4][kCounters];
  float numbers[kPer * kCounters];
  for (size_t done = 0; done < out.size();) {
    const uint64_t at = first + done, counter = at / kPer, skip = at % kPer;
    const size_t count = std::min(out.size() - done, kPer * kCounters - skip);
    const int counters = static_cast<int>((skip + count + kPer - 1) / kPer);
    FillWords(key, counter, counters, words);
    fill(words, counters, numbers);
    std::copy_n(numbers + skip, count, out.data() + done);
    done += count;
  }
}

}  // namespace

void DrawUniforms(uint64_t key, uint64_t first, absl::Span<float> out) {
  Draw<4>(key, first, out, FillUniforms);
}

void DrawNormals(uint64_t key, uint64_t first, absl::Span<float> out) {
  Draw<2>(key, first, out, FillNormals);
}

}  // namespace weir
