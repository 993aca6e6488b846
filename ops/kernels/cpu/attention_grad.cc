// attention_grad: the scores of a tile of queries and a block of keys are computed again
// from lse. With P = 2^(score - lse), D = do . o and dS = P (do v^T - D):
//   dv += P^T do,   dq += dS k scale,   dk += dS^T q scale,
// and dS is the gradient of a mask that is added to the scores.
//
// A piece is some tiles of one (batch, key head) against all their keys. dq belongs to
// its tile; dk and dv are summed per piece in f32. Where (batch, key head) alone gives too
// few pieces, tiles are dealt out to several, whose sums are then added in order.
#include <cmath>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/attention_shape.h"
#include "runtime/base/status.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/attention_grad.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/attention-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_ATTENTION_GRAD_ONCE
#define WEIR_OPS_KERNELS_CPU_ATTENTION_GRAD_ONCE
namespace weir::kernels {

struct AttentionGradOperands {
  const void* q;
  const void* k;
  const void* v;
  const void* o;
  const float* lse;
  const void* d_o;
  const void* mask;  // null: none
  void* dq;
  void* dk;
  void* dv;
  float* d_scores;  // null: not wanted
};

// Holds sums over the queries of a piece: dk, then dv, [keys, padded] each.
struct KeyGradients {
  float* dk;
  float* dv;

  static int64_t Floats(const AttentionShape& shape) {
    return 2 * shape.keys * shape.padded_width();
  }
  KeyGradients(float* base, const AttentionShape& shape) : dk(base), dv(base + Floats(shape) / 2) {}
};

// The memory of a worker, all f32.
struct AttentionGradScratch {
  float* keys;  // [keys, padded]
  float* values;
  float* queries;  // [kAttentionTile, padded]
  float* d_results;
  float* dqueries;
  float* queries_t;  // [padded, kAttentionTile], in units of log2
  float* d_results_t;
  float* dqueries_t;
  float* weights;  // [kAttentionTile, kAttentionTile]
  float* d_scores;
  float* lse;    // [kAttentionTile], in units of log2
  float* inner;  // [kAttentionTile], D

  static int64_t Floats(const AttentionShape& shape) {
    return (2 * shape.keys + 6 * kAttentionTile) * shape.padded_width() +
           2 * kAttentionTile * (kAttentionTile + 1);
  }
  AttentionGradScratch(float* base, const AttentionShape& shape) {
    const int64_t padded = shape.padded_width();
    auto take = [&](int64_t floats) {
      float* taken = base;
      base += floats;
      return taken;
    };
    keys = take(shape.keys * padded);
    values = take(shape.keys * padded);
    for (float** rows : {&queries, &d_results, &dqueries, &queries_t, &d_results_t, &dqueries_t}) {
      *rows = take(kAttentionTile * padded);
    }
    weights = take(kAttentionTile * kAttentionTile);
    d_scores = take(kAttentionTile * kAttentionTile);
    lse = take(kAttentionTile);
    inner = take(kAttentionTile);
  }
};

// The tiles of a piece: every `step`-th of the (head of the group, tile) from `first` on.
struct AttentionGradPiece {
  int64_t batch, group, first, step;
};

}  // namespace weir::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void LoadTile(const AttentionShape& shape, const AttentionGradOperands& operands, int64_t of_batch,
              int64_t head, int64_t tile, const AttentionGradScratch& scratch) {
  const int64_t padded = shape.padded_width(), width = shape.width, stride = shape.heads * width;
  const int64_t queries = shape.tile_queries(tile), first = tile * kAttentionTile;
  const int64_t at = shape.QueryBegin(of_batch, first, head);
  const T* o = static_cast<const T*>(operands.o) + at;
  for (float* rows : {scratch.queries, scratch.d_results}) {
    std::fill(rows + queries * padded, rows + kAttentionTile * padded, 0.0f);
  }
  LoadRows(static_cast<const T*>(operands.q) + at, stride, queries, width, padded, scratch.queries);
  LoadRows(static_cast<const T*>(operands.d_o) + at, stride, queries, width, padded,
           scratch.d_results);
  const float* lse = operands.lse + (of_batch * shape.heads + head) * shape.length + first;
  for (int64_t i = 0; i < kAttentionTile; ++i) {
    // The scores of a query that sees no key are -inf. Measured from 0, their weights are 0.
    const bool sees_none = i < queries && std::isinf(lse[i]) && lse[i] < 0;
    scratch.lse[i] = i < queries && !sees_none ? lse[i] * kLog2E : 0.0f;
    auto product = [](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); };
    const float* d_result = scratch.d_results + i * padded;
    scratch.inner[i] = i < queries ? SumOver(width, product, d_result, o + i * stride) : 0.0f;
  }
  Transpose({scratch.d_results, padded}, kAttentionTile, padded,
            {scratch.d_results_t, kAttentionTile});
  Transpose({scratch.queries, padded}, kAttentionTile, padded, {scratch.queries_t, kAttentionTile});
  const VF scale = hn::Set(DF(), shape.scale * kLog2E);
  MapInto(
      scratch.queries_t, padded * kAttentionTile, [&](VF v) HWY_ATTR { return hn::Mul(v, scale); },
      static_cast<const float*>(scratch.queries_t));
}

