// A row belongs to a warp, or to a block if it is long. Its elements stay in registers between the
// statistics and the result, so that memory is read once. Rows that no access of 16 bytes fits, or
// that no block holds, are read once for each sum.
#include "ops/kernels/cuda/norm.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "ops/kernels/cuda/sum_segments.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kWarpsOfBlock = 8;  // where a row belongs to a warp

// The threads that share a row.
enum class Owner : uint8_t { kWarp, kBlock };

// The threads of the largest block of the gradient's kernel.
constexpr int kGradThreadsMax = 512;

// The part of one thread in the rows of its grid.
template <Owner kOwner>
struct Part {
  __device__ Part()
      : lane(kOwner == Owner::kWarp ? threadIdx.x % kWarp : threadIdx.x),
        lanes(kOwner == Owner::kWarp ? kWarp : blockDim.x),
        first_row(kOwner == Owner::kWarp ? GlobalThread() / kWarp : blockIdx.x),
        row_step(kOwner == Owner::kWarp ? NumThreads() / kWarp : gridDim.x) {}

  // Every thread gets the sum over the threads of the row.
  __device__ float Sum(float x, float* scratch) const {
    if constexpr (kOwner == Owner::kWarp) {
      return WarpSum(x);
    } else {
      return BlockSum(x, scratch);
    }
  }

  int lane, lanes;
  int64_t first_row, row_step;
};

__device__ inline float Load(const NormParameter& parameter, int64_t i) {
  return RealAt(parameter.dtype, parameter.data, i);
}

template <typename T, int N>
__device__ inline void LoadManyOf(const void* data, int64_t i, float* to) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(data) + i);
  WEIR_UNROLL
  for (int j = 0; j < N; ++j) to[j] = ToFloat(pack.at[j]);
}

// Loads N numbers from i on, which one access of 8 or 16 bytes may load.
template <int N>
__device__ inline void LoadMany(const NormParameter& parameter, int64_t i, float* to) {
  if (parameter.dtype == DType::kBF16) {
    LoadManyOf<Bf16, N>(parameter.data, i, to);
  } else if (parameter.dtype == DType::kF16) {
    LoadManyOf<F16, N>(parameter.data, i, to);
  } else {
    WEIR_UNROLL
    for (int at = 0; at < N; at += 4) {
      const Vector<float> pack = LoadVector(static_cast<const float*>(parameter.data) + i + at);
      WEIR_UNROLL
      for (int j = 0; j < 4; ++j) to[at + j] = pack.at[j];
    }
  }
}

// The tensor whose rows a kernel normalises: x, or the sum of x and an addend, which it stores,
// too. Code that may add takes registers from the kernel that does not, so they are two.
enum class Normalised : uint8_t { kX, kSum };

