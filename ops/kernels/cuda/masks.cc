#include "ops/kernels/cuda/masks.h"

#include <vector>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/broadcast_axes.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

const void* InputOrNull(const KernelArgs& args, size_t i) {
  return i < args.inputs.size() ? args.inputs[i] : nullptr;
}

// Returns the layout of the result with all operands that are there, which are expected to fit it.
// Trailing operands may be absent.
BroadcastLayout FittingLayout(const KernelSpec& spec, SpecCheck* check) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < spec.inputs.size() && check->HasIn(static_cast<int>(i)); ++i)
    shapes.push_back(spec.inputs[i]->shape);
  check->Expect(check->ok() && BroadcastAxes::Fit(shapes, check->out(0).shape),
                "operands as long as the result along each axis, or of size 1, and one as long");
  if (!check->ok()) return BroadcastLayout();
  return LayoutOf(BroadcastAxes(shapes, check->out(0).shape));
}

class CompareKernel final : public CudaKernel {
 public:
  explicit CompareKernel(const CompareWork& work) : work_(work) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    CompareWork work = work_;
    work.a = args.inputs[0];
    work.b = InputOrNull(args, 1);
    work.y = args.outputs[0];
    LaunchCompare(work, stream);
    return absl::OkStatus();
  }

  const CompareWork work_;
};

KernelFactory MakeCompare(Relation relation) {
  return [relation](const KernelSpec& spec) -> KernelOr {
    SpecCheck check(spec);
    check.Inputs(1, 2).Outputs(1, 1).Is(check.out(0), DType::kBool, "y");
    if (check.HasIn(1)) check.SameType(check.in(0), check.in(1), "a and b");
    CompareWork work;
    work.relation = relation;
    work.dtype = check.in(0).dtype;
    work.value = spec.attrs.Real("value", 0);
    work.layout = FittingLayout(spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<CompareKernel>(work);
  };
}

class LogicalKernel final : public CudaKernel {
 public:
  explicit LogicalKernel(const LogicalWork& work) : work_(work) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    LogicalWork work = work_;
    work.a = args.inputs[0];
    work.b = InputOrNull(args, 1);
    work.y = args.outputs[0];
    LaunchLogical(work, stream);
    return absl::OkStatus();
  }

  const LogicalWork work_;
};

KernelFactory MakeLogical(Connective connective) {
  return [connective](const KernelSpec& spec) -> KernelOr {
    const int num_inputs = connective == Connective::kNot ? 1 : 2;
    SpecCheck check(spec);
    check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Is(check.out(0), DType::kBool, "y");
    for (int i = 0; i < num_inputs; ++i) check.Is(check.in(i), DType::kBool, "a and b");
    LogicalWork work;
    work.connective = connective;
    work.layout = FittingLayout(spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<LogicalKernel>(work);
  };
}

class WhereKernel final : public CudaKernel {
 public:
  explicit WhereKernel(const WhereWork& work) : work_(work) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    WhereWork work = work_;
    work.condition = args.inputs[0];
    work.a = args.inputs[1];
    work.b = InputOrNull(args, 2);
    work.y = args.outputs[0];
    LaunchWhere(work, stream);
    return absl::OkStatus();
  }

  const WhereWork work_;
};

KernelOr MakeWhere(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 3).Outputs(1, 1);
  check.Is(check.in(0), DType::kBool, "condition").Real(check.in(1), "a");
  if (check.HasIn(2)) check.SameType(check.in(1), check.in(2), "a and b");
  check.SameType(check.in(1), check.out(0), "a and y");
  WhereWork work;
  work.dtype = check.out(0).dtype;
  work.value = static_cast<float>(spec.attrs.Real("value", 0));
  work.layout = FittingLayout(spec, &check);
  if (!check.ok()) return check.status();
  return std::make_unique<WhereKernel>(work);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "equal", MakeCompare(Relation::kEqual));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "not_equal", MakeCompare(Relation::kNotEqual));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "less", MakeCompare(Relation::kLess));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "less_equal", MakeCompare(Relation::kLessEqual));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "greater", MakeCompare(Relation::kGreater));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "greater_equal", MakeCompare(Relation::kGreaterEqual));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "logical_and", MakeLogical(Connective::kAnd));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "logical_or", MakeLogical(Connective::kOr));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "logical_xor", MakeLogical(Connective::kXor));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "logical_not", MakeLogical(Connective::kNot));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "where", MakeWhere);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
