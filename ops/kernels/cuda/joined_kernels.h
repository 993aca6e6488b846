// Kernels that do the work of several calls of a chain (join.h has the rules by which they come
// in). Each operand below is an operand of one of the calls; a call that has been checked as its
// own kernel needs no other check.
// Thread rule: as Kernel.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// A matmul whose result is only added to a tensor of its shape. Precondition: no activation.
// Inputs: x, w, bias (may be absent), addend. Output: the sum, which may be the addend.
std::unique_ptr<Kernel> MakeMatmulPlus(const KernelSpec& matmul);

// A matmul whose result is only the dy of gelu_grad. Precondition: a bf16 result without bias and
// activation. Inputs: x, w, and the x of gelu_grad. Output: dx.
std::unique_ptr<Kernel> MakeMatmulGeluGrad(const KernelSpec& matmul);

// A matmul_grad_w with what follows it: `accumulates` adds its result to output 0 from the second
// act of a span on; `bias_grad` is the reduce_sum of its dy over all axes but the last, null if
// there is none. Inputs: x, dy. Outputs: dw or its sum, and the result of bias_grad.
std::unique_ptr<Kernel> MakeMatmulGradWeightWith(const KernelSpec& grad, bool accumulates,
                                                 const KernelSpec* bias_grad);

// A layer_norm_grad or rms_norm_grad whose dx is only added to a tensor of its shape. Operands: as
// the gradient, with one more input, the addend. Output 0, the sum, may be x, dy or the addend.
std::unique_ptr<Kernel> MakeNormGradPlus(const KernelSpec& grad);

// A layer_norm or rms_norm of a sum of two tensors of its shape. Operands: as the norm, with the
// first addend as x; then one more input, the second addend, and one more output, the sum, which
// may be an addend. The bits are those of the addition and the norm.
std::unique_ptr<Kernel> MakeNormOfSum(const KernelSpec& norm);

// A silu and a mul of its result by a tensor of its shape. Inputs: x of silu, the factor. Outputs:
// the product, and silu(x), which may be absent. The bits are those of the two.
std::unique_ptr<Kernel> MakeSiluProduct(const KernelSpec& mul);
// A matmul without the activation that its attributes name. Operands: x, w, bias (may be absent),
// and the product. The bits are those of the value before the activation.
std::unique_ptr<Kernel> MakeMatmulBeforeActivation(const KernelSpec& matmul);

// An embedding_grad whose result is only accumulated. Operands: as the gradient.
std::unique_ptr<Kernel> MakeEmbeddingGradInto(const KernelSpec& grad);

// At most kManyMax calls of one op, each with its own operands; no operand is written by one call
// and touched by another.
constexpr size_t kManyMax = 32;
// Casts of one pair of types. Inputs: each x. Outputs: each y.
std::unique_ptr<Kernel> MakeCastOfMany(absl::Span<const KernelSpec* const> specs);
// Additions to f32 sums of gradients of one type in one act of a span. Inputs: each g. Outputs:
// each sum.
std::unique_ptr<Kernel> MakeAccumulateOfMany(absl::Span<const KernelSpec* const> specs);
// Updates with one scale. Inputs: each gradient, then the scale. Outputs: all of each call.
std::unique_ptr<Kernel> MakeAdamWOfMany(absl::Span<const KernelSpec* const> specs);
std::unique_ptr<Kernel> MakeSgdOfMany(absl::Span<const KernelSpec* const> specs);

// Calls of sum_squares whose results are only added up, one after another: at most kSumsMax calls.
// Inputs: all of each call. Output: the sum.
constexpr size_t kSumsMax = 256;
std::unique_ptr<Kernel> MakeSumOfSquareSums(absl::Span<const KernelSpec* const> specs);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
