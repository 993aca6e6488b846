#include "ops/kernels/cuda/rotary.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class RotaryKernel final : public CudaKernel {
 public:
  RotaryKernel(const TensorSlice& x, bool has_positions, double base, double direction) {
    work_.dtype = x.dtype;
    work_.base = base;
    work_.direction = direction;
    work_.batch = x.shape[0];
    work_.sequence = x.shape[1];
    work_.num_heads = x.shape[2];
    work_.half = x.shape[3] / 2;
    work_.first_position = x.offset[1];
    work_.rows = has_positions ? work_.batch * work_.sequence : work_.sequence;
  }

  int64_t workspace_bytes() const override { return work_.table_bytes(); }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    RotaryWork work = work_;
    work.x = args.inputs[0];
    work.positions = args.inputs.size() > 1 ? static_cast<const int32_t*>(args.inputs[1]) : nullptr;
    work.y = args.outputs[0];
    work.table = static_cast<float*>(workspace);
    LaunchRotary(work, stream);
    return absl::OkStatus();
  }

  RotaryWork work_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeRotary(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 2)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .Expect(check.in(0).shape.size() == 4, "x[b, s, h, d]");
  check.SameType(check.in(0), check.out(0), "x and y")
      .SameShape(check.in(0), check.out(0), "x and y");
  check.Expect(SizeFromEnd(check.in(0), 1) % 2 == 0, "an even d");
  check.Expect(spec.attrs.Real("base", 10000) > 0, "a base above 0");
  if (check.HasIn(1)) {
    check.Is(check.in(1), DType::kI32, "positions")
        .Expect(check.in(1).shape == Shape{check.in(0).shape[0], check.in(0).shape[1]},
                "positions[b, s]");
  }
  if (!check.ok()) return check.status();
  return std::make_unique<RotaryKernel>(check.in(0), check.HasIn(1), spec.attrs.Real("base", 10000),
                                        spec.attrs.Bool("inverse") ? -1.0 : 1.0);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "rotary", MakeRotary);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
