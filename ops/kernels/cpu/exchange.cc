// exchange_pack and exchange_fill: boxing's kernels before and after the messages. All work that
// depends on what is moved is done when the kernel is made; an act on chunk c walks the tasks of
// that chunk.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/exchange_plan.h"
#include "ops/kernels/shape/exchange_tasks.h"
#include "runtime/base/real.h"
#include "runtime/base/status.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/exchange.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

// total[i] = combiner(total[i], x[i]).
void CombineFloats(Combiner combiner, DType dtype, const void* x_any, float* total, int64_t n) {
  const float* before = total;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    if (combiner == Combiner::kSum) {
      MapInto(
          total, n, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); }, before, x);
    } else {
      MapInto(
          total, n, [](VF a, VF b) HWY_ATTR { return MaxOrNaN(a, b); }, before, x);
    }
  });
}

// out[i] = combiner(a[i], b[i]); out may be a.
void CombineInto(Combiner combiner, const float* a, const float* b, float* out, int64_t n) {
  if (combiner == Combiner::kSum) {
    MapInto(
        out, n, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); }, a, b);
  } else {
    MapInto(
        out, n, [](VF x, VF y) HWY_ATTR { return MaxOrNaN(x, y); }, a, b);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(CombineFloats);
HWY_EXPORT(CombineInto);

namespace {

// One act on a big chunk is cut into tasks of this many elements.
constexpr int64_t kTaskElements = 65536;
// Sums are made in blocks that stay in the first-level cache.
constexpr int64_t kSumBlock = 2048;
// A tree of pairs over 2^k sources needs at most k blocks besides its result.
constexpr int kTreeBlocks = 14;
static_assert(FillPlan::kSourcesMax <= 1 << kTreeBlocks);

// Several sources are combined in pairs, as the leaves of a tree: the left half of `count` leaves
// is the largest power of two below `count`. So aligned runs of 2^k sources are combined among
// themselves first, and it does not matter to the bits whether that happens here or elsewhere.
int64_t LeftLeaves(int64_t count) {
  int64_t left = 1;
  while (left * 2 < count) left *= 2;
  return left;
}

// Copies n elements between two walks of equal volume.
void CopyRuns(RectCursor from, const char* src, RectCursor to, char* dst, int64_t n, int64_t size) {
  while (n > 0) {
    int64_t run = std::min({n, from.contiguous(), to.contiguous()});
    std::memcpy(dst + to.offset() * size, src + from.offset() * size, run * size);
    from.Advance(run);
    to.Advance(run);
    n -= run;
  }
}

// --- pack -----------------------------------------------------------------------------

class PackKernel final : public Kernel {
 public:
  explicit PackKernel(PackPlan plan) : plan_(std::move(plan)) {}

  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const KernelSpec& spec) {
    WEIR_ASSIGN_OR_RETURN(PackPlan plan, PlanPack(spec, kTaskElements));
    return std::make_unique<PackKernel>(std::move(plan));
  }

  int64_t output_bytes(int64_t chunk) const override { return plan_.MessageBytes(chunk); }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (!plan_.HasChunk(args.chunk)) return absl::OkStatus();
    const PackPlan::Chunk& chunk = plan_.chunks[args.chunk];
    char* message = static_cast<char*>(args.outputs[0]);
    launch.team->For(chunk.num_tasks, [&](int64_t i) {
      const PackPlan::Task& task = plan_.tasks[chunk.first_task + i];
      const PackPlan::Piece& piece = plan_.pieces[task.piece];
      DenseRect target = DenseRect::Flat(task.message_offset, task.last - task.first);
      CopyRuns(RectCursor(piece.rect, task.first),
               static_cast<const char*>(args.inputs[piece.tensor]), RectCursor(target, 0), message,
               task.last - task.first, plan_.element_bytes);
    });
    return absl::OkStatus();
  }

 private:
  const PackPlan plan_;
};

// --- fill -----------------------------------------------------------------------------

