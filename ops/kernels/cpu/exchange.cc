// exchange_pack and exchange_fill: boxing's kernels before and after the messages. All work that
// depends on what is moved is done when the kernel is made; an act on chunk c walks the tasks of
// that chunk.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/exchange_plan.h"
#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer.h"

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
constexpr int64_t kSourcesMax = 1 << kTreeBlocks;

// Several sources are combined in pairs, as the leaves of a tree: the left half of `count` leaves
// is the largest power of two below `count`. So aligned runs of 2^k sources are combined among
// themselves first, and it does not matter to the bits whether that happens here or elsewhere.
int64_t LeftLeaves(int64_t count) {
  int64_t left = 1;
  while (left * 2 < count) left *= 2;
  return left;
}

absl::StatusOr<DenseRect> Dense(const Rect& rect, const Shape& shape) {
  return DenseRect::Of(shape, rect.begin, rect.end);
}

int64_t NumChunks(int64_t total, int64_t chunk_elements) {
  return (total + chunk_elements - 1) / chunk_elements;
}

// Returns the half of an exchange that the plan gives the kernel. Expects that the half is there
// and has no flaw.
template <typename Half>
const Half* HalfOf(const KernelSpec& spec, SpecCheck* check) {
  const Half* half = std::get_if<Half>(&spec.transfer);
  check->Expect(half != nullptr, "its half of an exchange");
  if (const auto flaw = FindFlaw(spec.transfer)) check->Expect(false, flaw->expected);
  return check->ok() ? half : nullptr;
}

void ExpectChunks(int64_t total, int64_t chunk_elements, SpecCheck* check) {
  check->Expect(total / chunk_elements < plan_limits::kActsPerStepMax,
                absl::StrCat("at most ", plan_limits::kActsPerStepMax, " chunks"));
}

// Cuts elements [first, last) of an item (piece or region), and the chunk to which they belong,
// further into tasks. `emit` is called with (first, last) of each task.
template <typename Emit>
void ForEachTask(int64_t first, int64_t last, Emit emit) {
  for (int64_t at = first; at < last; at += kTaskElements)
    emit(at, std::min(last, at + kTaskElements));
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
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const KernelSpec& spec);

  int64_t output_bytes(int64_t chunk) const override {
    bool known = 0 <= chunk && chunk < static_cast<int64_t>(chunks_.size());
    return known ? chunks_[chunk].elements * size_ : 0;
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (args.chunk < 0 || args.chunk >= static_cast<int64_t>(chunks_.size()))
      return absl::OkStatus();
    const Chunk& chunk = chunks_[args.chunk];
    char* message = static_cast<char*>(args.outputs[0]);
    launch.team->For(chunk.num_tasks, [&](int64_t i) {
      const Task& task = tasks_[chunk.first_task + i];
      const Piece& piece = pieces_[task.piece];
      DenseRect target = DenseRect::Flat(task.message_offset, task.last - task.first);
      CopyRuns(RectCursor(piece.rect, task.first),
               static_cast<const char*>(args.inputs[piece.tensor]), RectCursor(target, 0), message,
               task.last - task.first, size_);
    });
    return absl::OkStatus();
  }

 private:
  struct Piece {
    int64_t tensor;
    int64_t position;
    DenseRect rect;
  };
  struct Task {
    int64_t piece, first, last, message_offset;
  };
  struct Chunk {
    int64_t first_task = 0, num_tasks = 0, elements = 0;
  };

  void Cut(int64_t total, int64_t chunk_elements);

  int64_t size_ = 4;
  std::vector<Piece> pieces_;
  std::vector<Task> tasks_;
  std::vector<Chunk> chunks_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PackKernel::Create(const KernelSpec& spec) {
  SpecCheck check(spec);
  const int num_tensors = static_cast<int>(spec.inputs.size());
  check.Inputs(num_tensors, num_tensors).Outputs(1, 1);
  for (int i = 0; i < num_tensors; ++i)
    check.SameType(check.in(i), check.out(0), "tensors and message");
  if (!check.ok()) return check.status();
  auto kernel = std::make_unique<PackKernel>();
  kernel->size_ = SizeOf(check.out(0).dtype);
  const ExchangePack* pack = HalfOf<ExchangePack>(spec, &check);
  if (!check.ok()) return check.status();
  int64_t total = 0;
  for (const ExchangePiece& piece : pack->pieces) {
    check.Expect(check.HasIn(piece.tensor), "pieces of its inputs");
    if (!check.ok()) return check.status();
    WEIR_ASSIGN_OR_RETURN(DenseRect rect, Dense(piece.rect, check.in(piece.tensor).shape));
    kernel->pieces_.push_back(Piece{piece.tensor, piece.position, rect});
    total = std::max(total, piece.position + rect.volume());
  }
  ExpectChunks(total, pack->chunk_elements, &check);
  if (!check.ok()) return check.status();
  kernel->Cut(total, pack->chunk_elements);
  for (const Chunk& chunk : kernel->chunks_) {
    check.Expect(chunk.elements <= check.out(0).num_elements(),
                 "a message as long as its longest chunk");
  }
  if (!check.ok()) return check.status();
  return kernel;
}

