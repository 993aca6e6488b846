// Reductions of a tensor over the reduced axes of an AxisWalk, and maps from its elements and what
// they were reduced to. Included by .cu files only.
//
// A Term says what is reduced. It has
//   static constexpr int kSums;  // sums per result
//   static constexpr int kPack;  // elements of an access of 16 bytes
//   template <int N> struct Values;  // what Add needs of N neighbours
//   template <int N> __device__ Values<N> Load(int64_t element) const;
//   __device__ void Start(float* sums) const;
//   template <int N>
//   __device__ void Add(const Values<N>& values, int i, int64_t result, float* sums) const;
//   __device__ void Merge(const float* other, float* sums) const;
//   __device__ void Finish(int64_t result, const float* sums) const;
// where `element` is the place in the tensor, and `result` in the reduced one. The order of a
// reduction depends on shapes alone.
//
// If a result has much to reduce and there are few results, each is cut into segments, one for
// each block. Their partial results go to the workspace, [sum][segment][result], and a second
// launch merges them in order.
#pragma once

#include "ops/kernels/cuda/axis_walk.h"
#include "ops/kernels/cuda/block_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Returns the start of the row with this outer index among kept and reduced groups.
__device__ inline int64_t RowStart(const AxisWalk& walk, int64_t kept, int64_t reduced) {
  int64_t start = 0;
  for (int g = 0; g < walk.num_outer; ++g) {
    const AxisWalk::Group& group = walk.outer[g];
    const int64_t rest = group.reduced ? reduced : kept;
    const Quotient index = rest < group.size ? Quotient{0, rest} : Divide(rest, group.size);
    start += index.remainder * group.stride;
    if (group.reduced) {
      reduced = index.quotient;
    } else {
      kept = index.quotient;
    }
  }
  return start;
}

// Returns the kept outer index of the i-th row in memory.
__device__ inline int64_t KeptIndexOf(const AxisWalk& walk, int64_t i) {
  int64_t kept = 0, factor = 1;
  for (int g = 0; g < walk.num_outer; ++g) {
    const AxisWalk::Group& group = walk.outer[g];
    const Quotient index = Divide(i, group.size);
    if (!group.reduced) {
      kept += index.remainder * factor;
      factor *= group.size;
    }
    i = index.quotient;
  }
  return kept;
}

// How a reduction is cut, by shape alone.
struct ReducePlan {
  int64_t units = 0;          // what segments count: runs of kRun elements, or rows
  int64_t units_per_row = 1;  // where rows are reduced
  int64_t segments = 1;
  int64_t segment_units = 0;
  int threads = 256;
  int64_t column_blocks = 1;  // where rows are kept
  bool packs = false;         // accesses are of 16 bytes
};

constexpr int64_t kReduceRun = 1024;  // elements of a unit of a reduced row
constexpr int kReduceThreads = 256;
constexpr int kReduceWarps = kReduceThreads / kWarp;

// `pack` is the elements of an access of 16 bytes.
inline ReducePlan ReducePlanOf(const AxisWalk& walk, int pack) {
  constexpr int64_t kBlocks = 528;         // enough for a GPU
  constexpr int64_t kUnitsOfSegment = 16;  // at least
  ReducePlan plan;
  // Rows begin at multiples of their size.
  plan.packs = walk.row % pack == 0 && (walk.inner_reduced || walk.row >= kWarp * pack);
  int64_t groups = 0;
  if (walk.inner_reduced) {
    plan.units_per_row = (walk.row + kReduceRun - 1) / kReduceRun;
    plan.units = walk.num_reduced * plan.units_per_row;
    groups = walk.num_kept;
  } else {
    plan.units = walk.num_reduced;
    const int64_t columns = plan.packs ? kWarp * pack : kWarp;
    plan.column_blocks = (walk.row + columns - 1) / columns;
    groups = walk.num_kept * plan.column_blocks;
  }
  if (groups == 0 || plan.units == 0) return plan;
  const int64_t most = (plan.units + kUnitsOfSegment - 1) / kUnitsOfSegment;
  const int64_t wanted = (kBlocks + groups - 1) / groups;
  plan.segments = most < wanted ? most : wanted;
  plan.segment_units = (plan.units + plan.segments - 1) / plan.segments;
  if (walk.inner_reduced) {
    const int64_t warps = plan.segment_units < kReduceWarps ? plan.segment_units : kReduceWarps;
    plan.threads = static_cast<int>(warps) * kWarp;
  }
  return plan;
}

// Floats of workspace. `num_sums` and `pack` are those of the term.
inline int64_t ReducePartials(const AxisWalk& walk, int num_sums, int pack) {
  const ReducePlan plan = ReducePlanOf(walk, pack);
  return plan.segments == 1 ? 0 : num_sums * plan.segments * walk.num_results();
}