// weights: scores become P. d_scores: do v^T becomes dS.
HWY_INLINE void SoftmaxGradBlock(const Block& block, const AttentionGradScratch& scratch) {
  const DF d;
  const VF most = hn::Set(d, 126.0f);
  for (int64_t vector = 0; vector < block.vectors(); ++vector) {
    const int64_t at = vector * NumLanes();
    HideLaterKeys(block, vector, -std::numeric_limits<float>::infinity(), scratch.weights);
    HideEarlierKeys(block, vector, -std::numeric_limits<float>::infinity(), scratch.weights);
    const VF lse = hn::LoadU(d, scratch.lse + at), inner = hn::LoadU(d, scratch.inner + at);
    for (int64_t key = 0; key < block.keys_seen(vector); ++key) {
      float* weight = scratch.weights + key * kAttentionTile + at;
      float* d_score = scratch.d_scores + key * kAttentionTile + at;
      VF exponent = hn::Sub(hn::LoadU(d, weight), lse);
      VF p = Exp2(hn::IfThenElse(hn::Gt(exponent, most), most, exponent));
      hn::StoreU(p, d, weight);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, d_score), inner)), d, d_score);
    }
  }
}

// Copies dS of block `b` to its place in [batch, heads, queries, keys]. What the causal mask hides
// is 0.
HWY_INLINE void StoreScoreGradients(const AttentionShape& shape,
                                    const AttentionGradOperands& operands, int64_t of_batch,
                                    int64_t head, int64_t tile, int64_t b, const Block& block,
                                    const AttentionGradScratch& scratch) {
  const int64_t first = tile * kAttentionTile;
  for (int64_t query = 0; query < block.queries; ++query) {
    float* to = operands.d_scores +
                ((of_batch * shape.heads + head) * shape.length + first + query) * shape.keys +
                b * kAttentionTile;
    const int64_t seen = block.on_diagonal ? std::min(block.keys, query + 1) : block.keys;
    for (int64_t key = 0; key < seen; ++key)
      to[key] = scratch.d_scores[key * kAttentionTile + query];
  }
}

// Sets dS of a tile to 0.
HWY_INLINE void ClearScoreGradients(const AttentionShape& shape,
                                    const AttentionGradOperands& operands, int64_t of_batch,
                                    int64_t head, int64_t tile) {
  float* begin =
      operands.d_scores +
      ((of_batch * shape.heads + head) * shape.length + tile * kAttentionTile) * shape.keys;
  std::fill(begin, begin + shape.tile_queries(tile) * shape.keys, 0.0f);
}

