#include "ops/kernels/cuda/exchange.h"

#include <algorithm>
#include <limits>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/exchange_tasks.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

static_assert(ExchangeWalk::kAxesMax == kRectAxesMax);

// A task is what one chunk has of one piece or region.
constexpr int64_t kTaskElements = std::numeric_limits<int64_t>::max();

// Returns a walk over the elements of a rectangle. The tensor is not written if the walk is that of
// a source.
ExchangeWalk WalkOf(const DenseRect& rect, const void* base) {
  ExchangeWalk walk;
  walk.base = const_cast<void*>(base);
  walk.first = rect.first();
  walk.run = rect.run();
  walk.num_axes = rect.num_axes();
  walk.is_small = rect.volume() <= std::numeric_limits<uint32_t>::max() ? 1 : 0;
  for (int axis = 0; axis < rect.num_axes(); ++axis) {
    walk.sizes[axis] = rect.size(axis);
    walk.strides[axis] = rect.stride(axis);
  }
  return walk;
}

// Returns a walk for which element `element` is at `offset`, and the next ones follow.
ExchangeWalk FlatWalk(int64_t element, int64_t offset, const void* base) {
  ExchangeWalk walk;
  walk.base = const_cast<void*>(base);
  walk.first = offset - element;
  return walk;
}

// Returns whether packs of n elements from element `first` on are contiguous and aligned.
bool Packs(const ExchangeWalk& walk, int64_t first, int64_t n) {
  if (walk.num_axes == 0) return (walk.first + first) % n == 0;
  bool packs = first % n == 0 && walk.first % n == 0 && walk.run % n == 0;
  for (int axis = 0; axis < walk.num_axes; ++axis) packs = packs && walk.strides[axis] % n == 0;
  return packs;
}

// Collects segments, and launches as many at once as a kernel's parameter holds. Allocates nothing.
class SegmentLauncher {
 public:
  // `memory` has room for the sources of any one segment that has more than kSourcesMax.
  SegmentLauncher(DType dtype, ExchangeWalk* memory, device::CudaStream stream)
      : stream_(stream), memory_(memory) {
    work_.dtype = dtype;
  }

  // The call is followed by as many calls of AddSource as the segment has sources, and by End.
  void Begin(const ExchangeWalk& target, int64_t first, int64_t last, Combiner combiner,
             int64_t num_sources) {
    in_memory_ = num_sources > ExchangeWork::kSourcesMax;
    // End may cut a segment in two.
    if (in_memory_ || work_.num_segments + 2 > ExchangeWork::kSegmentsMax ||
        work_.num_sources + num_sources > ExchangeWork::kSourcesMax) {
      Flush();
    }
    next_ = ExchangeSegment();
    next_.target = target;
    next_.first = first;
    next_.last = last;
    next_.combiner = combiner;
    next_.first_source = work_.num_sources;
    next_.num_sources = num_sources;
    at_once_ = ExchangePack(SizeOf(work_.dtype), in_memory_ ? ExchangeSourcesIn::kMemory
                                                            : ExchangeSourcesIn::kParameter);
    next_.packs = Packs(target, first, at_once_);
    written_ = 0;
  }

  void AddSource(const ExchangeWalk& source) {
    next_.packs = next_.packs && Packs(source, next_.first, at_once_);
    if (!in_memory_) {
      work_.sources[work_.num_sources++] = source;
      return;
    }
    sources_.sources[sources_.count++] = source;
    if (sources_.count == ExchangeSources::kSourcesMax) WriteSources();
  }

  void End() {
    const int64_t last = next_.last;
    if (next_.packs) {
      next_.last -= (next_.last - next_.first) % at_once_;
      AddSegment(at_once_);
      next_.first = next_.last;
      next_.last = last;
      next_.packs = false;
    }
    AddSegment(1);
    if (!in_memory_) return;
    WriteSources();
    work_.memory = memory_;
    Flush();
  }

  void Flush() {
    LaunchExchange(work_, stream_);
    work_.num_segments = work_.num_sources = 0;
    work_.num_blocks = 0;
    work_.memory = nullptr;
  }

 private:
  void AddSegment(int64_t at_once) {
    if (next_.first == next_.last) return;
    next_.first_block = work_.num_blocks;
    work_.num_blocks += ExchangeBlocks(next_.last - next_.first, at_once);
    work_.segments[work_.num_segments++] = next_;
  }

