// reduce_variance, normalize and their gradients. The axes that mean and variance lack are the
// reduced ones; sums over them run in one order, whatever the number of threads.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/axis_groups.h"
#include "ops/kernels/shape/normalize_check.h"
#include "ops/kernels/shape/pieces.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Elements of a row that are worked on at once, in f32.
constexpr int64_t kChunk = 512;
constexpr int kLanes = 16;  // independent sums of a row

// Returns n elements from `at` on in f32; `buffer` holds them if they are stored otherwise.
const float* Chunk(const void* data, DType dtype, int64_t at, int64_t n, float* buffer) {
  const char* from = static_cast<const char*>(data) + at * SizeOf(dtype);
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(from);
  ConvertReal(dtype, DType::kF32, from, buffer, n);
  return buffer;
}

// A Domain walks a tensor in chunks of rows. The statistic of a chunk is one element, or as many as
// the chunk has.
class Domain {
 public:
  Domain(const TensorSlice& x, const std::vector<int64_t>& axes)
      : dtype_(x.dtype),
        groups_(x.shape, axes),
        inner_reduced_(groups_.inner() == AxisGroups::Kind::kReduced),
        empty_(x.num_elements() == 0),
        columns_{inner_reduced_ ? 1 : groups_.row(), kChunk},
        rows_(Pieces::OfRows(groups_.num_kept() * groups_.num_reduced(), groups_.row(),
                             kHeavyPiece)) {}

  bool empty() const { return empty_; }
  int64_t num_statistics() const {
    return groups_.num_kept() * (inner_reduced_ ? 1 : groups_.row());
  }

  // Sets sums[0][s] and sums[1][s] to the sums of term(x, dy, s) over the elements of statistic s.
  // `dy` may be null; the term then gets x twice. Term returns {of sums[0], of sums[1]}.
  template <class Term>
  void Sum(device::ThreadTeam* team, const void* x, const void* dy, std::array<float*, 2> sums,
           Term&& term) const {
    team->For(groups_.num_kept() * columns_.count(), [&](int64_t piece) {
      const int64_t kept = piece / columns_.count(), block = piece % columns_.count();
      if (inner_reduced_) {
        SumRows(x, dy == nullptr ? x : dy, kept, sums, term);
      } else {
        SumColumns(x, dy == nullptr ? x : dy, kept, columns_.begin(block), columns_.length(block),
                   sums, term);
      }
    });
  }

  // Sets y to term(x, dy, statistic) for each element. `dy` may be null, as above.
  template <class Term>
  void Map(device::ThreadTeam* team, const void* x, const void* dy, void* y, Term&& term) const {
    if (dy == nullptr) dy = x;
    team->For(rows_.count(), [&](int64_t piece) {
      std::array<float, kChunk> x_buffer, dy_buffer, y_buffer;
      for (int64_t row = rows_.begin(piece); row < rows_.end(piece); ++row) {
        const int64_t kept = groups_.KeptIndexOf(row);
        for (int64_t at = 0; at < groups_.row(); at += kChunk) {
          const int64_t n = std::min(kChunk, groups_.row() - at), from = row * groups_.row() + at;
          const float* xs = Chunk(x, dtype_, from, n, x_buffer.data());
          const float* dys = Chunk(dy, dtype_, from, n, dy_buffer.data());
          char* target = static_cast<char*>(y) + from * SizeOf(dtype_);
          float* ys = dtype_ == DType::kF32 ? reinterpret_cast<float*>(target) : y_buffer.data();
          if (inner_reduced_) {
            for (int64_t i = 0; i < n; ++i) ys[i] = term(xs[i], dys[i], kept);
          } else {
            for (int64_t i = 0; i < n; ++i)
              ys[i] = term(xs[i], dys[i], kept * groups_.row() + at + i);
          }
          if (dtype_ != DType::kF32) ConvertReal(DType::kF32, dtype_, ys, target, n);
        }
      }
    });
  }