template <typename T, int kPacks, Owner kOwner, Normalised kNormalised>
__global__ void __launch_bounds__(kOwner == Owner::kWarp ? kWarpsOfBlock * kWarp : kBlockThreadsMax)
    NormKernel(NormWork work) {
  constexpr int kPack = kPackSize<T>;
  WEIR_SHARED(float, scratch);
  const Part<kOwner> part;
  const float count = static_cast<float>(work.n);
  for (int64_t row = part.first_row; row < work.rows; row += part.row_step) {
    const T* x = static_cast<const T*>(work.x) + row * work.n;
    T* y = static_cast<T*>(work.y) + row * work.n;
    Vector<T> held[kPacks];
    float mean = 0;
    WEIR_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
      if (first < work.n) held[p] = LoadVector(x + first);
    }
    if constexpr (kNormalised == Normalised::kSum) {
      const T* addend = static_cast<const T*>(work.addend) + row * work.n;
      T* sums = static_cast<T*>(work.sum) + row * work.n;
      WEIR_UNROLL
      for (int p = 0; p < kPacks; ++p) {
        const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
        if (first >= work.n) continue;
        const Vector<T> more = LoadVector(addend + first);
        WEIR_UNROLL
        for (int j = 0; j < kPack; ++j)
          Store(&held[p].at[j], ToFloat(held[p].at[j]) + ToFloat(more.at[j]));
        StoreVector(sums + first, held[p]);
      }
    }
    if (work.norm == Norm::kLayer) {
      float sum = 0;
      WEIR_UNROLL
      for (int p = 0; p < kPacks; ++p) {
        if (static_cast<int64_t>(p * part.lanes + part.lane) * kPack >= work.n) continue;
        WEIR_UNROLL
        for (int j = 0; j < kPack; ++j) sum += ToFloat(held[p].at[j]);
      }
      mean = part.Sum(sum, scratch) / count;
    }
    float squares = 0;
    WEIR_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      if (static_cast<int64_t>(p * part.lanes + part.lane) * kPack >= work.n) continue;
      WEIR_UNROLL
      for (int j = 0; j < kPack; ++j) {
        const float centred = ToFloat(held[p].at[j]) - mean;
        squares += centred * centred;
      }
    }
    const float rstd = 1.0f / sqrtf(part.Sum(squares, scratch) / count + work.epsilon);
    WEIR_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
      if (first >= work.n) continue;
      float gamma[kPack], beta[kPack] = {};
      LoadMany<kPack>(work.gamma, first, gamma);
      if (work.beta.data != nullptr) LoadMany<kPack>(work.beta, first, beta);
      Vector<T> result;
      WEIR_UNROLL
      for (int j = 0; j < kPack; ++j)
        Store(&result.at[j], (ToFloat(held[p].at[j]) - mean) * rstd * gamma[j] + beta[j]);
      StoreVector(y + first, result);
    }
    if (part.lane == 0) {
      if (work.mean != nullptr) work.mean[row] = mean;
      if (work.rstd != nullptr) work.rstd[row] = rstd;
    }
  }
}

// Any n: each block owns a row, which it reads once for each sum.
template <typename T>
__global__ void LongNormKernel(NormWork work) {
  WEIR_SHARED(float, scratch);
  const float count = static_cast<float>(work.n);
  for (int64_t row = blockIdx.x; row < work.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(work.x) + row * work.n;
    T* y = static_cast<T*>(work.y) + row * work.n;
    if (work.addend != nullptr) {
      const T* addend = static_cast<const T*>(work.addend) + row * work.n;
      T* sums = static_cast<T*>(work.sum) + row * work.n;
      // Each thread reads what it has written.
      for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x)
        Store(&sums[i], ToFloat(x[i]) + ToFloat(addend[i]));
      x = sums;
    }
    float mean = 0;
    if (work.norm == Norm::kLayer) {
      float sum = 0;
      for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x) sum += ToFloat(x[i]);
      mean = BlockSum(sum, scratch) / count;
    }
    float squares = 0;
    for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
      const float centred = ToFloat(x[i]) - mean;
      squares += centred * centred;
    }
    const float rstd = 1.0f / sqrtf(BlockSum(squares, scratch) / count + work.epsilon);
    for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
      const float beta = work.beta.data == nullptr ? 0.0f : Load(work.beta, i);
      Store(&y[i], (ToFloat(x[i]) - mean) * rstd * Load(work.gamma, i) + beta);
    }
    if (threadIdx.x == 0) {
      if (work.mean != nullptr) work.mean[row] = mean;
      if (work.rstd != nullptr) work.rstd[row] = rstd;
    }
  }
}

// The partial sums of a block: dgamma, then dbeta.
__device__ inline float* PartialsOf(const NormGradWork& work, int64_t segment) {
  return work.partials + segment * 2 * work.n;
}

