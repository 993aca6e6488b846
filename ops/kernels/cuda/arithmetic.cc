#include "ops/kernels/cuda/arithmetic.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/joined_kernels.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class ScaleKernel final : public CudaKernel {
 public:
  ScaleKernel(float factor, const TensorSlice& x)
      : factor_(factor), dtype_(x.dtype), count_(x.num_elements()) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    LaunchScale({dtype_, factor_, args.inputs[0], args.outputs[0], count_}, stream);
    return absl::OkStatus();
  }

  const float factor_;
  const DType dtype_;
  const int64_t count_;
};

KernelOr MakeScale(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y")
      .Expect(spec.attrs.Has("factor"), "attribute factor");
  if (!check.ok()) return check.status();
  return std::make_unique<ScaleKernel>(static_cast<float>(spec.attrs.Real("factor")), check.in(0));
}

class CastKernel final : public CudaKernel {
 public:
  CastKernel(const TensorSlice& x, const TensorSlice& y)
      : from_(x.dtype), to_(y.dtype), count_(x.num_elements()) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    LaunchCast({from_, to_, args.inputs[0], args.outputs[0], count_}, stream);
    return absl::OkStatus();
  }

  const DType from_, to_;
  const int64_t count_;
};

KernelOr MakeCast(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).SameShape(check.in(0), check.out(0), "x and y");
  if (!check.ok()) return check.status();
  return std::make_unique<CastKernel>(check.in(0), check.out(0));
}

// In training the result is the statistic; the average and the sample are for the update.
KernelOr MakeMovingAverage(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 3)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y");
  if (!check.ok()) return check.status();
  return std::make_unique<CastKernel>(check.in(0), check.out(0));
}

// acc = g in the first act of a span, acc += g in the others.
class AccumulateKernel final : public CudaKernel {
 public:
  explicit AccumulateKernel(const TensorSlice& g) : dtype_(g.dtype), count_(g.num_elements()) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    if (args.span_act > 0) {
      LaunchAccumulate({dtype_, args.inputs[0], static_cast<float*>(args.outputs[0]), count_},
                       stream);
    } else {
      LaunchCast({dtype_, DType::kF32, args.inputs[0], args.outputs[0], count_}, stream);
    }
    return absl::OkStatus();
  }

  const DType dtype_;
  const int64_t count_;
};

KernelOr MakeAccumulate(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).Real(check.in(0), "g").Is(check.out(0), DType::kF32, "acc");
  check.SameShape(check.in(0), check.out(0), "g and acc");
  if (!check.ok()) return check.status();
  return std::make_unique<AccumulateKernel>(check.in(0));
}

// Casts of several tensors of one pair of types, or accumulate of several.
class ManyKernel final : public CudaKernel {
 public:
  enum class Op : uint8_t { kCast, kAccumulate };
  ManyKernel(Op op, absl::Span<const KernelSpec* const> specs) : op_(op) {
    work_.from = specs[0]->inputs[0]->dtype;
    work_.to = specs[0]->outputs[0]->dtype;
    for (const KernelSpec* spec : specs) {
      work_.tensors[work_.num_tensors++] = {nullptr, nullptr, spec->inputs[0]->num_elements(),
                                            /*first_block=*/0};
    }
  }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ManyWork work = work_;
    for (int i = 0; i < work.num_tensors; ++i) {
      work.tensors[i].x = args.inputs[i];
      work.tensors[i].y = args.outputs[i];
    }
    work.adds = op_ == Op::kAccumulate && args.span_act > 0;
    LaunchMany(work, stream);
    return absl::OkStatus();
  }

  const Op op_;
  ManyWork work_;  // without addresses
};

}  // namespace

std::unique_ptr<Kernel> MakeCastOfMany(absl::Span<const KernelSpec* const> specs) {
  return std::make_unique<ManyKernel>(ManyKernel::Op::kCast, specs);
}
std::unique_ptr<Kernel> MakeAccumulateOfMany(absl::Span<const KernelSpec* const> specs) {
  return std::make_unique<ManyKernel>(ManyKernel::Op::kAccumulate, specs);
}

namespace {

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "scale", MakeScale);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "cast", MakeCast);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "moving_average", MakeMovingAverage);
// A step of one micro-batch has the operand itself as the mean over the micro-batches.
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "step_mean", MakeCast);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "accumulate", MakeAccumulate);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
