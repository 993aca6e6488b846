#include "ops/kernels/cuda/reshape.h"

#include <vector>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/move_unit.h"
#include "ops/kernels/shape/ordered_axes.h"
#include "ops/kernels/shape/row_parts.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

static_assert(TransposeWork::kAxesMax == plan_limits::kTensorRankMax);

class ReshapeKernel final : public CudaKernel {
 public:
  explicit ReshapeKernel(const TensorSlice& x) : bytes_(x.bytes()) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    if (args.inputs[0] == args.outputs[0]) return absl::OkStatus();
    LaunchCopy({args.inputs[0], args.outputs[0], bytes_}, stream);
    return absl::OkStatus();
  }

  const int64_t bytes_;
};

KernelOr MakeReshape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).SameType(check.in(0), check.out(0), "x and y");
  check.Expect(check.in(0).num_elements() == check.out(0).num_elements(),
               "as many elements in y as in x");
  if (!check.ok()) return check.status();
  return std::make_unique<ReshapeKernel>(check.in(0));
}

// slice, pad and concat.
class RowPartsKernel final : public CudaKernel {
 public:
  explicit RowPartsKernel(RowParts rows) : rows_(std::move(rows)) {
    // The parts of the output's row, with those that are zeros.
    std::vector<Segment> segments;
    int64_t to = 0;
    for (const RowPart& part : rows_.parts) {
      if (part.bytes == 0) continue;
      if (part.to > to) segments.push_back({to, part.to, nullptr});
      segments.push_back({part.to, part.to + part.bytes, &part});
      to = part.to + part.bytes;
    }
    if (to < rows_.out_row_bytes) segments.push_back({to, rows_.out_row_bytes, nullptr});
    for (size_t first = 0; first < segments.size(); first += RowsWork::kPartsMax)
      AddWork(segments, first);
  }

 private:
  struct Segment {
    int64_t begin, end;
    const RowPart* part;
  };

  // A launch, and for each of its parts the input and the offset in the input's row.
  struct Batch {
    RowsWork work;
    std::vector<const RowPart*> parts;
  };

  void AddWork(const std::vector<Segment>& segments, size_t first) {
    Batch batch;
    RowsWork& work = batch.work;
    work.num_rows = rows_.num_rows;
    work.row_bytes = rows_.out_row_bytes;
    work.begin = segments[first].begin;
    for (size_t i = first; i < segments.size() && work.num_parts < RowsWork::kPartsMax; ++i) {
      const Segment& segment = segments[i];
      RowsWork::Part& part = work.parts[work.num_parts++];
      part.to = segment.begin;
      int64_t from = 0;
      if (segment.part != nullptr) {
        part.row_bytes = rows_.in_row_bytes[segment.part->input];
        from = segment.part->from;
      }
      const int64_t strides = work.num_rows > 1 ? part.row_bytes | work.row_bytes : 0;
      work.unit = MoveUnit(i == first ? 16 : work.unit, segment.begin, segment.end, from, strides);
      batch.parts.push_back(segment.part);
      work.end = segment.end;
    }
    batches_.push_back(std::move(batch));
  }

  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    for (const Batch& batch : batches_) {
      RowsWork work = batch.work;
      for (int i = 0; i < work.num_parts; ++i) {
        const RowPart* part = batch.parts[i];
        if (part == nullptr) continue;
        work.parts[i].from = static_cast<const char*>(args.inputs[part->input]) + part->from;
      }
      work.y = args.outputs[0];
      LaunchRows(work, stream);
    }
    return absl::OkStatus();
  }

  const RowParts rows_;
  std::vector<Batch> batches_;
};

KernelFactory MakeRows(absl::StatusOr<RowParts> (*parts)(const KernelSpec& spec)) {
  return [parts](const KernelSpec& spec) -> KernelOr {
    WEIR_ASSIGN_OR_RETURN(RowParts rows, parts(spec));
    return std::make_unique<RowPartsKernel>(std::move(rows));
  };
}

class TransposeKernel final : public CudaKernel {
 public:
  TransposeKernel(const TensorSlice& x, const std::vector<OrderedAxis>& axes) {
    const int64_t size = SizeOf(x.dtype);
    const int last = static_cast<int>(axes.size()) - 1;
    const bool runs = axes[last].stride == 1;
    int64_t bytes = runs ? axes[last].size * size : size;
    for (int i = 0; runs && i < last; ++i) bytes |= axes[i].stride * size;
    work_.unit = runs ? MoveUnit(bytes) : static_cast<int>(size);
    work_.num_axes = last + 1;
    int64_t stride = 1;
    for (int i = last; i >= 0; --i) {
      const bool is_run = runs && i == last;
      work_.sizes[i] = is_run ? axes[i].size * size / work_.unit : axes[i].size;
      work_.strides[i] = is_run ? 1 : axes[i].stride * size / work_.unit;
      work_.out_strides[i] = stride;
      stride *= work_.sizes[i];
      if (axes[i].stride == 1) work_.fast = i;
    }
  }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    TransposeWork work = work_;
    work.x = args.inputs[0];
    work.y = args.outputs[0];
    LaunchTranspose(work, stream);
    return absl::OkStatus();
  }

  TransposeWork work_;
};

KernelOr MakeTranspose(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(std::vector<OrderedAxis> axes, TransposedAxes(spec));
  return std::make_unique<TransposeKernel>(*spec.inputs[0], axes);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reshape", MakeReshape);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "slice", MakeRows(SliceParts));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "pad", MakeRows(PadParts));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "concat", MakeRows(ConcatParts));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "transpose", MakeTranspose);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
