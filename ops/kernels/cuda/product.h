// A Product is a matrix product c = a b (+ bias) of fixed sizes on a GPU, maybe through an
// activation, or a batch of such products. cuBLASLt computes it, in f32 inside (never TF32), and
// its own epilogues take the bias and the activation where they fit; a kernel of this folder does
// the rest. In emulation plain loops compute it, with sums in the order of k.
//
// The library and the algorithm are chosen when the product is first put into a stream, and then
// kept: a product needs neither the library nor a GPU before. The same sizes on the same device
// with the same library give the same bits.
// Thread rule: one call at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/cuda/product_finish.h"
#include "ops/kernels/shape/product_shape.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

enum class Layout : uint8_t { kPlain, kTransposed };

enum class SummedOperand : uint8_t { kNone, kA, kB };

struct ProductSpec {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;             // products, whose operands lie one after the other
  DType operands = DType::kF32;  // of a and b
  DType result = DType::kF32;    // of c and pre
  Layout a = Layout::kPlain;     // kTransposed: stored as [k, m]
  Layout b = Layout::kPlain;     // kTransposed: stored as [n, k]
  bool has_bias = false;         // of n elements, for a batch of one
  DType bias = DType::kF32;
  Activation activation = Activation::kNone;
  bool keeps_pre = false;  // `pre` gets the value before the activation
  // c is the product times the derivative of GELU (the tanh form) at gelu_input. For a bf16 result
  // without bias and activation.
  bool gelu_grad = false;
  // The operand whose sums over k a product that can gives besides, in f32: m sums of a, n of b.
  // For a batch of one, without bias, activation and gelu_grad.
  SummedOperand sums = SummedOperand::kNone;
};

// Returns the spec of the product, without an activation.
ProductSpec SpecOf(const ProductShape& shape);

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  // The product is added to this tensor like c before it is stored: to c itself, or to a tensor
  // that shares no bytes with c. Null: to nothing. One call may have an addend and the next none.
  // Only a product without activation and gelu_grad has one, and its result is of the operands'
  // type or f32.
  const void* addend = nullptr;
  const void* gelu_input = nullptr;  // of gelu_grad, a tensor like c
  void* c = nullptr;
  void* pre = nullptr;
  float* sums = nullptr;
};

// A ProductReach says how much of a Product a ProductPlan computes: the product, with the bias, or
// all that the spec asks for. Each of them includes the addend.
enum class ProductReach : uint8_t { kProduct, kBias, kAll };

// A ProductPlan computes products of fixed sizes. Without kAll its result goes to `c` alone.
class ProductPlan {
 public:
  virtual ~ProductPlan() = default;
  virtual ProductReach reach() const = 0;
  virtual absl::Status Enqueue(const ProductOperands& operands, void* workspace,
                               device::CudaStream stream) = 0;
};

// All that the work of a plan's call depends on.
struct PlannedOperands {
  const ProductPlan* plan;
  void* workspace;
  ProductOperands operands;
};

// Precondition: no size is 0. W0565 to W0567: the library is missing, or refuses.
absl::StatusOr<std::unique_ptr<ProductPlan>> MakeProductPlan(const ProductSpec& spec);

// Bytes of workspace that every ProductPlan may use, from any address.
constexpr int64_t kProductWorkspace = (int64_t{32} << 20) + 256;

class Product {
 public:
  explicit Product(const ProductSpec& spec) : spec_(spec) {}

  int64_t workspace_bytes() const {
    return IsPlain() ? kProductWorkspace + narrowed_elements() * SizeOf(DType::kF32) : 0;
  }
  // Sizes may be 0: a sum of no products is 0. A bf16 or f16 result of operands of another type has
  // neither bias nor activation.
  absl::Status Enqueue(const ProductOperands& operands, void* workspace, device::CudaStream stream);

  // Returns whether the calls of Enqueue, of which there was one, set operands.sums. Where the
  // library has no such product, they leave the sums to the caller.
  bool makes_sums() const {
    return spec_.sums != SummedOperand::kNone && plan_ != nullptr &&
           plan_->reach() == ProductReach::kAll;
  }

 private:
  // True if there are products to add.
  bool IsPlain() const { return spec_.m > 0 && spec_.n > 0 && spec_.k > 0 && spec_.batch > 0; }

  // Returns the elements of a bf16 or f16 result of operands of another type, which cuBLASLt does
  // not make: the result comes in f32 into the workspace, and a cast follows. 0 for other types.
  int64_t narrowed_elements() const {
    const bool narrows = IsHalf(spec_.result) && spec_.result != spec_.operands;
    return narrows ? spec_.batch * spec_.m * spec_.n : 0;
  }

  const ProductSpec spec_;
  std::unique_ptr<ProductPlan> plan_;  // null until first used
  bool has_run_ = false;
};

}  // namespace weir::kernels::WEIR_CUDA_SPACE