class FillKernel final : public Kernel {
 public:
  explicit FillKernel(FillPlan plan)
      : plan_(std::move(plan)), dtype_(plan_.dtype), size_(SizeOf(dtype_)) {}

  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const KernelSpec& spec) {
    WEIR_ASSIGN_OR_RETURN(FillPlan plan, PlanFill(spec, kTaskElements));
    return std::make_unique<FillKernel>(std::move(plan));
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (!plan_.HasChunk(args.chunk)) return absl::OkStatus();
    WEIR_RETURN_IF_ERROR(plan_.CheckMessages(args));
    const int64_t first = plan_.first_task[args.chunk];
    launch.team->For(plan_.first_task[args.chunk + 1] - first,
                     [&](int64_t i) { RunTask(args, plan_.tasks[first + i]); });
    return absl::OkStatus();
  }

 private:
  using Source = FillPlan::Source;
  using Region = FillPlan::Region;
  using Task = FillPlan::Task;

  struct alignas(64) SumBlock {
    char bytes[kSumBlock * 4];
  };
  void RunTask(const KernelArgs& args, const Task& task) const;
  void Combine(const KernelArgs& args, const Task& task, const Region& region, char* target) const;
  bool CombineInPlace(const KernelArgs& args, const Task& task, const Region& region,
                      char* target) const;
  void Fill(const Task& task, const Region& region, char* target) const;
  // Combines sources [first, first + count) of elements [at, at + n) of the task into `total` (f32
  // or i32). n is at most kSumBlock; `blocks` are kTreeBlocks minus the depth of the call.
  void GatherTree(const KernelArgs& args, const Task& task, const Region& region, int64_t first,
                  int64_t count, int64_t at, int64_t n, char* total, SumBlock* blocks) const;
  // Combines source s into `total`, or begins `total` with source s.
  enum class Gathering : uint8_t { kBegins, kAdds };
  void Gather(const KernelArgs& args, const Task& task, const Region& region, int64_t s, int64_t at,
              int64_t n, Gathering gathering, char* total) const;
  // Returns where elements [at, at + n) of source s lie, all of them one after another; nullptr if
  // they do not.
  const float* InOnePiece(const KernelArgs& args, const Task& task, const Region& region, int64_t s,
                          int64_t at, int64_t n) const;
  // As GatherTree, for f32 sources that lie in one piece. Returns the result: `out`, or the only
  // source.
  const float* SumTree(const KernelArgs& args, const Task& task, const Region& region,
                       int64_t first, int64_t count, int64_t at, int64_t n, float* out,
                       SumBlock* blocks) const;

  const FillPlan plan_;
  const DType dtype_;
  const int64_t size_;
};

void FillKernel::RunTask(const KernelArgs& args, const Task& task) const {
  const Region& region = plan_.regions[task.region];
  char* target = static_cast<char*>(args.outputs[region.tensor]);
  if (region.num_sources == 0) return Fill(task, region, target);
  if (region.num_sources > 1) return Combine(args, task, region, target);
  const Source& source = plan_.sources[region.first_source];
  const DenseRect from = plan_.SourceRect(task, region, 0);
  CopyRuns(RectCursor(from, source.is_message ? 0 : task.first),
           static_cast<const char*>(args.inputs[source.input]),
           RectCursor(region.target, task.first), target, task.last - task.first, size_);
}

void FillKernel::Fill(const Task& task, const Region& region, char* target) const {
  int32_t element = std::numeric_limits<int32_t>::min();
  if (IsReal(dtype_)) SetRealAt(dtype_, &element, 0, -std::numeric_limits<float>::infinity());
  RectCursor to(region.target, task.first);
  for (int64_t n = task.last - task.first; n > 0;) {
    int64_t run = std::min(n, to.contiguous());
    char* at = target + to.offset() * size_;
    if (region.combiner == Combiner::kSum) {
      std::memset(at, 0, run * size_);
    } else {
      for (int64_t i = 0; i < run; ++i) std::memcpy(at + i * size_, &element, size_);
    }
    to.Advance(run);
    n -= run;
  }
}

void CombineInts(Combiner combiner, const int32_t* x, int32_t* total, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    // Sums wrap, as unsigned arithmetic does.
    total[i] =
        combiner == Combiner::kSum
            ? static_cast<int32_t>(static_cast<uint32_t>(total[i]) + static_cast<uint32_t>(x[i]))
            : std::max(total[i], x[i]);
  }
}

void FillKernel::Gather(const KernelArgs& args, const Task& task, const Region& region, int64_t s,
                        int64_t at, int64_t n, Gathering gathering, char* total) const {
  const Source& source = plan_.sources[region.first_source + s];
  const DenseRect rect = plan_.SourceRect(task, region, s);
  RectCursor from(rect, source.is_message ? at - task.first : at);
  for (int64_t done = 0; done < n;) {
    const int64_t run = std::min(n - done, from.contiguous());
    const char* x = static_cast<const char*>(args.inputs[source.input]) + from.offset() * size_;
    char* sum = total + done * 4;
    if (gathering == Gathering::kBegins && !IsHalf(dtype_)) {
      std::memcpy(sum, x, run * size_);
    } else if (gathering == Gathering::kBegins) {
      ConvertReal(dtype_, DType::kF32, x, sum, run);
    } else if (dtype_ == DType::kI32) {
      CombineInts(region.combiner, reinterpret_cast<const int32_t*>(x),
                  reinterpret_cast<int32_t*>(sum), run);
    } else {
      HWY_DYNAMIC_DISPATCH(CombineFloats)
      (region.combiner, dtype_, x, reinterpret_cast<float*>(sum), run);
    }
    from.Advance(run);
    done += run;
  }
}