template <class T>
void GradOfPiece(const AttentionShape& shape, const AttentionGradOperands& operands,
                 const AttentionGradPiece& piece, const KeyGradients& sums,
                 const AttentionGradScratch& scratch) {
  const int64_t padded = shape.padded_width(), width = shape.width,
                key_stride = shape.groups * width;
  const int64_t at_keys = shape.KeyBegin(piece.batch, 0, piece.group);
  LoadRows(static_cast<const T*>(operands.k) + at_keys, key_stride, shape.keys, width, padded,
           scratch.keys);
  LoadRows(static_cast<const T*>(operands.v) + at_keys, key_stride, shape.keys, width, padded,
           scratch.values);
  std::fill(sums.dk, sums.dk + KeyGradients::Floats(shape), 0.0f);
  const int64_t num_items = shape.heads_per_group() * shape.num_tiles();
  for (int64_t item = piece.first; item < num_items; item += piece.step) {
    const int64_t tile = item % shape.num_tiles();
    const int64_t head = piece.group * shape.heads_per_group() + item / shape.num_tiles();
    LoadTile<T>(shape, operands, piece.batch, head, tile, scratch);
    std::fill(scratch.dqueries_t, scratch.dqueries_t + padded * kAttentionTile, 0.0f);
    if (operands.d_scores != nullptr) ClearScoreGradients(shape, operands, piece.batch, head, tile);
    for (int64_t b = shape.first_block(tile); b < shape.end_block(tile); ++b) {
      const Block block = BlockOf(shape, tile, b);
      const int64_t at = b * kAttentionTile * padded;
      KeysTimesQueries(block, scratch.keys + at, padded, width, scratch.queries_t, scratch.weights);
      KeysTimesQueries(block, scratch.values + at, padded, width, scratch.d_results_t,
                       scratch.d_scores);
      AddMask(shape, operands.mask, piece.batch, head, tile, b, block, scratch.weights);
      SoftmaxGradBlock(block, scratch);
      if (operands.d_scores != nullptr)
        StoreScoreGradients(shape, operands, piece.batch, head, tile, b, block, scratch);
      WeightedQueries(block, scratch.weights, scratch.d_results, padded, sums.dv + at);
      WeightedQueries(block, scratch.d_scores, scratch.queries, padded, sums.dk + at);
      WeightedKeys(block, scratch.keys + at, padded, width, scratch.d_scores, scratch.dqueries_t);
    }
    Transpose({scratch.dqueries_t, kAttentionTile}, padded, kAttentionTile,
              {scratch.dqueries, padded});
    const int64_t at = shape.QueryBegin(piece.batch, tile * kAttentionTile, head);
    StoreRows(scratch.dqueries, padded, shape.tile_queries(tile), width, shape.scale,
              static_cast<T*>(operands.dq) + at, shape.heads * width);
  }
}

// Stores positions [begin, end) of finished sums.
template <class T>
void StoreKeyGradients(const AttentionShape& shape, const AttentionGradOperands& operands,
                       int64_t of_batch, int64_t group, const KeyGradients& sums, int64_t begin,
                       int64_t end) {
  const int64_t padded = shape.padded_width(), stride = shape.groups * shape.width;
  const int64_t at = shape.KeyBegin(of_batch, begin, group);
  StoreRows(sums.dk + begin * padded, padded, end - begin, shape.width, shape.scale,
            static_cast<T*>(operands.dk) + at, stride);
  StoreRows(sums.dv + begin * padded, padded, end - begin, shape.width, 1.0f,
            static_cast<T*>(operands.dv) + at, stride);
}

// The whole of (batch, group): one piece, summed in scratch.
void GradOfGroup(const AttentionShape& shape, const AttentionGradOperands& operands,
                 const AttentionGradPiece& piece, float* base) {
  const AttentionGradScratch scratch(base, shape);
  const KeyGradients sums(base + AttentionGradScratch::Floats(shape), shape);
  WithReal(shape.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    GradOfPiece<T>(shape, operands, piece, sums, scratch);
    StoreKeyGradients<T>(shape, operands, piece.batch, piece.group, sums, 0, shape.keys);
  });
}

// Computes a share of (batch, group): its sums stay in place.
void GradOfShare(const AttentionShape& shape, const AttentionGradOperands& operands,
                 const AttentionGradPiece& piece, float* share, float* base) {
  WithReal(shape.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    GradOfPiece<T>(shape, operands, piece, KeyGradients(share, shape),
                   AttentionGradScratch(base, shape));
  });
}