// dx = rstd (dy gamma - mean(dy gamma) - xhat mean(dy gamma xhat)) + addend; rms_norm lacks the
// second term.
// The threads keep the sums over their rows in registers. Warps of a block add them up in order in
// shared memory.
template <typename T, int kPacks, Owner kOwner>
__global__ void __launch_bounds__(kOwner == Owner::kWarp ? kWarpsOfBlock * kWarp : kGradThreadsMax)
    NormGradKernel(NormGradWork work) {
  constexpr int kPack = kPackSize<T>;
  WEIR_SHARED(float, shared);
  const Part<kOwner> part;
  const float count = static_cast<float>(work.n);
  float dgamma[kPacks][kPack] = {}, dbeta[kPacks][kPack] = {};
  for (int64_t row = part.first_row; row < work.rows; row += part.row_step) {
    const T* x = static_cast<const T*>(work.x) + row * work.n;
    const T* dy = static_cast<const T*>(work.dy) + row * work.n;
    const T* addend =
        work.addend == nullptr ? nullptr : static_cast<const T*>(work.addend) + row * work.n;
    T* dx = static_cast<T*>(work.dx) + row * work.n;
    const float mean = work.mean == nullptr ? 0.0f : work.mean[row], rstd = work.rstd[row];
    Vector<T> xs[kPacks], dys[kPacks];
    WEIR_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
      if (first >= work.n) continue;
      xs[p] = LoadVector(x + first);
      dys[p] = LoadVector(dy + first);
    }
    float along = 0, level = 0;
    WEIR_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
      if (first >= work.n) continue;
      float gamma[kPack];
      LoadMany<kPack>(work.gamma, first, gamma);
      WEIR_UNROLL
      for (int j = 0; j < kPack; ++j) {
        const float normal = (ToFloat(xs[p].at[j]) - mean) * rstd, d = ToFloat(dys[p].at[j]);
        along += d * gamma[j] * normal;
        level += d * gamma[j];
        dgamma[p][j] += d * normal;
        dbeta[p][j] += d;
      }
    }
    along = part.Sum(along, shared) / count;
    level = work.norm == Norm::kLayer ? part.Sum(level, shared) / count : 0.0f;
    WEIR_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
      if (first >= work.n) continue;
      float gamma[kPack];
      LoadMany<kPack>(work.gamma, first, gamma);
      Vector<T> result = {};
      if (addend != nullptr) result = LoadVector(addend + first);
      WEIR_UNROLL
      for (int j = 0; j < kPack; ++j) {
        const float normal = (ToFloat(xs[p].at[j]) - mean) * rstd;
        Store(&result.at[j], rstd * (ToFloat(dys[p].at[j]) * gamma[j] - level - normal * along) +
                                 ToFloat(result.at[j]));
      }
      StoreVector(dx + first, result);
    }
  }
  float* partials = PartialsOf(work, blockIdx.x);
  const int num_turns = kOwner == Owner::kWarp ? kWarpsOfBlock : 1;
  float* sums = kOwner == Owner::kWarp ? shared : partials;
  for (int turn = 0; turn < num_turns; ++turn) {
    if (kOwner == Owner::kBlock || turn == static_cast<int>(threadIdx.x) / kWarp) {
      WEIR_UNROLL
      for (int p = 0; p < kPacks; ++p) {
        const int64_t first = static_cast<int64_t>(p * part.lanes + part.lane) * kPack;
        if (first >= work.n) continue;
        WEIR_UNROLL
        for (int j = 0; j < kPack; ++j) {
          float* of_gamma = &sums[first + j];
          float* of_beta = &sums[work.n + first + j];
          *of_gamma = turn == 0 ? dgamma[p][j] : *of_gamma + dgamma[p][j];
          *of_beta = turn == 0 ? dbeta[p][j] : *of_beta + dbeta[p][j];
        }
      }
    }
    if constexpr (kOwner == Owner::kWarp) __syncthreads();
  }
  if constexpr (kOwner == Owner::kWarp) {
    for (int64_t i = threadIdx.x; i < 2 * work.n; i += blockDim.x) partials[i] = sums[i];
  }
}

// Any n: dx alone.
template <typename T>
__global__ void LongNormGradKernel(NormGradWork work) {
  WEIR_SHARED(float, scratch);
  const float count = static_cast<float>(work.n);
  for (int64_t row = blockIdx.x; row < work.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(work.x) + row * work.n;
    const T* dy = static_cast<const T*>(work.dy) + row * work.n;
    const T* addend =
        work.addend == nullptr ? nullptr : static_cast<const T*>(work.addend) + row * work.n;
    T* dx = static_cast<T*>(work.dx) + row * work.n;
    const float mean = work.mean == nullptr ? 0.0f : work.mean[row], rstd = work.rstd[row];
    float along = 0, level = 0;
    for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
      const float scaled = ToFloat(dy[i]) * Load(work.gamma, i);
      along += scaled * ((ToFloat(x[i]) - mean) * rstd);
      level += scaled;
    }
    along = BlockSum(along, scratch) / count;
    level = work.norm == Norm::kLayer ? BlockSum(level, scratch) / count : 0.0f;
    for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
      const float normal = (ToFloat(x[i]) - mean) * rstd;
      const float scaled = ToFloat(dy[i]) * Load(work.gamma, i);
      const float more = addend == nullptr ? 0.0f : ToFloat(addend[i]);
      Store(&dx[i], rstd * (scaled - level - normal * along) + more);
    }
  }
}