 private:
  template <class Term>
  void SumRows(const void* x, const void* dy, int64_t kept, std::array<float*, 2> sums,
               const Term& term) const {
    std::array<float, kChunk> x_buffer, dy_buffer;
    double total0 = 0, total1 = 0;
    for (int64_t r = 0; r < groups_.num_reduced(); ++r) {
      const int64_t start = groups_.RowStart(kept, r);
      for (int64_t at = 0; at < groups_.row(); at += kChunk) {
        const int64_t n = std::min(kChunk, groups_.row() - at);
        const float* xs = Chunk(x, dtype_, start + at, n, x_buffer.data());
        const float* dys = Chunk(dy, dtype_, start + at, n, dy_buffer.data());
        std::array<float, kLanes> lanes0 = {}, lanes1 = {};
        int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) {
          for (int lane = 0; lane < kLanes; ++lane) {
            const auto [a, b] = term(xs[i + lane], dys[i + lane], kept);
            lanes0[lane] += a;
            lanes1[lane] += b;
          }
        }
        for (; i < n; ++i) {
          const auto [a, b] = term(xs[i], dys[i], kept);
          total0 += a;
          total1 += b;
        }
        for (float lane : lanes0) total0 += lane;
        for (float lane : lanes1) total1 += lane;
      }
    }
    if (sums[0] != nullptr) sums[0][kept] = static_cast<float>(total0);
    if (sums[1] != nullptr) sums[1][kept] = static_cast<float>(total1);
  }

  template <class Term>
  void SumColumns(const void* x, const void* dy, int64_t kept, int64_t begin, int64_t n,
                  std::array<float*, 2> sums, const Term& term) const {
    std::array<float, kChunk> x_buffer, dy_buffer;
    std::array<double, kChunk> total0 = {}, total1 = {};
    const int64_t first = kept * groups_.row() + begin;
    for (int64_t r = 0; r < groups_.num_reduced(); ++r) {
      const int64_t start = groups_.RowStart(kept, r) + begin;
      const float* xs = Chunk(x, dtype_, start, n, x_buffer.data());
      const float* dys = Chunk(dy, dtype_, start, n, dy_buffer.data());
      for (int64_t i = 0; i < n; ++i) {
        const auto [a, b] = term(xs[i], dys[i], first + i);
        total0[i] += a;
        total1[i] += b;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      if (sums[0] != nullptr) sums[0][first + i] = static_cast<float>(total0[i]);
      if (sums[1] != nullptr) sums[1][first + i] = static_cast<float>(total1[i]);
    }
  }

  const DType dtype_;
  const AxisGroups groups_;
  const bool inner_reduced_, empty_;
  const Pieces columns_, rows_;
};

using Terms = std::pair<float, float>;

// The four kernels share the domain, and statistics in f32 in the workspace.
class StatisticsKernel : public Kernel {
 public:
  StatisticsKernel(const KernelSpec& spec, int tables)
      : spec_(spec),
        domain_(*spec.inputs[0], spec.attrs.Ints("axes")),
        count_(static_cast<double>(
            ReducedElements(spec.inputs[0]->global_shape, spec.attrs.Ints("axes")))),
        epsilon_(spec.attrs.Real("epsilon", 1e-5)),
        tables_(tables) {}

  int64_t workspace_bytes() const override { return tables_ * table_bytes(); }

 protected:
  int64_t n() const { return domain_.num_statistics(); }
  int64_t table_bytes() const { return RoundUp(n() * SizeOf(DType::kF32), kCacheLine); }
  float* Table(const LaunchContext& launch, int i) const {
    return reinterpret_cast<float*>(static_cast<char*>(launch.workspace) + i * table_bytes());
  }
  // Returns input i, a statistic, in f32: in table `table` if it is stored otherwise.
  const float* Statistic(const KernelArgs& args, const LaunchContext& launch, int i,
                         int table) const {
    return Chunk(args.inputs[i], spec_.inputs[i]->dtype, 0, n(), Table(launch, table));
  }
  bool HasInput(const KernelArgs& args, size_t i) const {
    return i < args.inputs.size() && args.inputs[i] != nullptr;
  }
  // Returns 1 / sqrt(variance + epsilon), in table `table`.
  const float* RootOf(const float* variance, const LaunchContext& launch, int table) const {
    float* root = Table(launch, table);
    for (int64_t s = 0; s < n(); ++s)
      root[s] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(variance[s]) + epsilon_));
    return root;
  }
  // Sets an output that is a statistic; `value` may be the output itself.
  template <class Value>
  void Set(void* output, Value&& value) const {
    auto* result = static_cast<float*>(output);
    for (int64_t s = 0; s < n(); ++s) result[s] = value(s);
  }

  const KernelSpec spec_;
  const Domain domain_;
  const double count_;  // elements of the whole tensor per statistic

 private:
  const double epsilon_;
  const int tables_;
};

class VarianceKernel final : public StatisticsKernel {
 public:
  explicit VarianceKernel(const KernelSpec& spec) : StatisticsKernel(spec, 1) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    auto* variance = static_cast<float*>(args.outputs[0]);
    auto* unbiased = args.outputs.size() > 1 ? static_cast<float*>(args.outputs[1]) : nullptr;
    if (domain_.empty()) {
      for (float* output : {variance, unbiased}) {
        if (output != nullptr) Set(output, [](int64_t) { return 0.0f; });
      }
      return absl::OkStatus();
    }
    const float* mean = Statistic(args, launch, 1, 0);
    domain_.Sum(launch.team, args.inputs[0], nullptr, {variance, nullptr},
                [=](float x, float, int64_t s) {
                  const float deviation = x - mean[s];
                  return Terms{deviation * deviation, 0.0f};
                });
    const double count = count_;
    Set(variance, [=](int64_t s) { return static_cast<float>(variance[s] / count); });
    if (unbiased != nullptr) {
      const float factor = UnbiasedFactor(count);
      Set(unbiased, [=](int64_t s) { return variance[s] * factor; });
    }
    return absl::OkStatus();
  }
};

