#include "tools/train/generation_ranks.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/real.h"
#include "runtime/base/status.h"
#include "tools/train/copy_fetched_states.h"
#include "tools/train/generation_cache.h"
#include "tools/train/session_states.h"

namespace weir::train {
namespace {

constexpr char kLogitsState[] = "fetch/logits";

// Feeds the tokens and positions of a step to the sources of a plan.
class TokenFeed final : public actors::DataFeed {
 public:
  TokenRows* tokens() { return &tokens_; }

  absl::Status Fill(const std::string& feed, int64_t, int64_t, const TensorSlice& slice,
                    void* out) override {
    if (slice.bytes() == 0) return absl::OkStatus();
    memset(out, 0, static_cast<size_t>(slice.bytes()));
    const auto found = tokens_.values().find(feed);
    if (found == tokens_.values().end()) return absl::OkStatus();
    const int64_t rows = tokens_.rows(), width = tokens_.WidthOf(feed);
    if (slice.dtype != DType::kI32 || slice.global_shape.size() != 2 ||
        slice.global_shape[0] != rows || slice.global_shape[1] < width) {
      return Rejected({"W0070", absl::StrCat("input ", feed),
                       absl::StrCat("i32[", rows, ", ", width, "] or wider"), ToText(slice), ""});
    }
    const int64_t given = std::clamp<int64_t>(width - slice.offset[1], 0, slice.shape[1]);
    for (int64_t r = 0; r < slice.shape[0] && given > 0; ++r) {
      memcpy(static_cast<int32_t*>(out) + r * slice.shape[1],
             found->second.data() + (slice.offset[0] + r) * width + slice.offset[1],
             static_cast<size_t>(given) * sizeof(int32_t));
    }
    return absl::OkStatus();
  }

 private:
  TokenRows tokens_;
};

// The logits that a rank holds: whole rows from the first one on.
struct HeldLogits {
  RankId rank;
  TensorSlice slice;
};

std::vector<HeldLogits> LogitsOf(const actors::Session& session) {
  std::vector<HeldLogits> held;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (state.name == kLogitsState && state.slice.shape.size() >= 2)
        held.push_back({rank, state.slice});
    }
  }
  return held;
}

std::vector<float> FloatsOf(DType dtype, const char* from, int64_t count) {
  std::vector<float> floats(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) floats[static_cast<size_t>(i)] = RealAt(dtype, from, i);
  return floats;
}

absl::StatusOr<std::vector<float>> LogitsAt(const actors::Session& session,
                                            const std::vector<HeldLogits>& held, int64_t row) {
  for (const HeldLogits& logits : held) {
    const int64_t width = logits.slice.shape.back();
    if ((row + 1) * width > logits.slice.num_elements()) continue;
    WEIR_ASSIGN_OR_RETURN(const device::HostView memory,
                          session.ReadState(logits.rank, kLogitsState));
    const DType dtype = logits.slice.dtype;
    return FloatsOf(dtype, memory.data() + row * width * SizeOf(dtype), width);
  }
  return absl::InternalError("the plan fetches no logits with a row for each token");
}

// The ranks of this process.
class LocalGeneration final : public GenerationRunner {
 public:
  explicit LocalGeneration(int threads) : threads_(threads) {}

  absl::Status Open(GenerationPlan plan, const GenerationOrder& order) override {
    JobSessionOptions session;
    session.threads_per_device = threads_;
    WEIR_RETURN_IF_ERROR(ranks_.Open(plan, *order.job, session));
    if (order.weights == nullptr) return absl::OkStatus();
    weights::WeightTypes types =
        WeightTypesOf(StatesOf(*ranks_.opened(plan).session, StateSet::kWeights));
    types.insert(order.unused.begin(), order.unused.end());
    WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                          weights::MapWeights(order.weights, {"", order.job_file}, types));
    return ranks_.Load(plan, mapped);
  }
  absl::Status RunStep(GenerationPlan plan, const TokenRows& tokens) override {
    return ranks_.RunStep(plan, tokens);
  }
  absl::StatusOr<std::vector<std::vector<float>>> Logits(
      GenerationPlan plan, const std::vector<int64_t>& rows) override {
    return ranks_.Logits(plan, rows);
  }
  std::vector<int64_t> RowEnds(GenerationPlan plan) const override {
    return CacheRowEnds(*ranks_.opened(plan).plan);
  }
  absl::StatusOr<bool> CarryCache() override { return ranks_.CarryCache(); }
  absl::Status Close(GenerationPlan plan) override {
    ranks_.Close(plan);
    return absl::OkStatus();
  }

 private:
  const int threads_;
  GenerationRanks ranks_;
};

}  // namespace

std::unique_ptr<GenerationRunner> MakeLocalGeneration(int threads) {
  return std::make_unique<LocalGeneration>(threads);
}