void PackKernel::Cut(int64_t total, int64_t chunk_elements) {
  // Pieces may lie anywhere, so their parts are sorted by chunk; the order of pieces is kept.
  std::vector<std::vector<Task>> by_chunk(NumChunks(total, chunk_elements));
  chunks_.resize(by_chunk.size());
  for (int64_t i = 0; i < static_cast<int64_t>(pieces_.size()); ++i) {
    const int64_t begin = pieces_[i].position, end = begin + pieces_[i].rect.volume();
    for (int64_t at = begin; at < end;) {
      int64_t c = at / chunk_elements;
      int64_t part_end = std::min(end, (c + 1) * chunk_elements);
      ForEachTask(at - begin, part_end - begin, [&](int64_t first, int64_t last) {
        by_chunk[c].push_back(Task{i, first, last, chunks_[c].elements});
        chunks_[c].elements += last - first;
      });
      at = part_end;
    }
  }
  for (size_t c = 0; c < by_chunk.size(); ++c) {
    chunks_[c].first_task = static_cast<int64_t>(tasks_.size());
    chunks_[c].num_tasks = static_cast<int64_t>(by_chunk[c].size());
    tasks_.insert(tasks_.end(), by_chunk[c].begin(), by_chunk[c].end());
  }
}

// --- fill -----------------------------------------------------------------------------

class FillKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const KernelSpec& spec);

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (args.chunk < 0 || args.chunk + 1 >= static_cast<int64_t>(first_task_.size()))
      return absl::OkStatus();
    if (!args.input_bytes.empty()) WEIR_RETURN_IF_ERROR(CheckMessages(args));
    const int64_t first = first_task_[args.chunk];
    launch.team->For(first_task_[args.chunk + 1] - first,
                     [&](int64_t i) { RunTask(args, tasks_[first + i]); });
    return absl::OkStatus();
  }

 private:
  struct Source {
    int64_t input;  // index among the kernel's inputs
    bool is_message;
    DenseRect rect;  // of an own tensor
  };
  struct Region {
    int64_t tensor;
    Combiner combiner;
    DenseRect target;
    int64_t first_source, num_sources;
  };
  struct alignas(64) SumBlock {
    char bytes[kSumBlock * 4];
  };
  struct Task {
    int64_t region, first, last;
    // An index into offsets_, for the offsets at which each source's message holds element `first`.
    int64_t first_offset;
  };

  absl::Status AddRegion(const ExchangeRegion& from, SpecCheck* check);
  absl::Status AddSource(const ExchangeSource& from, const Region& region, SpecCheck* check);
  void Cut(int64_t chunk_elements, int64_t num_inputs);
  // Checks that each message has as many bytes as the regions of this chunk read.
  absl::Status CheckMessages(const KernelArgs& args) const;
  void RunTask(const KernelArgs& args, const Task& task) const;
  void Combine(const KernelArgs& args, const Task& task, const Region& region, char* target) const;
  bool CombineInPlace(const KernelArgs& args, const Task& task, const Region& region,
                      char* target) const;
  void Fill(const Task& task, const Region& region, char* target) const;
  // Returns source s of the task, as a rectangle of its tensor, from the task's first element.
  DenseRect SourceRect(const Task& task, const Region& region, int64_t s) const;
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

  DType dtype_ = DType::kF32;
  int64_t size_ = 4;
  int64_t num_own_ = 0;
  std::vector<Region> regions_;
  std::vector<Source> sources_;
  std::vector<int64_t> offsets_;
  std::vector<Task> tasks_;
  std::vector<int64_t> first_task_;     // per chunk, and one past the last
  std::vector<int64_t> message_bytes_;  // per chunk and message
  int64_t num_messages_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> FillKernel::Create(const KernelSpec& spec) {
  SpecCheck check(spec);
  const int num_inputs = static_cast<int>(spec.inputs.size());
  const int num_outputs = static_cast<int>(spec.outputs.size());
  check.Outputs(num_outputs, num_outputs).Expect(num_outputs > 0, "an output");
  for (int i = 0; i < num_inputs; ++i) {
    check.Expect(!check.HasIn(i) || check.in(i).dtype == check.out(0).dtype, "one element type");
  }
  for (int i = 0; i < num_outputs; ++i) check.SameType(check.out(i), check.out(0), "all outputs");
  auto kernel = std::make_unique<FillKernel>();
  kernel->dtype_ = check.out(0).dtype;
  kernel->size_ = SizeOf(kernel->dtype_);
  const ExchangeFill* fill = HalfOf<ExchangeFill>(spec, &check);
  if (!check.ok()) return check.status();
  if (const auto flaw = FindFlawWith(*fill, num_inputs)) check.Expect(false, flaw->expected);
  if (!check.ok()) return check.status();
  kernel->num_own_ = fill->num_own;
  int64_t total = 0;
  for (const ExchangeRegion& region : fill->regions) {
    WEIR_RETURN_IF_ERROR(kernel->AddRegion(region, &check));
    total += kernel->regions_.back().target.volume();
  }
  ExpectChunks(total, fill->chunk_elements, &check);
  if (!check.ok()) return check.status();
  kernel->Cut(fill->chunk_elements, num_inputs);
  return kernel;
}

absl::Status FillKernel::AddRegion(const ExchangeRegion& from, SpecCheck* check) {
  Region region;
  region.tensor = from.tensor;
  check->Expect(check->HasOut(from.tensor), "regions of its outputs");
  if (!check->ok()) return check->status();
  check->Expect(static_cast<int64_t>(from.sources.size()) <= kSourcesMax,
                absl::StrCat("at most ", kSourcesMax, " sources of a region"));
  if (!check->ok()) return check->status();
  region.combiner = from.combiner;
  WEIR_ASSIGN_OR_RETURN(region.target, Dense(from.target, check->out(from.tensor).shape));
  region.first_source = static_cast<int64_t>(sources_.size());
  region.num_sources = static_cast<int64_t>(from.sources.size());
  for (const ExchangeSource& source : from.sources)
    WEIR_RETURN_IF_ERROR(AddSource(source, region, check));
  regions_.push_back(region);
  return absl::OkStatus();
}

absl::Status FillKernel::AddSource(const ExchangeSource& from, const Region& region,
                                   SpecCheck* check) {
  const bool is_message = from.message != ExchangeSource::kOwn;
  const int64_t input = is_message ? num_own_ + from.message : region.tensor;
  check->Expect(check->HasIn(static_cast<int>(input)) && (is_message || input < num_own_),
                "sources among its own tensors and messages");
  if (!check->ok()) return check->status();
  Source source{input, is_message, DenseRect()};
  if (!is_message) {
    WEIR_ASSIGN_OR_RETURN(source.rect, Dense(from.own, check->in(input).shape));
  }
  sources_.push_back(source);
  return check->status();
}

