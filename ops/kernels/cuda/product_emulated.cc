// Products in emulation: plain loops, which the stream runs when their turn comes.
#include "ops/kernels/cuda/product.h"

#ifdef WEIR_CUDA_EMULATED

#include <algorithm>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/real.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// Computes product `i` of the batch.
void Compute(const ProductSpec& spec, const ProductOperands& operands, int64_t i) {
  const int64_t m = spec.m, n = spec.n, k = spec.k;
  std::vector<float> b(k * n), sums(n);
  for (int64_t row = 0; row < k; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      const int64_t at = spec.b == Layout::kPlain ? row * n + column : column * k + row;
      b[row * n + column] = RealAt(spec.operands, operands.b, i * k * n + at);
    }
  }
  for (int64_t row = 0; row < m; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t at = 0; at < k; ++at) {
      const int64_t of_a = spec.a == Layout::kPlain ? row * k + at : at * m + row;
      const float factor = RealAt(spec.operands, operands.a, i * m * k + of_a);
      for (int64_t column = 0; column < n; ++column) sums[column] += factor * b[at * n + column];
    }
    for (int64_t column = 0; column < n; ++column) {
      const float bias = spec.has_bias ? RealAt(spec.bias, operands.bias, column) : 0.0f;
      const int64_t at = i * m * n + row * n + column;
      const float addend =
          operands.addend != nullptr ? RealAt(spec.result, operands.addend, at) : 0.0f;
      SetRealAt(spec.result, operands.c, at, sums[column] + bias + addend);
    }
  }
}

class EmulatedPlan final : public ProductPlan {
 public:
  explicit EmulatedPlan(const ProductSpec& spec) : spec_(spec) {}
  ProductReach reach() const override { return ProductReach::kBias; }

  absl::Status Enqueue(const ProductOperands& operands, void*, device::CudaStream stream) override {
    const PlannedOperands planned{this, nullptr, operands};
    if (device::Records(stream, planned)) return absl::OkStatus();
    static_cast<device::EmulatedStream*>(stream.handle)->Put([spec = spec_, operands] {
      for (int64_t i = 0; i < spec.batch; ++i) Compute(spec, operands, i);
    });
    return absl::OkStatus();
  }

 private:
  const ProductSpec spec_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProductPlan>> MakeProductPlan(const ProductSpec& spec) {
  return std::make_unique<EmulatedPlan>(spec);
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE

#endif