class VarianceGradKernel final : public StatisticsKernel {
 public:
  explicit VarianceGradKernel(const KernelSpec& spec) : StatisticsKernel(spec, 2) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    auto* dmean = static_cast<float*>(args.outputs[1]);
    if (domain_.empty()) {
      Set(dmean, [](int64_t) { return 0.0f; });
      return absl::OkStatus();
    }
    const float* mean = Statistic(args, launch, 1, 0);
    const float* dvariance = Statistic(args, launch, 2, 1);
    const float factor = static_cast<float>(2.0 / count_);
    domain_.Map(launch.team, args.inputs[0], nullptr, args.outputs[0],
                [=](float x, float, int64_t s) { return (x - mean[s]) * factor * dvariance[s]; });
    domain_.Sum(launch.team, args.inputs[0], nullptr, {dmean, nullptr},
                [=](float x, float, int64_t s) {
                  return Terms{x - mean[s], 0.0f};
                });
    Set(dmean, [=](int64_t s) { return -factor * dvariance[s] * dmean[s]; });
    return absl::OkStatus();
  }
};

class NormalizeKernel final : public StatisticsKernel {
 public:
  explicit NormalizeKernel(const KernelSpec& spec) : StatisticsKernel(spec, 5) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (domain_.empty()) return absl::OkStatus();
    const float* mean = Statistic(args, launch, 1, 0);
    const float* root = RootOf(Statistic(args, launch, 2, 1), launch, 2);
    float* factor = Table(launch, 2);
    if (HasInput(args, 3)) {
      const float* gamma = Statistic(args, launch, 3, 3);
      for (int64_t s = 0; s < n(); ++s) factor[s] = root[s] * gamma[s];
    }
    if (HasInput(args, 4)) {
      const float* beta = Statistic(args, launch, 4, 4);
      domain_.Map(launch.team, args.inputs[0], nullptr, args.outputs[0],
                  [=](float x, float, int64_t s) { return (x - mean[s]) * factor[s] + beta[s]; });
    } else {
      domain_.Map(launch.team, args.inputs[0], nullptr, args.outputs[0],
                  [=](float x, float, int64_t s) { return (x - mean[s]) * factor[s]; });
    }
    return absl::OkStatus();
  }
};

class NormalizeGradKernel final : public StatisticsKernel {
 public:
  explicit NormalizeGradKernel(const KernelSpec& spec) : StatisticsKernel(spec, 5) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    auto *dmean = static_cast<float*>(args.outputs[1]),
         *dvariance = static_cast<float*>(args.outputs[2]),
         *dgamma = static_cast<float*>(args.outputs[3]),
         *dbeta = static_cast<float*>(args.outputs[4]);
    if (domain_.empty()) {
      for (float* output : {dmean, dvariance, dgamma, dbeta})
        Set(output, [](int64_t) { return 0.0f; });
      return absl::OkStatus();
    }
    const float* mean = Statistic(args, launch, 1, 0);
    const float* root = RootOf(Statistic(args, launch, 2, 1), launch, 2);
    const float* gamma = HasInput(args, 4) ? Statistic(args, launch, 4, 3) : nullptr;
    float* factor = Table(launch, 4);
    for (int64_t s = 0; s < n(); ++s) factor[s] = root[s] * (gamma == nullptr ? 1.0f : gamma[s]);
    domain_.Map(launch.team, args.inputs[0], args.inputs[3], args.outputs[0],
                [=](float, float dy, int64_t s) { return dy * factor[s]; });
    domain_.Sum(launch.team, args.inputs[0], args.inputs[3], {dbeta, dgamma},
                [=](float x, float dy, int64_t s) {
                  return Terms{dy, dy * (x - mean[s])};
                });
    Set(dgamma, [=](int64_t s) { return dgamma[s] * root[s]; });
    Set(dmean, [=](int64_t s) { return -factor[s] * dbeta[s]; });
    Set(dvariance, [=](int64_t s) { return -0.5f * factor[s] * root[s] * dgamma[s]; });
    return absl::OkStatus();
  }
};

KernelOr MakeVariance(const KernelSpec& spec) {
  if (absl::Status status = CheckVariance(spec); !status.ok()) return status;
  return std::make_unique<VarianceKernel>(spec);
}

KernelOr MakeVarianceGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckVarianceGrad(spec); !status.ok()) return status;
  return std::make_unique<VarianceGradKernel>(spec);
}

KernelOr MakeNormalize(const KernelSpec& spec) {
  if (absl::Status status = CheckNormalize(spec); !status.ok()) return status;
  return std::make_unique<NormalizeKernel>(spec);
}

KernelOr MakeNormalizeGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckNormalizeGrad(spec); !status.ok()) return status;
  return std::make_unique<NormalizeGradKernel>(spec);
}

WEIR_REGISTER_KERNEL("cpu", "reduce_variance", MakeVariance);
WEIR_REGISTER_KERNEL("cpu", "reduce_variance_grad", MakeVarianceGrad);
WEIR_REGISTER_KERNEL("cpu", "normalize", MakeNormalize);
WEIR_REGISTER_KERNEL("cpu", "normalize_grad", MakeNormalizeGrad);

}  // namespace
}  // namespace weir::kernels