// Merges the sums of the warps of a block in order, per lane; the threads of warp 0 get the result.
// `shared` holds all sums of all threads.
template <int kResults, typename Term>
__device__ inline void MergeWarps(const Term& term, float (*sums)[Term::kSums], float* shared) {
  constexpr int kFloats = kResults * Term::kSums;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int num_warps = blockDim.x / kWarp;
  if (num_warps == 1) return;
  for (int r = 0; r < kResults; ++r) {
    for (int s = 0; s < Term::kSums; ++s)
      shared[threadIdx.x * kFloats + r * Term::kSums + s] = sums[r][s];
  }
  __syncthreads();
  if (warp == 0) {
    for (int other = 1; other < num_warps; ++other) {
      WEIR_UNROLL
      for (int r = 0; r < kResults; ++r)
        term.Merge(&shared[(other * kWarp + lane) * kFloats + r * Term::kSums], sums[r]);
    }
  }
  __syncthreads();
}

// What a block has reduced: the final result, or partial sums if there are more segments.
template <typename Term>
__device__ inline void PutSums(const Term& term, const AxisWalk& walk, const ReducePlan& plan,
                               int64_t result, int64_t segment, const float* sums,
                               float* partials) {
  if (plan.segments == 1) return term.Finish(result, sums);
  const int64_t num_results = walk.inner_reduced ? walk.num_kept : walk.num_kept * walk.row;
  for (int s = 0; s < Term::kSums; ++s)
    partials[(s * plan.segments + segment) * num_results + result] = sums[s];
}

// A block reduces a segment of one result. Its warps take units in turn, the lanes of a warp the
// elements of a unit.
template <typename Term, int N>
__global__ void ReduceRowsKernel(AxisWalk walk, ReducePlan plan, Term term, float* partials) {
  WEIR_SHARED(float, shared);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int num_warps = blockDim.x / kWarp;
  for (int64_t task = blockIdx.x; task < walk.num_kept * plan.segments; task += gridDim.x) {
    const int64_t kept = task / plan.segments, segment = task % plan.segments;
    const int64_t begin = segment * plan.segment_units;
    const int64_t end =
        begin + plan.segment_units < plan.units ? begin + plan.segment_units : plan.units;
    float sums[1][Term::kSums];
    term.Start(sums[0]);
    for (int64_t unit = begin + warp; unit < end; unit += num_warps) {
      const Quotient place = Divide(unit, plan.units_per_row);
      const int64_t row = RowStart(walk, kept, place.quotient);
      const int64_t first = place.remainder * kReduceRun;
      const int64_t last = first + kReduceRun < walk.row ? first + kReduceRun : walk.row;
      for (int64_t i = first + lane * N; i < last; i += kWarp * N) {
        const auto values = term.template Load<N>(row + i);
        WEIR_UNROLL
        for (int j = 0; j < N; ++j) term.Add(values, j, kept, sums[0]);
      }
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      float other[Term::kSums];
      for (int s = 0; s < Term::kSums; ++s)
        other[s] = __shfl_down_sync(0xffffffffu, sums[0][s], distance);
      term.Merge(other, sums[0]);
    }
    MergeWarps<1>(term, sums, shared);
    if (threadIdx.x == 0) PutSums(term, walk, plan, kept, segment, sums[0], partials);
  }
}

// A block reduces a segment of 32 N neighbouring results. Its warps take rows in turn, and each
// lane has N columns.
template <typename Term, int N>
__global__ void ReduceColumnsKernel(AxisWalk walk, ReducePlan plan, Term term, float* partials) {
  constexpr int kDepth = 4;  // loads of a thread at the same time
  WEIR_SHARED(float, shared);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t num_tasks = walk.num_kept * plan.segments * plan.column_blocks;
  for (int64_t task = blockIdx.x; task < num_tasks; task += gridDim.x) {
    const int64_t column = (task % plan.column_blocks * kWarp + lane) * N;
    const int64_t segment = task / plan.column_blocks % plan.segments;
    const int64_t kept = task / plan.column_blocks / plan.segments;
    const int64_t result = kept * walk.row + column;
    const int64_t begin = segment * plan.segment_units;
    const int64_t end =
        begin + plan.segment_units < plan.units ? begin + plan.segment_units : plan.units;
    float sums[N][Term::kSums];
    for (int j = 0; j < N; ++j) term.Start(sums[j]);
    if (column < walk.row) {
      int64_t unit = begin + warp;
      for (; unit + (kDepth - 1) * kReduceWarps < end; unit += kDepth * kReduceWarps) {
        typename Term::template Values<N> values[kDepth];
        WEIR_UNROLL
        for (int d = 0; d < kDepth; ++d) {
          values[d] = term.template Load<N>(RowStart(walk, kept, unit + d * kReduceWarps) + column);
        }
        WEIR_UNROLL
        for (int d = 0; d < kDepth; ++d) {
          WEIR_UNROLL
          for (int j = 0; j < N; ++j) term.Add(values[d], j, result + j, sums[j]);
        }
      }
      for (; unit < end; unit += kReduceWarps) {
        const auto values = term.template Load<N>(RowStart(walk, kept, unit) + column);
        WEIR_UNROLL
        for (int j = 0; j < N; ++j) term.Add(values, j, result + j, sums[j]);
      }
    }
    MergeWarps<N>(term, sums, shared);
    if (warp == 0 && column < walk.row) {
      for (int j = 0; j < N; ++j) PutSums(term, walk, plan, result + j, segment, sums[j], partials);
    }
  }
}

