#include "ops/kernels/cuda/dropout.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/global_numbers.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/random.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

static_assert(DropoutWork::kAxesMax >= plan_limits::kTensorRankMax);

class DropoutKernel final : public CudaKernel {
 public:
  DropoutKernel(const TensorSlice& x, double rate) : global_elements_(NumElements(x.global_shape)) {
    const GlobalNumbers numbers(x);
    work_.dtype = x.dtype;
    work_.rule = DropoutRuleOf(rate);
    work_.count = x.num_elements();
    work_.first = numbers.first();
    work_.stretch = numbers.stretch();
    work_.num_outer = static_cast<int>(numbers.outer().size());
    for (int i = 0; i < work_.num_outer; ++i) {
      work_.outer_sizes[i] = numbers.outer()[i].size;
      work_.outer_strides[i] = numbers.outer()[i].stride;
    }
  }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    DropoutWork work = work_;
    work.rule.key = MixKey(args.random_key, static_cast<uint64_t>(args.step));
    work.first += args.micro_batch * global_elements_;
    work.x = args.inputs[0];
    work.y = args.outputs[0];
    LaunchDropout(work, stream);
    return absl::OkStatus();
  }

  const int64_t global_elements_;
  DropoutWork work_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeDropout(const KernelSpec& spec) {
  SpecCheck check(spec);
  const double rate = spec.attrs.Real("rate", -1);
  check.Inputs(1, 1)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y")
      .Expect(0 <= rate && rate <= 1, "a rate from 0 to 1");
  if (!check.ok()) return check.status();
  return std::make_unique<DropoutKernel>(check.in(0), rate);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "dropout", MakeDropout);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