// Any n: the sums over the rows of a segment. A thread owns a column. Runs before dx is written,
// because dx may be dy or x.
template <typename T>
__global__ void NormColumnSumsKernel(NormGradWork work, int64_t columns_of_blocks,
                                     int64_t segment_rows) {
  const int64_t segment = blockIdx.x / columns_of_blocks;
  const int64_t i = blockIdx.x % columns_of_blocks * blockDim.x + threadIdx.x;
  if (i >= work.n) return;
  const T* x = static_cast<const T*>(work.x);
  const T* dy = static_cast<const T*>(work.dy);
  const int64_t begin = segment * segment_rows;
  const int64_t end = begin + segment_rows < work.rows ? begin + segment_rows : work.rows;
  float dgamma = 0, dbeta = 0;
  for (int64_t row = begin; row < end; ++row) {
    const float mean = work.mean == nullptr ? 0.0f : work.mean[row];
    const float d = ToFloat(dy[row * work.n + i]);
    dgamma += d * ((ToFloat(x[row * work.n + i]) - mean) * work.rstd[row]);
    dbeta += d;
  }
  float* partials = PartialsOf(work, segment);
  partials[i] = dgamma;
  partials[work.n + i] = dbeta;
}

// How the rows of a gradient are shared: by shape alone.
struct GradPlan {
  enum class Way : uint8_t { kWarp, kBlock, kAny } way = Way::kAny;
  int packs = 1;         // per thread
  int threads = 256;     // of a block
  int64_t segments = 0;  // blocks, each with its own partial sums
  int64_t segment_rows = 0;
};

template <typename T>
GradPlan PlanOf(int64_t rows, int64_t n) {
  constexpr int kPack = kPackSize<T>;
  // Accumulators of 2 * kPack per pack stay in registers: so many packs fit in a warp's threads.
  constexpr int kWarpPacksMax = sizeof(T) == 2 ? 4 : 6;
  constexpr int kRowPacksMax = 2;
  constexpr int64_t kBlocks = 264, kBlocksOfLongRows = 528, kSegments = 64;
  auto at_most = [](int64_t a, int64_t b) { return a < b ? a : b; };
  GradPlan plan;
  const int64_t packs = n / kPack;
  if (n % kPack != 0 || packs > kGradThreadsMax * kRowPacksMax) {
    plan.segments = at_most(rows, kSegments);
    plan.segment_rows = plan.segments == 0 ? 0 : (rows + plan.segments - 1) / plan.segments;
    return plan;
  }
  if (packs <= kWarpPacksMax * kWarp) {
    plan.way = GradPlan::Way::kWarp;
    plan.packs = static_cast<int>((packs + kWarp - 1) / kWarp);
    plan.threads = kWarpsOfBlock * kWarp;
    plan.segments = at_most((rows + kWarpsOfBlock - 1) / kWarpsOfBlock, kBlocks);
    return plan;
  }
  plan.way = GradPlan::Way::kBlock;
  plan.packs = packs <= kGradThreadsMax ? 1 : 2;
  plan.threads = ThreadsOfRow(n, kPack * plan.packs, kGradThreadsMax);
  plan.segments = at_most(rows, kBlocksOfLongRows);
  return plan;
}

using NormGradFunction = void (*)(NormGradWork);

template <typename T>
NormGradFunction GradFunction(const GradPlan& plan) {
  if (plan.way == GradPlan::Way::kBlock) {
    return plan.packs == 1 ? &NormGradKernel<T, 1, Owner::kBlock>
                           : &NormGradKernel<T, 2, Owner::kBlock>;
  }
  switch (plan.packs) {
    case 0:
    case 1: return &NormGradKernel<T, 1, Owner::kWarp>;
    case 2: return &NormGradKernel<T, 2, Owner::kWarp>;
    case 3: return &NormGradKernel<T, 3, Owner::kWarp>;
    case 4: return &NormGradKernel<T, 4, Owner::kWarp>;
    default: break;
  }
  if constexpr (sizeof(T) == 4) return &NormGradKernel<T, 6, Owner::kWarp>;
  return nullptr;
}