struct GenerationRanks::OpenPlan {
  TokenFeed feed;
  JobSession opened;  // depends on the feed
};

GenerationRanks::GenerationRanks() = default;
GenerationRanks::~GenerationRanks() = default;

GenerationRanks::OpenPlan* GenerationRanks::Find(GenerationPlan plan) const {
  MutexLock lock(&mutex_);
  return plans_[static_cast<size_t>(plan)].get();
}

const JobSession& GenerationRanks::opened(GenerationPlan plan) const { return Find(plan)->opened; }

absl::Status GenerationRanks::Open(GenerationPlan plan, const proto::Job& job,
                                   JobSessionOptions session) {
  auto open = std::make_unique<OpenPlan>();
  session.mode = compiler::PlanMode::kGenerate;
  session.feed = &open->feed;
  session.trace = JobSessionOptions::Trace::kNone;
  WEIR_ASSIGN_OR_RETURN(open->opened, OpenJobSession(job, session));
  MutexLock lock(&mutex_);
  if (!stopped_.ok()) open->opened.session->Stop(stopped_);
  plans_[static_cast<size_t>(plan)] = std::move(open);
  return absl::OkStatus();
}

absl::Status GenerationRanks::Load(GenerationPlan plan, const weights::MappedWeights& from) {
  return LoadShards(from, StateSet::kWeights, Find(plan)->opened.session.get());
}

absl::Status GenerationRanks::RunStep(GenerationPlan plan, const TokenRows& tokens) {
  OpenPlan* const open = Find(plan);
  *open->feed.tokens() = tokens;
  return open->opened.session->RunSteps(1);
}

bool GenerationRanks::HasLogits(GenerationPlan plan) const {
  return !LogitsOf(*opened(plan).session).empty();
}

absl::StatusOr<std::vector<std::vector<float>>> GenerationRanks::Logits(
    GenerationPlan plan, const std::vector<int64_t>& rows) const {
  const actors::Session& session = *opened(plan).session;
  const std::vector<HeldLogits> held = LogitsOf(session);
  std::vector<std::vector<float>> logits;
  for (const int64_t row : rows) {
    WEIR_ASSIGN_OR_RETURN(std::vector<float> values, LogitsAt(session, held, row));
    logits.push_back(std::move(values));
  }
  return logits;
}

absl::StatusOr<bool> GenerationRanks::CarryCache() {
  const actors::Session& from = *opened(GenerationPlan::kPrompts).session;
  actors::Session* const to = opened(GenerationPlan::kSteps).session.get();
  if (!HoldsFetchedStates(from, kLogitsState, *to)) return false;
  WEIR_RETURN_IF_ERROR(CopyFetchedStates(from, kLogitsState, to));
  return true;
}

void GenerationRanks::Close(GenerationPlan plan) {
  std::unique_ptr<OpenPlan> closed;
  MutexLock lock(&mutex_);
  closed = std::move(plans_[static_cast<size_t>(plan)]);
  if (closed != nullptr) acts_of_closed_ += closed->opened.session->Progress().acts;
}

void GenerationRanks::Stop(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  stopped_ = reason;
  for (const std::unique_ptr<OpenPlan>& open : plans_) {
    if (open != nullptr) open->opened.session->Stop(reason);
  }
}

// Only one plan works at a time. The counts of the others stand still.
actors::SessionProgress GenerationRanks::Progress() const {
  MutexLock lock(&mutex_);
  actors::SessionProgress progress;
  progress.acts = acts_of_closed_;
  progress.asleep = true;
  progress.done = true;
  progress.activity = "waits for the next step";
  for (const std::unique_ptr<OpenPlan>& open : plans_) {
    if (open == nullptr) continue;
    actors::SessionProgress of_plan = open->opened.session->Progress();
    progress.acts += of_plan.acts;
    if (!of_plan.done) progress.activity = std::move(of_plan.activity);
    progress.asleep = progress.asleep && of_plan.asleep;
    progress.done = progress.done && of_plan.done;
    if (progress.fault.ok()) progress.fault = of_plan.fault;
  }
  return progress;
}

std::string GenerationRanks::DescribeStall() const {
  std::string text;
  for (const auto plan :
       {GenerationPlan::kPrompts, GenerationPlan::kSteps, GenerationPlan::kWindows}) {
    if (const OpenPlan* const open = Find(plan); open != nullptr)
      text += open->opened.session->DescribeStall();
  }
  return text;
}

std::vector<actors::Wait> GenerationRanks::ListWaits() const {
  std::vector<actors::Wait> waits;
  for (const auto plan :
       {GenerationPlan::kPrompts, GenerationPlan::kSteps, GenerationPlan::kWindows}) {
    const OpenPlan* const open = Find(plan);
    if (open == nullptr) continue;
    for (actors::Wait& wait : open->opened.session->ListWaits()) waits.push_back(std::move(wait));
  }
  return waits;
}

}  // namespace weir::train
