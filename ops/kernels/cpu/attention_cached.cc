// attention_cached: the new keys and values go to their pages, then each query passes over the
// positions that it sees, page by page. A piece of work is one batch row and one head of k, whose
// slots no other piece touches.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/cached_attention_shape.h"
#include "ops/kernels/shape/pieces.h"
#include "runtime/base/status.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/attention_cached.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_ATTENTION_CACHED_ONCE
#define WEIR_OPS_KERNELS_CPU_ATTENTION_CACHED_ONCE
namespace weir::kernels {

struct CachedOperands {
  const void* q;
  const void* k;
  const void* v;
  const int32_t* positions;
  const int32_t* table;
  void* o;
  void* keys;
  void* values;
};

}  // namespace weir::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

// The pages of a row. Each position of the row has a slot: the place of its page in the pool, and
// its place in the page.
struct RowPages {
  const CachedAttentionShape& shape;
  const int32_t* table;

  // Returns the first slot of the page with `position`; -1: there is no such page in this part of
  // the pool.
  int64_t FirstSlot(int64_t position) const {
    if (position < 0 || position >= shape.slots()) return -1;
    const int64_t page = table[position / shape.page_size];
    if (page <= 0 || page < shape.first_page || page >= shape.first_page + shape.num_pages)
      return -1;
    return (page - shape.first_page) * shape.page_size;
  }
  int64_t SlotOf(int64_t position) const {
    const int64_t first = FirstSlot(position);
    return first < 0 ? -1 : first + position % shape.page_size;
  }
};

// Calls visit(first, slot, count) for the positions from `begin` to before `end`: `count` of them
// from `first` on lie from `slot` on, or have no page if `slot` is negative.
template <typename F>
void ForEachPage(const RowPages& pages, int64_t begin, int64_t end, F&& visit) {
  for (int64_t first = begin; first < end;) {
    const int64_t count =
        std::min(end - first, pages.shape.page_size - first % pages.shape.page_size);
    visit(first, pages.SlotOf(first), count);
    first += count;
  }
}

// Attends with one query to the positions from `begin` to before `end`, the last of which has a
// page. Positions without a page are not seen. Slots of keys and values are `stride` elements
// apart. `scores` has room for a number of each position, and `sum` for the width.
template <typename T>
void AttendQuery(const T* query, const T* keys, const T* values, const RowPages& pages,
                 int64_t begin, int64_t end, int64_t stride, float* scores, float* sum, T* out) {
  const int64_t width = pages.shape.width, count = end - begin;
  const float scale = pages.shape.scale;
  const auto product = [](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); };
  ForEachPage(pages, begin, end, [&](int64_t first, int64_t slot, int64_t in_page) HWY_ATTR {
    float* const of_page = scores + (first - begin);
    for (int64_t t = 0; t < in_page; ++t) {
      of_page[t] = slot < 0 ? -std::numeric_limits<float>::infinity()
                            : scale * SumOver(width, product, query, keys + (slot + t) * stride);
    }
  });
  const float max = MaxOver(scores, count);
  const VF origin = hn::Set(DF(), max);
  MapInto(
      scores, count, [&](VF score) HWY_ATTR { return Exp(hn::Sub(score, origin)); }, scores);
  const float total = SumOver(
      count, [](VF weight) HWY_ATTR { return weight; }, scores);
  std::fill(sum, sum + width, 0.0f);
  ForEachPage(pages, begin, end, [&](int64_t first, int64_t slot, int64_t in_page) HWY_ATTR {
    for (int64_t t = 0; t < in_page && slot >= 0; ++t) {
      const VF weight = hn::Set(DF(), scores[first - begin + t]);
      MapInto(
          sum, width,
          [&](VF value, VF so_far) HWY_ATTR { return hn::MulAdd(weight, value, so_far); },
          values + (slot + t) * stride, sum);
    }
  });
  const VF inverse = hn::Set(DF(), 1.0f / total);
  MapInto(
      out, width, [&](VF x) HWY_ATTR { return hn::Mul(x, inverse); }, sum);
}

// `item` counts batch rows, then heads of k. `scratch` holds a number for each position of a row,
// then the width.
void AttendCached(const CachedAttentionShape& shape, const CachedOperands& operands, int64_t item,
                  float* scratch) {
  WithReal(shape.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t row = item / shape.groups, group = item % shape.groups;
    const int64_t stride = shape.groups * shape.width;  // from a position to the next
    const int32_t* positions = operands.positions + row * shape.length;
    const RowPages pages{shape, operands.table + row * shape.entries};
    const T* k = static_cast<const T*>(operands.k) +
                 (row * shape.length * shape.groups + group) * shape.width;
    const T* v = static_cast<const T*>(operands.v) +
                 (row * shape.length * shape.groups + group) * shape.width;
    T* keys = static_cast<T*>(operands.keys) + group * shape.width;
    T* values = static_cast<T*>(operands.values) + group * shape.width;
    for (int64_t s = 0; s < shape.length; ++s) {
      const int64_t slot = pages.SlotOf(positions[s]);
      if (slot < 0) continue;
      std::memcpy(keys + slot * stride, k + s * stride, shape.width * sizeof(T));
      std::memcpy(values + slot * stride, v + s * stride, shape.width * sizeof(T));
    }
    const int64_t heads = shape.heads_per_group();
    for (int64_t s = 0; s < shape.length; ++s) {
      const int64_t end = pages.SlotOf(positions[s]) < 0 ? 0 : int64_t{positions[s]} + 1;
      const int64_t begin = shape.window > 0 ? std::max<int64_t>(0, end - shape.window) : 0;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at =
            ((row * shape.length + s) * shape.heads + group * heads + h) * shape.width;
        T* out = static_cast<T*>(operands.o) + at;
        if (end == 0) {
          std::memset(static_cast<void*>(out), 0, shape.width * sizeof(T));
          continue;
        }
        AttendQuery(static_cast<const T*>(operands.q) + at, keys, values, pages, begin, end, stride,
                    scratch, scratch + RoundUp(shape.slots(), 16), out);
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(AttendCached);

namespace {

class CachedAttentionKernel final : public Kernel {
 public:
  CachedAttentionKernel(const CachedAttentionShape& shape, int num_threads)
      : shape_(shape), num_threads_(num_threads) {}

  int64_t workspace_bytes() const override { return num_threads_ * scratch_floats() * 4; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (shape_.width == 0) return absl::OkStatus();
    const CachedOperands operands{args.inputs[0],
                                  args.inputs[1],
                                  args.inputs[2],
                                  static_cast<const int32_t*>(args.inputs[3]),
                                  static_cast<const int32_t*>(args.inputs[4]),
                                  args.outputs[0],
                                  args.outputs[1],
                                  args.outputs[2]};
    float* workspace = static_cast<float*>(launch.workspace);
    launch.team->For(shape_.batch * shape_.groups, [&](int64_t item, int worker) {
      HWY_DYNAMIC_DISPATCH(AttendCached)
      (shape_, operands, item, workspace + worker * scratch_floats());
    });
    return absl::OkStatus();
  }

 private:
  int64_t scratch_floats() const { return RoundUp(shape_.slots(), 16) + RoundUp(shape_.width, 16); }

  const CachedAttentionShape shape_;
  const int num_threads_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeCachedAttention(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const CachedAttentionShape shape, ReadCachedAttention(spec));
  return std::make_unique<CachedAttentionKernel>(shape, spec.num_threads);
}

WEIR_REGISTER_KERNEL("cpu", "attention_cached", MakeCachedAttention);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