template <typename T>
void LaunchGradOf(const NormGradWork& work, device::CudaStream stream) {
  const GradPlan plan = PlanOf<T>(work.rows, work.n);
  constexpr int kThreads = 256;
  if (work.n == 0) return;
  if (work.rows == 0) {
    // There are no segments, so the sums are 0.
  } else if (plan.way == GradPlan::Way::kAny) {
    const int64_t columns = (work.n + kThreads - 1) / kThreads;
    Launch(stream, &NormColumnSumsKernel<T>, dim3(NumBlocks(columns * plan.segments, 1)),
           dim3(kThreads), 0, work, columns, plan.segment_rows);
    Launch(stream, &LongNormGradKernel<T>, dim3(NumBlocks(work.rows, 1)),
           dim3(ThreadsOfRow(work.n, 1, 512)), kBlockScratch * sizeof(float), work);
  } else {
    const size_t shared = plan.way == GradPlan::Way::kWarp
                              ? static_cast<size_t>(2 * work.n) * sizeof(float)
                              : kBlockScratch * sizeof(float);
    Launch(stream, GradFunction<T>(plan), dim3(static_cast<unsigned>(plan.segments)),
           dim3(plan.threads), shared, work);
  }
  SumSegmentsWork sums;
  sums.partials = work.partials;
  sums.stride = 2 * work.n;
  sums.segments = plan.segments;
  sums.n = work.n;
  sums.dtype = work.dgamma_dtype;
  sums.y = work.dgamma;
  LaunchSumSegments(sums, stream);
  if (work.dbeta == nullptr) return;
  sums.partials = work.partials + work.n;
  sums.dtype = work.dbeta_dtype;
  sums.y = work.dbeta;
  LaunchSumSegments(sums, stream);
}

template <typename T, Normalised kNormalised>
void LaunchOf(const NormWork& work, device::CudaStream stream) {
  constexpr int kPack = kPackSize<T>, kBlockPacks = 4, kWarpPacksMax = 8;
  if (work.rows == 0 || work.n == 0) return;
  const int64_t packs = work.n / kPack;
  const size_t scratch = kBlockScratch * sizeof(float);
  if (work.n % kPack != 0 || packs > kBlockPacks * kBlockThreadsMax) {
    Launch(stream, &LongNormKernel<T>, dim3(NumBlocks(work.rows, 1)),
           dim3(ThreadsOfRow(work.n, 1, 512)), scratch, work);
  } else if (packs > kWarpPacksMax * kWarp) {
    Launch(stream, &NormKernel<T, kBlockPacks, Owner::kBlock, kNormalised>,
           dim3(NumBlocks(work.rows, 1)),
           dim3(ThreadsOfRow(work.n, kPack * kBlockPacks, kBlockThreadsMax)), scratch, work);
  } else {
    auto* const function = packs <= kWarp       ? &NormKernel<T, 1, Owner::kWarp, kNormalised>
                           : packs <= 2 * kWarp ? &NormKernel<T, 2, Owner::kWarp, kNormalised>
                           : packs <= 4 * kWarp
                               ? &NormKernel<T, 4, Owner::kWarp, kNormalised>
                               : &NormKernel<T, kWarpPacksMax, Owner::kWarp, kNormalised>;
    Launch(stream, function, dim3(NumBlocks(work.rows, kWarpsOfBlock)), dim3(kWarpsOfBlock * kWarp),
           0, work);
  }
}

}  // namespace

void LaunchNorm(const NormWork& work, device::CudaStream stream) {
  if (work.addend == nullptr) {
    WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T, Normalised::kX>(work, stream); });
  } else {
    WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T, Normalised::kSum>(work, stream); });
  }
}

int64_t NormGradPartials(DType dtype, int64_t rows, int64_t n) {
  GradPlan plan;
  WithReal(dtype, [&]<typename T>(T*) { plan = PlanOf<T>(rows, n); });
  return plan.segments * 2 * n;
}

void LaunchNormGrad(const NormGradWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchGradOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
