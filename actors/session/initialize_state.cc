#include "actors/session/initialize_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/draw_numbers.h"
#include "runtime/base/random.h"
#include "runtime/base/real.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

// A slice of fewer elements is not worth another thread.
constexpr int64_t kElementsOfThread = int64_t{1} << 19;

// Numbers that are drawn at once.
constexpr int64_t kDrawn = 1024;

// Calls visit(local element, global element, count) for the elements of the rows [first, end), in
// order: `count` of them, at most kDrawn, follow one another in the shard and in the tensor. A row
// is the elements along the last dimension.
template <typename Visit>
void ForEachRun(const TensorSlice& slice, int64_t first, int64_t end, const Visit& visit) {
  const int rank = static_cast<int>(slice.shape.size());
  std::vector<int64_t> global_stride(rank, 1), at(rank, 0);
  for (int i = rank - 2; i >= 0; --i)
    global_stride[i] = global_stride[i + 1] * slice.global_shape[i + 1];
  int64_t number = first;
  for (int i = rank - 2; i >= 0; --i) {
    at[i] = number % slice.shape[i];
    number /= slice.shape[i];
  }
  const int64_t row = rank > 0 ? slice.shape[rank - 1] : 1;
  for (int64_t local = first * row; local < end * row; local += row) {
    int64_t global = 0;
    for (int i = 0; i < rank; ++i) global += (slice.offset[i] + at[i]) * global_stride[i];
    for (int64_t k = 0; k < row; k += kDrawn)
      visit(local + k, global + k, std::min(row - k, kDrawn));
    for (int i = rank - 2; i >= 0 && ++at[i] == slice.shape[i]; --i) at[i] = 0;
  }
}

// Calls fill(first, end) for ranges of rows that together are all rows of the slice, on several
// threads if the slice is large. An element depends on its number alone, so the cut into ranges
// makes no difference.
template <typename FillRows>
void ForRanges(const TensorSlice& slice, const FillRows& fill) {
  const int64_t total = slice.num_elements();
  if (total == 0) return;
  const int64_t rows = slice.shape.empty() ? 1 : total / slice.shape.back();
  const int64_t ranges =
      std::min({rows, total / kElementsOfThread + 1,
                static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()))});
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < ranges; ++i)
    threads.emplace_back(fill, rows * i / ranges, rows * (i + 1) / ranges);
  fill(0, rows / ranges);
  for (std::thread& thread : threads) thread.join();
}

void Store(const TensorSlice& slice, void* memory, int64_t element, float value) {
  switch (slice.dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: SetRealAt(slice.dtype, memory, element, value); break;
    case DType::kI32: static_cast<int32_t*>(memory)[element] = static_cast<int32_t>(value); break;
    case DType::kBool: static_cast<uint8_t*>(memory)[element] = value != 0; break;
  }
}

struct Line {
  double offset = 0, scale = 1;
};

// Fills the slice with offset + scale * x, for the numbers x that `draw` gives the elements of the
// whole tensor.
template <typename DrawNumbers>
void FillDrawn(const TensorSlice& slice, uint64_t key, const DrawNumbers& draw, const Line& line,
               void* memory) {
  ForRanges(slice, [&](int64_t first, int64_t end) {
    std::array<float, kDrawn> numbers;
    ForEachRun(slice, first, end, [&](int64_t local, int64_t global, int64_t count) {
      draw(key, static_cast<uint64_t>(global),
           absl::MakeSpan(numbers).subspan(0, static_cast<size_t>(count)));
      for (int64_t i = 0; i < count; ++i) {
        Store(slice, memory, local + i,
              static_cast<float>(line.offset + line.scale * numbers[static_cast<size_t>(i)]));
      }
    });
  });
}

}  // namespace

absl::Status InitializeState(uint64_t seed, const std::string& name, const TensorSlice& slice,
                             const PlanInitializer& init, void* memory) {
  const uint64_t key = MixKey(seed, KeyOf(name.data(), name.size()));
  const bool random =
      init.kind == PlanInitializer::Kind::kNormal || init.kind == PlanInitializer::Kind::kUniform;
  if (random && !IsReal(slice.dtype)) {
    return Rejected({"W0505", absl::StrCat("state '", name, "'"), "a real dtype for random values",
                     Name(slice.dtype), ""});
  }
  switch (init.kind) {
    case PlanInitializer::Kind::kZeros:
      if (slice.bytes() > 0) std::memset(memory, 0, slice.bytes());
      break;
    case PlanInitializer::Kind::kOnes:
      for (int64_t i = 0; i < slice.num_elements(); ++i) Store(slice, memory, i, 1.0f);
      break;
    case PlanInitializer::Kind::kNormal:
      FillDrawn(slice, key, DrawNormals, {.offset = init.b, .scale = init.a}, memory);
      break;
    case PlanInitializer::Kind::kUniform:
      FillDrawn(slice, key, DrawUniforms, {.offset = init.a, .scale = init.b - init.a}, memory);
      break;
  }
  return absl::OkStatus();
}

StateInitializer SeededInitializer(uint64_t seed) {
  return [seed](const PlanState& state, void* memory) {
    return InitializeState(seed, state.name, state.slice, state.init, memory);
  };
}

}  // namespace weir::actors