void FillKernel::Cut(int64_t chunk_elements, int64_t num_inputs) {
  std::vector<int64_t> read(num_inputs, 0);  // elements of each message used in this chunk
  int64_t position = 0;                      // of the region's first element
  int64_t chunk = 0;
  num_messages_ = num_inputs - num_own_;
  const auto end_chunk = [&] {
    first_task_.push_back(static_cast<int64_t>(tasks_.size()));
    for (int64_t i = num_own_; i < num_inputs; ++i) message_bytes_.push_back(read[i] * size_);
    std::fill(read.begin(), read.end(), 0);
  };
  first_task_.push_back(0);
  for (int64_t r = 0; r < static_cast<int64_t>(regions_.size()); ++r) {
    const Region& region = regions_[r];
    const int64_t end = position + region.target.volume();
    for (int64_t at = position; at < end;) {
      for (; chunk < at / chunk_elements; ++chunk) end_chunk();
      int64_t part_end = std::min(end, (chunk + 1) * chunk_elements);
      ForEachTask(at - position, part_end - position, [&](int64_t first, int64_t last) {
        tasks_.push_back(Task{r, first, last, static_cast<int64_t>(offsets_.size())});
        for (int64_t s = 0; s < region.num_sources; ++s) {
          const Source& source = sources_[region.first_source + s];
          offsets_.push_back(source.is_message ? read[source.input] : 0);
          if (source.is_message) read[source.input] += last - first;
        }
      });
      at = part_end;
    }
    position = end;
  }
  end_chunk();
}

absl::Status FillKernel::CheckMessages(const KernelArgs& args) const {
  const int64_t* expected = message_bytes_.data() + args.chunk * num_messages_;
  for (int64_t m = 0; m < num_messages_; ++m) {
    if (args.input_bytes[num_own_ + m] != expected[m]) {
      return absl::DataLossError(absl::StrCat("message ", m, " of chunk ", args.chunk, " has ",
                                              args.input_bytes[num_own_ + m], " bytes, not ",
                                              expected[m]));
    }
  }
  return absl::OkStatus();
}

DenseRect FillKernel::SourceRect(const Task& task, const Region& region, int64_t s) const {
  const Source& source = sources_[region.first_source + s];
  return source.is_message
             ? DenseRect::Flat(offsets_[task.first_offset + s], task.last - task.first)
             : source.rect;
}

void FillKernel::RunTask(const KernelArgs& args, const Task& task) const {
  const Region& region = regions_[task.region];
  char* target = static_cast<char*>(args.outputs[region.tensor]);
  if (region.num_sources == 0) return Fill(task, region, target);
  if (region.num_sources > 1) return Combine(args, task, region, target);
  const Source& source = sources_[region.first_source];
  const DenseRect from = SourceRect(task, region, 0);
  CopyRuns(RectCursor(from, source.is_message ? 0 : task.first),
           static_cast<const char*>(args.inputs[source.input]),
           RectCursor(region.target, task.first), target, task.last - task.first, size_);
}

void FillKernel::Fill(const Task& task, const Region& region, char* target) const {
  float lowest = -std::numeric_limits<float>::infinity();
  BFloat16 lowest_bf16 = ToBFloat16(lowest);
  int32_t lowest_i32 = std::numeric_limits<int32_t>::min();
  const void* element = dtype_ == DType::kF32    ? static_cast<const void*>(&lowest)
                        : dtype_ == DType::kBF16 ? static_cast<const void*>(&lowest_bf16)
                                                 : static_cast<const void*>(&lowest_i32);
  RectCursor to(region.target, task.first);
  for (int64_t n = task.last - task.first; n > 0;) {
    int64_t run = std::min(n, to.contiguous());
    char* at = target + to.offset() * size_;
    if (region.combiner == Combiner::kSum) {
      std::memset(at, 0, run * size_);
    } else {
      for (int64_t i = 0; i < run; ++i) std::memcpy(at + i * size_, element, size_);
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
  const Source& source = sources_[region.first_source + s];
  const DenseRect rect = SourceRect(task, region, s);
  RectCursor from(rect, source.is_message ? at - task.first : at);
  for (int64_t done = 0; done < n;) {
    const int64_t run = std::min(n - done, from.contiguous());
    const char* x = static_cast<const char*>(args.inputs[source.input]) + from.offset() * size_;
    char* sum = total + done * 4;
    if (gathering == Gathering::kBegins && dtype_ != DType::kBF16) {
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
  const Source& source = sources_[region.first_source + s];
  const DenseRect rect = SourceRect(task, region, s);
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
      if (dtype_ == DType::kBF16) {
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