  void WriteSources() {
    if (sources_.count == 0) return;
    sources_.to = memory_ + written_;
    LaunchExchangeSources(sources_, stream_);
    written_ += sources_.count;
    sources_.count = 0;
  }

  const device::CudaStream stream_;
  ExchangeWalk* const memory_;
  ExchangeWork work_;
  ExchangeSources sources_;
  ExchangeSegment next_;
  bool in_memory_ = false;  // the sources of the next segment are
  int64_t at_once_ = 1;     // elements of a pack of the next segment
  int64_t written_ = 0;     // sources of the next segment that are on their way to `memory`
};

class PackKernel final : public CudaKernel {
 public:
  PackKernel(PackPlan plan, DType dtype) : plan_(std::move(plan)), dtype_(dtype) {}

  int64_t output_bytes(int64_t chunk) const override { return plan_.MessageBytes(chunk); }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    if (!plan_.HasChunk(args.chunk)) return absl::OkStatus();
    SegmentLauncher launcher(dtype_, nullptr, stream);
    const PackPlan::Chunk& chunk = plan_.chunks[args.chunk];
    for (int64_t i = 0; i < chunk.num_tasks; ++i) {
      const PackPlan::Task& task = plan_.tasks[chunk.first_task + i];
      const PackPlan::Piece& piece = plan_.pieces[task.piece];
      launcher.Begin(FlatWalk(task.first, task.message_offset, args.outputs[0]), task.first,
                     task.last, Combiner::kSum, 1);
      launcher.AddSource(WalkOf(piece.rect, args.inputs[piece.tensor]));
      launcher.End();
    }
    launcher.Flush();
    return absl::OkStatus();
  }

  const PackPlan plan_;
  const DType dtype_;
};

KernelOr MakePack(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(PackPlan plan, PlanPack(spec, kTaskElements));
  return std::make_unique<PackKernel>(std::move(plan), spec.outputs[0]->dtype);
}

class FillKernel final : public CudaKernel {
 public:
  explicit FillKernel(FillPlan plan) : plan_(std::move(plan)) {
    for (const FillPlan::Region& region : plan_.regions) {
      if (region.num_sources > ExchangeWork::kSourcesMax)
        sources_in_memory_ = std::max(sources_in_memory_, region.num_sources);
    }
  }

  int64_t workspace_bytes() const override {
    return sources_in_memory_ * static_cast<int64_t>(sizeof(ExchangeWalk));
  }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    if (!plan_.HasChunk(args.chunk)) return absl::OkStatus();
    WEIR_RETURN_IF_ERROR(plan_.CheckMessages(args));
    SegmentLauncher launcher(plan_.dtype, static_cast<ExchangeWalk*>(workspace), stream);
    for (int64_t i = plan_.first_task[args.chunk]; i < plan_.first_task[args.chunk + 1]; ++i) {
      const FillPlan::Task& task = plan_.tasks[i];
      const FillPlan::Region& region = plan_.regions[task.region];
      launcher.Begin(WalkOf(region.target, args.outputs[region.tensor]), task.first, task.last,
                     region.combiner, region.num_sources);
      for (int64_t s = 0; s < region.num_sources; ++s) {
        const FillPlan::Source& source = plan_.sources[region.first_source + s];
        const void* const base = args.inputs[source.input];
        launcher.AddSource(source.is_message
                               ? FlatWalk(task.first, plan_.offsets[task.first_offset + s], base)
                               : WalkOf(source.rect, base));
      }
      launcher.End();
    }
    launcher.Flush();
    return absl::OkStatus();
  }

  const FillPlan plan_;
  int64_t sources_in_memory_ = 0;  // of one region
};

KernelOr MakeFill(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(FillPlan plan, PlanFill(spec, kTaskElements));
  for (const FillPlan::Region& region : plan.regions) {
    if (plan.dtype == DType::kBool && region.num_sources > 1)
      return absl::InvalidArgumentError("exchange_fill: expects numbers to combine, not bools");
  }
  return std::make_unique<FillKernel>(std::move(plan));
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "exchange_pack", MakePack);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "exchange_fill", MakeFill);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
