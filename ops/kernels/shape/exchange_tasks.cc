#include "ops/kernels/shape/exchange_tasks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer.h"

namespace weir::kernels {
namespace {

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
void ForEachTask(int64_t first, int64_t last, int64_t task_elements, Emit emit) {
  for (int64_t at = first; at < last;) {
    const int64_t end = at + std::min(last - at, task_elements);
    emit(at, end);
    at = end;
  }
}

void CutPack(int64_t total, int64_t chunk_elements, int64_t task_elements, PackPlan* plan) {
  // Pieces may lie anywhere, so their parts are sorted by chunk; the order of pieces is kept.
  std::vector<std::vector<PackPlan::Task>> by_chunk(NumChunks(total, chunk_elements));
  plan->chunks.resize(by_chunk.size());
  for (int64_t i = 0; i < static_cast<int64_t>(plan->pieces.size()); ++i) {
    const int64_t begin = plan->pieces[i].position, end = begin + plan->pieces[i].rect.volume();
    for (int64_t at = begin; at < end;) {
      int64_t c = at / chunk_elements;
      int64_t part_end = std::min(end, (c + 1) * chunk_elements);
      ForEachTask(at - begin, part_end - begin, task_elements, [&](int64_t first, int64_t last) {
        by_chunk[c].push_back(PackPlan::Task{i, first, last, plan->chunks[c].elements});
        plan->chunks[c].elements += last - first;
      });
      at = part_end;
    }
  }
  for (size_t c = 0; c < by_chunk.size(); ++c) {
    plan->chunks[c].first_task = static_cast<int64_t>(plan->tasks.size());
    plan->chunks[c].num_tasks = static_cast<int64_t>(by_chunk[c].size());
    plan->tasks.insert(plan->tasks.end(), by_chunk[c].begin(), by_chunk[c].end());
  }
}

absl::Status AddSource(const ExchangeSource& from, const FillPlan::Region& region, FillPlan* plan,
                       SpecCheck* check) {
  const bool is_message = from.message != ExchangeSource::kOwn;
  const int64_t input = is_message ? plan->num_own + from.message : region.tensor;
  check->Expect(check->HasIn(static_cast<int>(input)) && (is_message || input < plan->num_own),
                "sources among its own tensors and messages");
  if (!check->ok()) return check->status();
  FillPlan::Source source{input, is_message, DenseRect()};
  if (!is_message) {
    WEIR_ASSIGN_OR_RETURN(source.rect, Dense(from.own, check->in(static_cast<int>(input)).shape));
  }
  plan->sources.push_back(source);
  return check->status();
}

absl::Status AddRegion(const ExchangeRegion& from, FillPlan* plan, SpecCheck* check) {
  FillPlan::Region region;
  region.tensor = from.tensor;
  check->Expect(check->HasOut(from.tensor), "regions of its outputs");
  if (!check->ok()) return check->status();
  check->Expect(static_cast<int64_t>(from.sources.size()) <= FillPlan::kSourcesMax,
                absl::StrCat("at most ", FillPlan::kSourcesMax, " sources of a region"));
  if (!check->ok()) return check->status();
  region.combiner = from.combiner;
  WEIR_ASSIGN_OR_RETURN(region.target, Dense(from.target, check->out(from.tensor).shape));
  region.first_source = static_cast<int64_t>(plan->sources.size());
  region.num_sources = static_cast<int64_t>(from.sources.size());
  for (const ExchangeSource& source : from.sources)
    WEIR_RETURN_IF_ERROR(AddSource(source, region, plan, check));
  plan->regions.push_back(region);
  return absl::OkStatus();
}

void CutFill(int64_t chunk_elements, int64_t num_inputs, int64_t task_elements, FillPlan* plan) {
  std::vector<int64_t> read(num_inputs, 0);  // elements of each message used in this chunk
  int64_t position = 0;                      // of the region's first element
  int64_t chunk = 0;
  plan->num_messages = num_inputs - plan->num_own;
  const auto end_chunk = [&] {
    plan->first_task.push_back(static_cast<int64_t>(plan->tasks.size()));
    for (int64_t i = plan->num_own; i < num_inputs; ++i)
      plan->message_bytes.push_back(read[i] * SizeOf(plan->dtype));
    std::fill(read.begin(), read.end(), 0);
  };
  plan->first_task.push_back(0);
  for (int64_t r = 0; r < static_cast<int64_t>(plan->regions.size()); ++r) {
    const FillPlan::Region& region = plan->regions[r];
    const int64_t end = position + region.target.volume();
    for (int64_t at = position; at < end;) {
      for (; chunk < at / chunk_elements; ++chunk) end_chunk();
      int64_t part_end = std::min(end, (chunk + 1) * chunk_elements);
      ForEachTask(at - position, part_end - position, task_elements,
                  [&](int64_t first, int64_t last) {
                    plan->tasks.push_back(
                        FillPlan::Task{r, first, last, static_cast<int64_t>(plan->offsets.size())});
                    for (int64_t s = 0; s < region.num_sources; ++s) {
                      const FillPlan::Source& source = plan->sources[region.first_source + s];
                      plan->offsets.push_back(source.is_message ? read[source.input] : 0);
                      if (source.is_message) read[source.input] += last - first;
                    }
                  });
      at = part_end;
    }
    position = end;
  }
  end_chunk();
}

}  // namespace

absl::StatusOr<PackPlan> PlanPack(const KernelSpec& spec, int64_t task_elements) {
  SpecCheck check(spec);
  const int num_tensors = static_cast<int>(spec.inputs.size());
  check.Inputs(num_tensors, num_tensors).Outputs(1, 1);
  for (int i = 0; i < num_tensors; ++i)
    check.SameType(check.in(i), check.out(0), "tensors and message");
  if (!check.ok()) return check.status();
  PackPlan plan;
  plan.element_bytes = SizeOf(check.out(0).dtype);
  const ExchangePack* pack = HalfOf<ExchangePack>(spec, &check);
  if (!check.ok()) return check.status();
  int64_t total = 0;
  for (const ExchangePiece& piece : pack->pieces) {
    check.Expect(check.HasIn(piece.tensor), "pieces of its inputs");
    if (!check.ok()) return check.status();
    WEIR_ASSIGN_OR_RETURN(DenseRect rect, Dense(piece.rect, check.in(piece.tensor).shape));
    plan.pieces.push_back(PackPlan::Piece{piece.tensor, piece.position, rect});
    total = std::max(total, piece.position + rect.volume());
  }
  ExpectChunks(total, pack->chunk_elements, &check);
  if (!check.ok()) return check.status();
  CutPack(total, pack->chunk_elements, task_elements, &plan);
  for (const PackPlan::Chunk& chunk : plan.chunks) {
    check.Expect(chunk.elements <= check.out(0).num_elements(),
                 "a message as long as its longest chunk");
  }
  if (!check.ok()) return check.status();
  return plan;
}

absl::StatusOr<FillPlan> PlanFill(const KernelSpec& spec, int64_t task_elements) {
  SpecCheck check(spec);
  const int num_inputs = static_cast<int>(spec.inputs.size());
  const int num_outputs = static_cast<int>(spec.outputs.size());
  check.Outputs(num_outputs, num_outputs).Expect(num_outputs > 0, "an output");
  for (int i = 0; i < num_inputs; ++i) {
    check.Expect(!check.HasIn(i) || check.in(i).dtype == check.out(0).dtype, "one element type");
  }
  for (int i = 0; i < num_outputs; ++i) check.SameType(check.out(i), check.out(0), "all outputs");
  FillPlan plan;
  plan.dtype = check.out(0).dtype;
  const ExchangeFill* fill = HalfOf<ExchangeFill>(spec, &check);
  if (!check.ok()) return check.status();
  if (const auto flaw = FindFlawWith(*fill, num_inputs)) check.Expect(false, flaw->expected);
  if (!check.ok()) return check.status();
  plan.num_own = fill->num_own;
  int64_t total = 0;
  for (const ExchangeRegion& region : fill->regions) {
    WEIR_RETURN_IF_ERROR(AddRegion(region, &plan, &check));
    total += plan.regions.back().target.volume();
  }
  ExpectChunks(total, fill->chunk_elements, &check);
  if (!check.ok()) return check.status();
  CutFill(fill->chunk_elements, num_inputs, task_elements, &plan);
  return plan;
}

absl::Status FillPlan::CheckMessages(const KernelArgs& args) const {
  if (args.input_bytes.empty()) return absl::OkStatus();
  const int64_t* expected = message_bytes.data() + args.chunk * num_messages;
  for (int64_t m = 0; m < num_messages; ++m) {
    if (args.input_bytes[num_own + m] != expected[m]) {
      return absl::DataLossError(absl::StrCat("message ", m, " of chunk ", args.chunk, " has ",
                                              args.input_bytes[num_own + m], " bytes, not ",
                                              expected[m]));
    }
  }
  return absl::OkStatus();
}

DenseRect FillPlan::SourceRect(const Task& task, const Region& region, int64_t s) const {
  const Source& source = sources[region.first_source + s];
  return source.is_message ? DenseRect::Flat(offsets[task.first_offset + s], task.last - task.first)
                           : source.rect;
}

}  // namespace weir::kernels
