// A Gemm is one matrix product c = a b (+ bias) of fixed sizes. The shape alone decides how the
// product is cut into blocks of c, and oneDNN computes each block on one thread.
//
// Gemm does not use oneDNN's own parallelism, because oneDNN cuts by the number of threads, so that
// sums might come out in another order. There are two ways to cut a product:
//   panels  b is first packed, panel by panel, into the order that oneDNN's block kernels
//           (AVX-512, AMX) read; a block is some rows of c, whole width
//   plain   b is read in place; a block is a rectangle of c
// Each way has two types in which to multiply bf16 operands: bf16, or f32 after a conversion of the
// operands. The spec names cut and type (ProductWay). If it says kAutomatic, shape and machine
// decide: plain for few rows, for b too large to be worth a copy, and for machines without block
// kernels; f32 where oneDNN has no bf16 (no AVX-512), and beside f16, which oneDNN lacks.
//
// Everything is made in Create. Run allocates nothing itself; oneDNN 2.6 allocates a small table of
// arguments per execution, freed before the execution returns.
// Thread rule: one Run at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/shape/product_shape.h"
#include "runtime/base/dtype.h"
#include "runtime/base/product.h"
#include "runtime/device/thread_team.h"

namespace weir::kernels {

struct GemmSpec {
  int64_t m = 0, n = 0, k = 0;
  DType operands = DType::kF32;  // of a and b
  DType result = DType::kF32;    // of c
  Storage a = Storage::kPlain;   // kTransposed: stored as [k, m]
  Storage b = Storage::kPlain;   // kTransposed: stored as [n, k]
  std::optional<DType> bias;     // of n elements; none: no bias
  int num_threads = 1;           // at least the team's
  ProductWay way = ProductWay::kAutomatic;
};

// Returns the spec of one product of the shape.
inline GemmSpec GemmOf(const ProductShape& shape, int num_threads) {
  const auto stored = [](bool transposed) {
    return transposed ? Storage::kTransposed : Storage::kPlain;
  };
  return {shape.m,
          shape.n,
          shape.k,
          shape.operands,
          shape.result,
          stored(shape.a_transposed),
          stored(shape.b_transposed),
          shape.bias,
          num_threads,
          shape.way};
}

class Gemm {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
    void* workspace = nullptr;  // workspace_bytes(), 64-byte aligned
  };
  // A Block is a finished rectangle of c.
  struct Block {
    int64_t row = 0, num_rows = 0, column = 0, num_columns = 0;
  };

  // kUnavailable (W0842) if this processor has no kernel for the way that the spec names, kInternal
  // if oneDNN refuses a product that it should support.
  static absl::StatusOr<std::unique_ptr<Gemm>> Create(const GemmSpec& spec);
  virtual ~Gemm() = default;

  virtual int64_t workspace_bytes() const = 0;
  // `finished` is called once per block, on the thread that computed the block, while the block is
  // still in that thread's cache; blocks cover c.
  virtual void Run(device::ThreadTeam* team, const Operands& operands,
                   absl::FunctionRef<void(const Block&)> finished) = 0;
  // Returns "panels" or "plain", and oneDNN's name of its kernel; for tests and benchmarks.
  virtual std::string debug_text() const = 0;
};

}  // namespace weir::kernels
