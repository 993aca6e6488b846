#include "ops/kernels/cuda/unary.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/unary_op.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class UnaryKernel final : public CudaKernel {
 public:
  UnaryKernel(const UnaryOp& op, UnaryConstants constants, const TensorSlice& x) : part_(op.part) {
    work_.function = op.function;
    work_.constants = constants;
    work_.dtype = x.dtype;
    work_.count = x.num_elements();
  }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    UnaryWork work = work_;
    work.x = args.inputs[0];
    work.y = args.outputs[0];
    if (part_ == UnaryPart::kValue) {
      LaunchUnary(work, stream);
    } else {
      work.dy = args.inputs[1];
      LaunchUnaryGrad(work, stream);
    }
    return absl::OkStatus();
  }

  const UnaryPart part_;
  UnaryWork work_;
};

KernelFactory MakeUnary(const UnaryOp& op) {
  return [op](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    WEIR_ASSIGN_OR_RETURN(const UnaryConstants constants, CheckUnary(op, spec));
    return std::make_unique<UnaryKernel>(op, constants, *spec.inputs[0]);
  };
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const UnaryOp& op : UnaryOps())
    KernelRegistry::Register(WEIR_CUDA_KIND, op.name, MakeUnary(op));
  return true;
}();

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