// A block merges the partial results of 32 results; its warps take segments in turn.
template <typename Term>
__global__ void MergeSegmentsKernel(int64_t num_results, ReducePlan plan, Term term,
                                    const float* partials) {
  WEIR_SHARED(float, shared);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarp; first < num_results;
       first += static_cast<int64_t>(gridDim.x) * kWarp) {
    const int64_t result = first + lane;
    float sums[1][Term::kSums];
    term.Start(sums[0]);
    if (result < num_results) {
      for (int64_t segment = warp; segment < plan.segments; segment += kReduceWarps) {
        float other[Term::kSums];
        for (int s = 0; s < Term::kSums; ++s)
          other[s] = partials[(s * plan.segments + segment) * num_results + result];
        term.Merge(other, sums[0]);
      }
    }
    MergeWarps<1>(term, sums, shared);
    if (warp == 0 && result < num_results) term.Finish(result, sums[0]);
  }
}

// Reduces a tensor of at least one element. `partials` is ReducePartials floats.
template <typename Term>
void LaunchReduce(const AxisWalk& walk, const Term& term, float* partials,
                  device::CudaStream stream) {
  constexpr int kPack = Term::kPack;
  const ReducePlan plan = ReducePlanOf(walk, kPack);
  const size_t shared = static_cast<size_t>(kReduceThreads) * Term::kSums * sizeof(float);
  if (walk.inner_reduced) {
    Launch(stream, plan.packs ? &ReduceRowsKernel<Term, kPack> : &ReduceRowsKernel<Term, 1>,
           dim3(NumBlocks(walk.num_kept * plan.segments, 1)), dim3(plan.threads), shared, walk,
           plan, term, partials);
  } else {
    Launch(stream, plan.packs ? &ReduceColumnsKernel<Term, kPack> : &ReduceColumnsKernel<Term, 1>,
           dim3(NumBlocks(walk.num_kept * plan.segments * plan.column_blocks, 1)),
           dim3(kReduceThreads), shared * (plan.packs ? kPack : 1), walk, plan, term, partials);
  }
  if (plan.segments == 1) return;
  Launch(stream, &MergeSegmentsKernel<Term>, dim3(NumBlocks(walk.num_results(), kWarp)),
         dim3(kReduceThreads), shared, walk.num_results(), plan, term, partials);
}

// Maps each element and its result. A thread takes kPack neighbours: state = Begin(first element,
// count), then Each(&state, i, result) for each, then End(state, first element, count).
template <typename Map, int kPack>
__global__ void MapElementsKernel(AxisWalk walk, Map map) {
  const int64_t count = walk.num_kept * walk.num_reduced * walk.row;
  for (int64_t first = GlobalThread() * kPack; first < count; first += NumThreads() * kPack) {
    Quotient place = Divide(first, walk.row);
    int64_t kept = KeptIndexOf(walk, place.quotient);
    const int n = static_cast<int>(count - first < kPack ? count - first : kPack);
    typename Map::State state = map.Begin(first, n);
    WEIR_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (i < n) {
        if (place.remainder == walk.row) {
          place.remainder = 0;
          kept = KeptIndexOf(walk, ++place.quotient);
        }
        map.Each(&state, i, walk.inner_reduced ? kept : kept * walk.row + place.remainder);
        ++place.remainder;
      }
    }
    map.End(state, first, n);
  }
}

template <typename Map, int kPack>
void LaunchMap(const AxisWalk& walk, const Map& map, device::CudaStream stream) {
  constexpr int kThreads = 256;
  const int64_t count = walk.num_rows() * walk.row;
  if (count == 0) return;
  Launch(stream, &MapElementsKernel<Map, kPack>, dim3(NumBlocks(count, kThreads * kPack)),
         dim3(kThreads), 0, walk, map);
}

// Loads n neighbours, one access if there are as many as it takes.
template <typename T>
__device__ inline Vector<T> LoadUpTo(const T* at, int n) {
  if (n == kPackSize<T>) return LoadVector(at);
  Vector<T> pack = {};
  WEIR_UNROLL
  for (int i = 0; i < kPackSize<T>; ++i)
    if (i < n) pack.at[i] = at[i];
  return pack;
}
template <typename T>
__device__ inline void StoreUpTo(T* at, const Vector<T>& pack, int n) {
  if (n == kPackSize<T>) return StoreVector(at, pack);
  WEIR_UNROLL
  for (int i = 0; i < kPackSize<T>; ++i)
    if (i < n) at[i] = pack.at[i];
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
