// max_pool, average_pool and their gradients. One piece of work is one or more planes: the spatial
// dimensions of one channel of one image.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/pool_shape.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The elements of one window along one dimension: begin, begin + dilation, …, below end.
struct Stretch {
  int64_t begin = 0, end = 0;
  int64_t inside = 0;        // elements
  int64_t with_padding = 1;  // elements with those in the padding; none lies behind the padding
};

Stretch StretchOf(const WindowAxis& axis, int64_t window) {
  const int64_t first = window * axis.stride - axis.padding, last = first + axis.extent();
  Stretch stretch;
  const int64_t skipped = first < 0 ? (-first + axis.dilation - 1) / axis.dilation : 0;
  stretch.begin = first + skipped * axis.dilation;
  stretch.end = std::min(last, axis.in);
  stretch.inside = (stretch.end - stretch.begin + axis.dilation - 1) / axis.dilation;
  const int64_t reach = std::min(last, axis.in + axis.padding) - first;
  stretch.with_padding = (reach + axis.dilation - 1) / axis.dilation;
  return stretch;
}

// Calls visit(window, stretches) for each window, in order.
template <class Visit>
void ForEachWindow(const PoolShape& shape, Visit&& visit) {
  std::array<Stretch, kPoolAxes> at;
  int64_t window = 0;
  for (int64_t i = 0; i < shape.axes[0].out; ++i) {
    at[0] = StretchOf(shape.axes[0], i);
    for (int64_t j = 0; j < shape.axes[1].out; ++j) {
      at[1] = StretchOf(shape.axes[1], j);
      for (int64_t k = 0; k < shape.axes[2].out; ++k) {
        at[2] = StretchOf(shape.axes[2], k);
        visit(window++, at);
      }
    }
  }
}

// Calls visit(element) for each element of x in a window, in order.
template <class Visit>
void ForEachElement(const PoolShape& shape, const std::array<Stretch, kPoolAxes>& at,
                    Visit&& visit) {
  const auto& axes = shape.axes;
  for (int64_t i = at[0].begin; i < at[0].end; i += axes[0].dilation) {
    for (int64_t j = at[1].begin; j < at[1].end; j += axes[1].dilation) {
      const int64_t row = (i * axes[1].in + j) * axes[2].in;
      for (int64_t k = at[2].begin; k < at[2].end; k += axes[2].dilation) visit(row + k);
    }
  }
}

// Returns the first of the largest elements, or the last one that is not a number.
int64_t Largest(const PoolShape& shape, const std::array<Stretch, kPoolAxes>& at, const float* x) {
  int64_t largest = -1;
  float value = -std::numeric_limits<float>::infinity();
  ForEachElement(shape, at, [&](int64_t element) {
    if (largest < 0 || x[element] > value || x[element] != x[element]) {
      largest = element;
      value = x[element];
    }
  });
  return largest;
}

enum class Pool : uint8_t { kMax, kMaxGrad, kAverage, kAverageGrad };
enum class Padding : uint8_t { kCounts, kLeftOut };

class PoolKernel final : public Kernel {
 public:
  PoolKernel(Pool pool, PoolShape shape, Padding padding, DType dtype, int num_threads)
      : pool_(pool),
        shape_(shape),
        padding_(padding),
        dtype_(dtype),
        num_threads_(num_threads),
        pieces_(Pieces::OfRows(shape.planes, shape.in() + shape.out(), kHeavyPiece)) {}

