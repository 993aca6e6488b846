// attention_cached: the new keys and values go to their slots, then each query passes over the
// slots that it sees. A piece of work is one batch row and one head of k, whose slots no other
// piece touches.
#include <algorithm>
#include <cstring>

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

// Attends with one query to `count` slots. Rows of keys and values are `stride` elements apart.
// `scores` has room for `count` numbers, and `sum` for the width.
template <typename T>
void AttendQuery(const T* query, const T* keys, const T* values, int64_t count, int64_t stride,
                 int64_t width, float scale, float* scores, float* sum, T* out) {
  const auto product = [](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); };
  for (int64_t t = 0; t < count; ++t)
    scores[t] = scale * SumOver(width, product, query, keys + t * stride);
  const float max = MaxOver(scores, count);
  const VF origin = hn::Set(DF(), max);
  MapInto(
      scores, count, [&](VF score) HWY_ATTR { return Exp(hn::Sub(score, origin)); }, scores);
  const float total = SumOver(
      count, [](VF weight) HWY_ATTR { return weight; }, scores);
  std::fill(sum, sum + width, 0.0f);
  for (int64_t t = 0; t < count; ++t) {
    const VF weight = hn::Set(DF(), scores[t]);
    MapInto(
        sum, width, [&](VF value, VF so_far) HWY_ATTR { return hn::MulAdd(weight, value, so_far); },
        values + t * stride, sum);
  }
  const VF inverse = hn::Set(DF(), 1.0f / total);
  MapInto(
      out, width, [&](VF x) HWY_ATTR { return hn::Mul(x, inverse); }, sum);
}

// `item` counts batch rows, then heads of k. `scratch` holds a number for each slot, then the
// width.
void AttendCached(const CachedAttentionShape& shape, const CachedOperands& operands, int64_t item,
                  float* scratch) {
  WithReal(shape.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t row = item / shape.groups, group = item % shape.groups;
    const int64_t stride = shape.groups * shape.width;  // from a position to the next
    const int32_t* positions = operands.positions + row * shape.length;
    const T* k = static_cast<const T*>(operands.k) +
                 (row * shape.length * shape.groups + group) * shape.width;
    const T* v = static_cast<const T*>(operands.v) +
                 (row * shape.length * shape.groups + group) * shape.width;
    T* keys =
        static_cast<T*>(operands.keys) + (row * shape.slots * shape.groups + group) * shape.width;
    T* values =
        static_cast<T*>(operands.values) + (row * shape.slots * shape.groups + group) * shape.width;
    const auto is_slot = [&](int64_t position) { return position >= 0 && position < shape.slots; };
    for (int64_t s = 0; s < shape.length; ++s) {
      if (!is_slot(positions[s])) continue;
      std::memcpy(keys + positions[s] * stride, k + s * stride, shape.width * sizeof(T));
      std::memcpy(values + positions[s] * stride, v + s * stride, shape.width * sizeof(T));
    }
    const int64_t heads = shape.heads_per_group();
    for (int64_t s = 0; s < shape.length; ++s) {
      const int64_t end = is_slot(positions[s]) ? positions[s] + 1 : 0;
      const int64_t begin = shape.window > 0 ? std::max<int64_t>(0, end - shape.window) : 0;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at =
            ((row * shape.length + s) * shape.heads + group * heads + h) * shape.width;
        T* out = static_cast<T*>(operands.o) + at;
        if (end == 0) {
          std::memset(static_cast<void*>(out), 0, shape.width * sizeof(T));
          continue;
        }
        AttendQuery(static_cast<const T*>(operands.q) + at, keys + begin * stride,
                    values + begin * stride, end - begin, stride, shape.width, shape.scale, scratch,
                    scratch + RoundUp(shape.slots, 16), out);
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
    const CachedOperands operands{args.inputs[0],  args.inputs[1],
                                  args.inputs[2],  static_cast<const int32_t*>(args.inputs[3]),
                                  args.outputs[0], args.outputs[1],
                                  args.outputs[2]};
    float* workspace = static_cast<float*>(launch.workspace);
    launch.team->For(shape_.batch * shape_.groups, [&](int64_t item, int worker) {
      HWY_DYNAMIC_DISPATCH(AttendCached)
      (shape_, operands, item, workspace + worker * scratch_floats());
    });
    return absl::OkStatus();
  }

 private:
  int64_t scratch_floats() const { return RoundUp(shape_.slots, 16) + RoundUp(shape_.width, 16); }

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