// Adds positions [begin, end) of `num_shares` shares, in order, into the first share, and stores
// them.
void CombineShares(const AttentionShape& shape, const AttentionGradOperands& operands,
                   int64_t of_batch, int64_t group, float* shares, int64_t num_shares,
                   int64_t begin, int64_t end) {
  const int64_t padded = shape.padded_width();
  const KeyGradients first(shares, shape);
  for (int64_t i = 1; i < num_shares; ++i) {
    const KeyGradients share(shares + i * KeyGradients::Floats(shape), shape);
    for (auto [to, from] : {std::pair(first.dk, share.dk), std::pair(first.dv, share.dv)}) {
      MapInto(
          to + begin * padded, (end - begin) * padded,
          [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); },
          static_cast<const float*>(to) + begin * padded,
          static_cast<const float*>(from) + begin * padded);
    }
  }
  WithReal(shape.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    StoreKeyGradients<T>(shape, operands, of_batch, group, first, begin, end);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(GradOfGroup);
HWY_EXPORT(GradOfShare);
HWY_EXPORT(CombineShares);

namespace {

// The number of pieces of a call, if its tiles allow so many; a few for each core.
constexpr int64_t kPiecesWanted = 16;

class AttentionGradKernel final : public Kernel {
 public:
  AttentionGradKernel(const AttentionShape& shape, int num_threads)
      : shape_(shape), num_threads_(num_threads) {
    const int64_t groups = std::max<int64_t>(1, num_groups());
    const int64_t items = shape.heads_per_group() * shape.num_tiles();
    num_shares_ = std::max<int64_t>(1, std::min(items, Pieces{kPiecesWanted, groups}.count()));
  }

  int64_t workspace_bytes() const override {
    return 4 * (num_threads_ * scratch_floats() + shares_floats());
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const AttentionGradOperands operands{
        args.inputs[0],
        args.inputs[1],
        args.inputs[2],
        args.inputs[3],
        static_cast<const float*>(args.inputs[4]),
        args.inputs[5],
        args.inputs.size() > 6 ? args.inputs[6] : nullptr,
        args.outputs[0],
        args.outputs[1],
        args.outputs[2],
        args.outputs.size() > 3 ? static_cast<float*>(args.outputs[3]) : nullptr};
    float* workspace = static_cast<float*>(launch.workspace);
    if (num_shares_ == 1) {
      launch.team->For(num_groups(), [&](int64_t row, int worker) {
        HWY_DYNAMIC_DISPATCH(GradOfGroup)
        (shape_, operands, {row / shape_.groups, row % shape_.groups, 0, 1},
         workspace + worker * scratch_floats());
      });
      return absl::OkStatus();
    }
    float* shares = workspace + num_threads_ * scratch_floats();
    const int64_t share_floats = KeyGradients::Floats(shape_);
    launch.team->For(num_groups() * num_shares_, [&](int64_t piece, int worker) {
      const int64_t row = piece / num_shares_;
      HWY_DYNAMIC_DISPATCH(GradOfShare)
      (shape_, operands,
       {row / shape_.groups, row % shape_.groups, piece % num_shares_, num_shares_},
       shares + piece * share_floats, workspace + worker * scratch_floats());
    });
    const Pieces positions{shape_.keys, kAttentionTile};
    launch.team->For(num_groups() * positions.count(), [&](int64_t piece) {
      const int64_t row = piece / positions.count(), at = piece % positions.count();
      HWY_DYNAMIC_DISPATCH(CombineShares)
      (shape_, operands, row / shape_.groups, row % shape_.groups,
       shares + row * num_shares_ * share_floats, num_shares_, positions.begin(at),
       positions.end(at));
    });
    return absl::OkStatus();
  }

 private:
  int64_t num_groups() const { return shape_.batch * shape_.groups; }
  int64_t scratch_floats() const {
    return AttentionGradScratch::Floats(shape_) +
           (num_shares_ == 1 ? KeyGradients::Floats(shape_) : 0);
  }
  int64_t shares_floats() const {
    return num_shares_ == 1 ? 0 : num_groups() * num_shares_ * KeyGradients::Floats(shape_);
  }

  const AttentionShape shape_;
  const int num_threads_;
  int64_t num_shares_;  // pieces of one (batch, group)
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeAttentionGrad(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttentionGrad(spec));
  return std::make_unique<AttentionGradKernel>(shape, spec.num_threads);
}

WEIR_REGISTER_KERNEL("cpu", "attention_grad", MakeAttentionGrad);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
