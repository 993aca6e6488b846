// attention: blocks of keys pass a tile of queries, whose maxima, sums and results are corrected
// when larger scores appear. At most one block of scores exists at a time.
#include <cmath>
#include <limits>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/attention_shape.h"
#include "runtime/base/status.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/attention-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_ATTENTION_ONCE
#define WEIR_OPS_KERNELS_CPU_ATTENTION_ONCE
namespace weir::kernels {

struct AttentionOperands {
  const void* q;
  const void* k;
  const void* v;
  const void* mask;  // null: none
  void* o;
  float* lse;  // may be null
};

// The memory of a worker for one tile, all f32.
struct AttentionScratch {
  float* rows;       // [kAttentionTile, padded]: queries, keys or values, then results
  float* queries_t;  // [padded, kAttentionTile], in units of log2
  float* result_t;   // [padded, kAttentionTile]
  float* scores;     // [kAttentionTile, kAttentionTile]
  float* max;        // [kAttentionTile] each
  float* sum;
  float* rescale;

  static int64_t Floats(int64_t padded) {
    return kAttentionTile * (3 * padded + kAttentionTile + 3);
  }
  AttentionScratch(float* base, int64_t padded) {
    rows = base;
    queries_t = rows + kAttentionTile * padded;
    result_t = queries_t + kAttentionTile * padded;
    scores = result_t + kAttentionTile * padded;
    max = scores + kAttentionTile * kAttentionTile;
    sum = max + kAttentionTile;
    rescale = sum + kAttentionTile;
  }
};

}  // namespace weir::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

// Turns the scores of one vector of queries into 2^(score - max). The running max and sum follow,
// and `rescale` is the factor for earlier sums and results.
HWY_INLINE void SoftmaxColumn(float* scores, int64_t keys, float* max, float* sum, float* rescale) {
  const DF d;
  const VF old_max = hn::LoadU(d, max);
  VF max0 = old_max, max1 = old_max, max2 = old_max, max3 = old_max;
  int64_t key = 0;
  for (; key + 4 <= keys; key += 4) {
    const float* at = scores + key * kAttentionTile;
    max0 = hn::Max(max0, hn::LoadU(d, at));
    max1 = hn::Max(max1, hn::LoadU(d, at + kAttentionTile));
    max2 = hn::Max(max2, hn::LoadU(d, at + 2 * kAttentionTile));
    max3 = hn::Max(max3, hn::LoadU(d, at + 3 * kAttentionTile));
  }
  for (; key < keys; ++key) max0 = hn::Max(max0, hn::LoadU(d, scores + key * kAttentionTile));
  const VF new_max = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  // Where no key was seen so far, scores are measured from 0, so that weights are 0 and not NaN.
  const VF lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const VF origin = hn::IfThenElse(hn::Eq(new_max, lowest), hn::Zero(d), new_max);
  const VF factor = Exp2(hn::Sub(old_max, origin));
  VF total = hn::Zero(d);
  for (key = 0; key < keys; ++key) {
    float* at = scores + key * kAttentionTile;
    VF weight = Exp2(hn::Sub(hn::LoadU(d, at), origin));
    total = hn::Add(total, weight);
    hn::StoreU(weight, d, at);
  }
  hn::StoreU(new_max, d, max);
  hn::StoreU(factor, d, rescale);
  hn::StoreU(hn::MulAdd(hn::LoadU(d, sum), factor, total), d, sum);
}

HWY_INLINE void SoftmaxBlock(const Block& block, int64_t width, const AttentionScratch& scratch) {
  const DF d;
  const int64_t lanes = NumLanes();
  for (int64_t vector = 0; vector < block.vectors(); ++vector) {
    HideLaterKeys(block, vector, -std::numeric_limits<float>::infinity(), scratch.scores);
    HideEarlierKeys(block, vector, -std::numeric_limits<float>::infinity(), scratch.scores);
    int64_t at = vector * lanes;
    SoftmaxColumn(scratch.scores + at, block.keys_seen(vector), scratch.max + at, scratch.sum + at,
                  scratch.rescale + at);
    const VF factor = hn::LoadU(d, scratch.rescale + at);
    for (int64_t i = 0; i < width; ++i) {
      float* result = scratch.result_t + i * kAttentionTile + at;
      hn::StoreU(hn::Mul(hn::LoadU(d, result), factor), d, result);
    }
  }
}