void FillKernel::GatherTree(const KernelArgs& args, const Task& task, const Region& region,
                            int64_t first, int64_t count, int64_t at, int64_t n, char* total,
                            SumBlock* blocks) const {
  if (count == 1) return Gather(args, task, region, first, at, n, Gathering::kBegins, total);
  const int64_t left = LeftLeaves(count);
  GatherTree(args, task, region, first, left, at, n, total, blocks);
  if (count - left == 1)
    return Gather(args, task, region, first + left, at, n, Gathering::kAdds, total);
  char* const right = blocks->bytes;
  GatherTree(args, task, region, first + left, count - left, at, n, right, blocks + 1);
  if (dtype_ == DType::kI32) {
    CombineInts(region.combiner, reinterpret_cast<const int32_t*>(right),
                reinterpret_cast<int32_t*>(total), n);
  } else {
    HWY_DYNAMIC_DISPATCH(CombineFloats)
    (region.combiner, DType::kF32, right, reinterpret_cast<float*>(total), n);
  }
}

const float* FillKernel::InOnePiece(const KernelArgs& args, const Task& task, const Region& region,
                                    int64_t s, int64_t at, int64_t n) const {
  const Source& source = plan_.sources[region.first_source + s];
  const DenseRect rect = plan_.SourceRect(task, region, s);
  const RectCursor from(rect, source.is_message ? at - task.first : at);
  if (from.contiguous() < n) return nullptr;
  return static_cast<const float*>(args.inputs[source.input]) + from.offset();
}

const float* FillKernel::SumTree(const KernelArgs& args, const Task& task, const Region& region,
                                 int64_t first, int64_t count, int64_t at, int64_t n, float* out,
                                 SumBlock* blocks) const {
  if (count == 1) return InOnePiece(args, task, region, first, at, n);
  const int64_t left = LeftLeaves(count);
  const float* const a = SumTree(args, task, region, first, left, at, n, out, blocks);
  const float* const b = SumTree(args, task, region, first + left, count - left, at, n,
                                 reinterpret_cast<float*>(blocks->bytes), blocks + 1);
  HWY_DYNAMIC_DISPATCH(CombineInto)(region.combiner, a, b, out, n);
  return out;
}

// Combines f32 in place if the target and each source lie in one piece, so that no sum is made
// elsewhere and copied. Otherwise does nothing and returns false.
bool FillKernel::CombineInPlace(const KernelArgs& args, const Task& task, const Region& region,
                                char* target) const {
  const int64_t n = task.last - task.first;
  const RectCursor to(region.target, task.first);
  if (dtype_ != DType::kF32 || to.contiguous() < n) return false;
  for (int64_t s = 0; s < region.num_sources; ++s) {
    if (InOnePiece(args, task, region, s, task.first, n) == nullptr) return false;
  }
  float* const out = reinterpret_cast<float*>(target) + to.offset();
  SumBlock blocks[kTreeBlocks];
  // Two sources are read once; of more than two, a sum is read again.
  const int64_t block = region.num_sources == 2 ? n : kSumBlock;
  for (int64_t done = 0; done < n; done += block) {
    SumTree(args, task, region, 0, region.num_sources, task.first + done, std::min(block, n - done),
            out + done, blocks);
  }
  return true;
}

void FillKernel::Combine(const KernelArgs& args, const Task& task, const Region& region,
                         char* target) const {
  if (CombineInPlace(args, task, region, target)) return;
  SumBlock total, blocks[kTreeBlocks];
  RectCursor to(region.target, task.first);
  for (int64_t at = task.first; at < task.last; at += kSumBlock) {
    const int64_t n = std::min(kSumBlock, task.last - at);
    GatherTree(args, task, region, 0, region.num_sources, at, n, total.bytes, blocks);
    for (int64_t done = 0; done < n;) {
      int64_t run = std::min(n - done, to.contiguous());
      char* out = target + to.offset() * size_;
      if (IsHalf(dtype_)) {
        ConvertReal(DType::kF32, dtype_, total.bytes + done * 4, out, run);
      } else {
        std::memcpy(out, total.bytes + done * 4, run * size_);
      }
      to.Advance(run);
      done += run;
    }
  }
}

WEIR_REGISTER_KERNEL("cpu", "exchange_pack", PackKernel::Create);
WEIR_REGISTER_KERNEL("cpu", "exchange_fill", FillKernel::Create);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