  // A lane holds a plane of each operand in f32.
  int64_t workspace_bytes() const override { return lane_bytes() * num_threads_; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece, int worker) {
      float* lane =
          reinterpret_cast<float*>(static_cast<char*>(launch.workspace) + worker * lane_bytes());
      for (int64_t plane = pieces_.begin(piece); plane < pieces_.end(piece); ++plane)
        RunPlane(args, plane, lane);
    });
    return absl::OkStatus();
  }

 private:
  int64_t lane_bytes() const {
    return RoundUp((2 * shape_.in() + shape_.out()) * SizeOf(DType::kF32), kCacheLine);
  }

  void Read(const void* from, int64_t plane, int64_t size, float* to) const {
    ConvertReal(dtype_, DType::kF32, static_cast<const char*>(from) + plane * size * SizeOf(dtype_),
                to, size);
  }
  void Write(const float* from, int64_t plane, int64_t size, void* to) const {
    ConvertReal(DType::kF32, dtype_, from, static_cast<char*>(to) + plane * size * SizeOf(dtype_),
                size);
  }

  void RunPlane(const KernelArgs& args, int64_t plane, float* lane) const {
    const int64_t in = shape_.in(), out = shape_.out();
    float *x = lane, *dx = lane + in, *y = lane + 2 * in;
    const bool grad = pool_ == Pool::kMaxGrad || pool_ == Pool::kAverageGrad;
    if (pool_ != Pool::kAverageGrad) Read(args.inputs[0], plane, in, x);
    if (grad) {
      Read(args.inputs[pool_ == Pool::kMaxGrad ? 1 : 0], plane, out, y);
      std::fill(dx, dx + in, 0.0f);
    }
    ForEachWindow(shape_, [&](int64_t window, const std::array<Stretch, kPoolAxes>& at) {
      switch (pool_) {
        case Pool::kMax: y[window] = x[Largest(shape_, at, x)]; break;
        case Pool::kMaxGrad: dx[Largest(shape_, at, x)] += y[window]; break;
        case Pool::kAverage: {
          float sum = 0;
          ForEachElement(shape_, at, [&](int64_t element) { sum += x[element]; });
          y[window] = sum * Share(at);
          break;
        }
        case Pool::kAverageGrad: {
          const float share = y[window] * Share(at);
          ForEachElement(shape_, at, [&](int64_t element) { dx[element] += share; });
          break;
        }
      }
    });
    if (grad) {
      Write(dx, plane, in, args.outputs[0]);
    } else {
      Write(y, plane, out, args.outputs[0]);
    }
  }

  // Returns the weight of each element of a window in its mean.
  float Share(const std::array<Stretch, kPoolAxes>& at) const {
    int64_t count = 1;
    for (const Stretch& stretch : at) {
      count *= padding_ == Padding::kCounts ? stretch.with_padding : stretch.inside;
    }
    return 1.0f / static_cast<float>(count);
  }

  const Pool pool_;
  const PoolShape shape_;
  const Padding padding_;
  const DType dtype_;
  const int num_threads_;
  const Pieces pieces_;
};

kernels::KernelFactory MakePool(Pool pool) {
  return [pool](const KernelSpec& spec) -> KernelOr {
    SpecCheck check(spec);
    const int num_inputs = pool == Pool::kMaxGrad ? 2 : 1;
    check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Real(check.in(0), "the first input");
    check.SameType(check.in(0), check.out(0), "all operands");
    if (num_inputs == 2) {
      check.SameType(check.in(0), check.in(1), "all operands")
          .SameShape(check.in(0), check.out(0), "x and dx");
    }
    const TensorSlice& x = pool == Pool::kAverageGrad ? check.out(0) : check.in(0);
    const TensorSlice& y = pool == Pool::kMaxGrad       ? check.in(1)
                           : pool == Pool::kAverageGrad ? check.in(0)
                                                        : check.out(0);
    const std::optional<PoolShape> shape = PoolShapeOf(spec.attrs, x, y);
    check.Expect(shape.has_value(), "[b, c, s...] and [b, c, t...] with t windows over s");
    if (!check.ok()) return check.status();
    const Padding padding =
        spec.attrs.Bool("count_padding", true) ? Padding::kCounts : Padding::kLeftOut;
    return std::make_unique<PoolKernel>(pool, *shape, padding, check.in(0).dtype, spec.num_threads);
  };
}

WEIR_REGISTER_KERNEL("cpu", "max_pool", MakePool(Pool::kMax));
WEIR_REGISTER_KERNEL("cpu", "max_pool_grad", MakePool(Pool::kMaxGrad));
WEIR_REGISTER_KERNEL("cpu", "average_pool", MakePool(Pool::kAverage));
WEIR_REGISTER_KERNEL("cpu", "average_pool_grad", MakePool(Pool::kAverageGrad));

}  // namespace
}  // namespace weir::kernels