template <class T>
void AttendTyped(const AttentionShape& shape, const AttentionOperands& operands, int64_t of_batch,
                 int64_t head, int64_t tile, const AttentionScratch& scratch) {
  const DF d;
  const int64_t padded = shape.padded_width(), width = shape.width;
  const int64_t queries = shape.tile_queries(tile), first = tile * kAttentionTile;
  const int64_t query_stride = shape.heads * width, key_stride = shape.groups * width;
  const int64_t group = head / shape.heads_per_group();
  const int64_t at_query = shape.QueryBegin(of_batch, first, head);
  LoadRows(static_cast<const T*>(operands.q) + at_query, query_stride, queries, width, padded,
           scratch.rows);
  std::fill(scratch.rows + queries * padded, scratch.rows + kAttentionTile * padded, 0.0f);
  const VF scale = hn::Set(d, shape.scale * kLog2E);
  MapInto(
      scratch.rows, queries * padded, [&](VF v) HWY_ATTR { return hn::Mul(v, scale); },
      static_cast<const float*>(scratch.rows));
  Transpose({scratch.rows, padded}, kAttentionTile, padded, {scratch.queries_t, kAttentionTile});
  std::fill(scratch.result_t, scratch.result_t + padded * kAttentionTile, 0.0f);
  std::fill(scratch.max, scratch.max + kAttentionTile, -std::numeric_limits<float>::infinity());
  std::fill(scratch.sum, scratch.sum + kAttentionTile, 0.0f);
  const int64_t first_block = shape.first_block(tile), end_block = shape.end_block(tile);
  for (int64_t n = first_block; n < end_block; ++n) {
    // With a window the last block comes first, in which every query sees a key: the maxima are
    // then finite when a query meets a block of which it sees nothing.
    const int64_t b = shape.window > 0 ? first_block + end_block - 1 - n : n;
    const Block block = BlockOf(shape, tile, b);
    const int64_t at_key = shape.KeyBegin(of_batch, b * kAttentionTile, group);
    LoadRows(static_cast<const T*>(operands.k) + at_key, key_stride, block.keys, width, padded,
             scratch.rows);
    KeysTimesQueries(block, scratch.rows, padded, width, scratch.queries_t, scratch.scores);
    AddMask(shape, operands.mask, of_batch, head, tile, b, block, scratch.scores);
    SoftmaxBlock(block, width, scratch);
    LoadRows(static_cast<const T*>(operands.v) + at_key, key_stride, block.keys, width, padded,
             scratch.rows);
    WeightedKeys(block, scratch.rows, padded, width, scratch.scores, scratch.result_t);
  }
  const int64_t vectors = Block{queries, 0, false}.vectors();
  for (int64_t at = 0; at < vectors * NumLanes(); at += NumLanes()) {
    // The result of a query that sees no key is 0.
    const VF sum = hn::LoadU(d, scratch.sum + at);
    const VF inverse =
        hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Zero(d), hn::Div(hn::Set(d, 1.0f), sum));
    for (int64_t i = 0; i < width; ++i) {
      float* result = scratch.result_t + i * kAttentionTile + at;
      hn::StoreU(hn::Mul(hn::LoadU(d, result), inverse), d, result);
    }
  }
  Transpose({scratch.result_t, kAttentionTile}, padded, kAttentionTile, {scratch.rows, padded});
  StoreRows(scratch.rows, padded, queries, width, 1.0f, static_cast<T*>(operands.o) + at_query,
            query_stride);
  if (!operands.lse) return;
  float* lse = operands.lse + (of_batch * shape.heads + head) * shape.length + first;
  for (int64_t i = 0; i < queries; ++i) lse[i] = scratch.max[i] / kLog2E + std::log(scratch.sum[i]);
}

// `item` counts batch, then head, then tile from the last tile down.
void Attend(const AttentionShape& shape, const AttentionOperands& operands, int64_t item,
            float* base) {
  const int64_t tile = shape.num_tiles() - 1 - item % shape.num_tiles();
  const int64_t row = item / shape.num_tiles();
  const AttentionScratch scratch(base, shape.padded_width());
  WithReal(shape.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    AttendTyped<T>(shape, operands, row / shape.heads, row % shape.heads, tile, scratch);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(Attend);

namespace {

// The number of multiply-adds that make a piece worth waking a thread.
constexpr int64_t kPieceProducts = 200000;

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const AttentionShape& shape, int num_threads)
      : shape_(shape),
        num_threads_(num_threads),
        items_(Pieces::OfRows(shape.batch * shape.heads * shape.num_tiles(),
                              2 * shape.head_products() / std::max<int64_t>(1, shape.num_tiles()),
                              kPieceProducts)) {}

  int64_t workspace_bytes() const override { return num_threads_ * scratch_floats() * 4; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const AttentionOperands operands{
        args.inputs[0],  args.inputs[1],
        args.inputs[2],  args.inputs.size() > 3 ? args.inputs[3] : nullptr,
        args.outputs[0], args.outputs.size() > 1 ? static_cast<float*>(args.outputs[1]) : nullptr};
    float* workspace = static_cast<float*>(launch.workspace);
    launch.team->For(items_.count(), [&](int64_t piece, int worker) {
      for (int64_t item = items_.begin(piece); item < items_.end(piece); ++item) {
        HWY_DYNAMIC_DISPATCH(Attend)(shape_, operands, item, workspace + worker * scratch_floats());
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t scratch_floats() const { return AttentionScratch::Floats(shape_.padded_width()); }

  const AttentionShape shape_;
  const int num_threads_;
  const Pieces items_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeAttention(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttention(spec));
  return std::make_unique<AttentionKernel>(shape, spec.num_threads);
}

WEIR_REGISTER_KERNEL("cpu", "attention", MakeAttention);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
