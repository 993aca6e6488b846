// batched_matmul. Few large products take all threads each. Many products are spread over the
// threads, one product on one thread. A product has the same bits either way.
#include <vector>

#include "ops/kernels/cpu/gemm.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/product_shape.h"
#include "runtime/base/status.h"

namespace weir::kernels {
namespace {

class BatchedMatmulKernel final : public Kernel {
 public:
  // `products` has a product for each thread, or one that takes all threads.
  BatchedMatmulKernel(std::vector<std::unique_ptr<Gemm>> products, const GemmSpec& spec,
                      int64_t batch)
      : products_(std::move(products)),
        batch_(batch),
        a_bytes_(spec.m * spec.k * SizeOf(spec.operands)),
        b_bytes_(spec.k * spec.n * SizeOf(spec.operands)),
        y_bytes_(spec.m * spec.n * SizeOf(spec.result)) {
    for (size_t i = 0; i < products_.size(); ++i)
      alone_.push_back(std::make_unique<device::ThreadTeam>(1));
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>(products_.size()) * bytes_of_one();
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const auto run = [&](int64_t i, size_t worker, device::ThreadTeam* team) {
      const Gemm::Operands operands{
          static_cast<const char*>(args.inputs[0]) + i * a_bytes_,
          static_cast<const char*>(args.inputs[1]) + i * b_bytes_, nullptr,
          static_cast<char*>(args.outputs[0]) + i * y_bytes_,
          static_cast<char*>(launch.workspace) + static_cast<int64_t>(worker) * bytes_of_one()};
      products_[worker]->Run(team, operands, [](const Gemm::Block&) {});
    };
    if (products_.size() == 1) {
      for (int64_t i = 0; i < batch_; ++i) run(i, 0, launch.team);
    } else {
      launch.team->For(batch_, [&](int64_t i, int worker) {
        run(i, static_cast<size_t>(worker), alone_[worker].get());
      });
    }
    return absl::OkStatus();
  }

 private:
  int64_t bytes_of_one() const { return RoundUp(products_[0]->workspace_bytes(), kCacheLine); }

  const std::vector<std::unique_ptr<Gemm>> products_;
  std::vector<std::unique_ptr<device::ThreadTeam>> alone_;
  const int64_t batch_, a_bytes_, b_bytes_, y_bytes_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeBatchedMatmul(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadBatchedMatmul(spec));
  const bool one_thread_each = spec.num_threads > 1 && shape.batch >= spec.num_threads;
  const GemmSpec gemm = GemmOf(shape, one_thread_each ? 1 : spec.num_threads);
  std::vector<std::unique_ptr<Gemm>> products;
  for (int i = 0; i < (one_thread_each ? spec.num_threads : 1); ++i) {
    WEIR_ASSIGN_OR_RETURN(products.emplace_back(), Gemm::Create(gemm));
  }
  return std::make_unique<BatchedMatmulKernel>(std::move(products), gemm, shape.batch);
}

WEIR_REGISTER_KERNEL("cpu", "batched_matmul", MakeBatchedMatmul);

}  // namespace
}  // namespace weir::kernels
