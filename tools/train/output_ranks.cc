#include "tools/train/output_ranks.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/job/mesh_use.h"
#include "runtime/base/status.h"
#include "tools/train/memory_budget.h"
#include "tools/train/output_runner.h"
#include "tools/train/session_states.h"

namespace weir::train {
namespace {

constexpr char kFetch[] = "fetch/";

// The ranks of this process.
class LocalOutputs final : public OutputRunner {
 public:
  explicit LocalOutputs(int threads) : threads_(threads) {}

  absl::StatusOr<std::shared_ptr<const compiler::LogicalPlan>> Open(
      const OutputOrder& order) override {
    JobSessionOptions session;
    session.threads_per_device = threads_;
    WEIR_RETURN_IF_ERROR(ranks_.Open(*order.job, nullptr, order.use, session));
    const std::shared_ptr<const compiler::LogicalPlan> plan = ranks_.opened().plan;
    WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(*plan));
    if (order.weights != nullptr) {
      WEIR_RETURN_IF_ERROR(LoadWeights(order.weights, {"", order.job_file},
                                       ranks_.opened().session.get(), order.unused));
    }
    return plan;
  }
  absl::Status RunStep() override { return ranks_.RunStep(); }
  absl::StatusOr<std::string> Read(const std::string& output, int64_t begin,
                                   int64_t bytes) override {
    return ranks_.Read(output, begin, bytes);
  }

 private:
  const int threads_;
  OutputRanks ranks_;
};

}  // namespace

std::unique_ptr<OutputRunner> MakeLocalOutputs(int threads) {
  return std::make_unique<LocalOutputs>(threads);
}

const OutputRanks::Opened* OutputRanks::Find() const {
  MutexLock lock(&mutex_);
  return opened_.get();
}

const JobSession& OutputRanks::opened() const { return Find()->session; }

absl::Status OutputRanks::Open(const proto::Job& job, const proto::Data* data, store::DataUse use,
                               JobSessionOptions session) {
  auto opened = std::make_unique<Opened>();
  proto::Job here = job;
  if (data != nullptr) *here.mutable_data() = *data;
  WEIR_ASSIGN_OR_RETURN(opened->samples, OpenJobSamples(here, use));
  if (opened->samples.count == 0)
    return absl::FailedPreconditionError("the data have no samples to run");
  opened->feed = std::make_unique<SampleFeed>(&opened->samples);
  session.mode = compiler::PlanMode::kEvaluate;
  session.feed = opened->feed.get();
  session.trace = JobSessionOptions::Trace::kNone;
  WEIR_ASSIGN_OR_RETURN(opened->session, OpenJobSession(job, session));
  MutexLock lock(&mutex_);
  if (!stopped_.ok()) opened->session.session->Stop(stopped_);
  opened_ = std::move(opened);
  return absl::OkStatus();
}

absl::Status OutputRanks::Load(const weights::MappedWeights& from) {
  return LoadShards(from, StateSet::kWeights, opened().session.get());
}

absl::Status OutputRanks::RunStep() { return opened().session->RunSteps(1); }

std::vector<std::string> OutputRanks::Held() const {
  const actors::Session& session = *opened().session;
  std::vector<std::string> held;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (state.state_class == actors::StateClass::kFetched && absl::StartsWith(state.name, kFetch))
        held.emplace_back(absl::StripPrefix(state.name, kFetch));
    }
  }
  return held;
}

absl::StatusOr<std::string> OutputRanks::Read(const std::string& output, int64_t begin,
                                              int64_t bytes) const {
  const actors::Session& session = *opened().session;
  const std::string name = absl::StrCat(kFetch, output);
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (state.name != name) continue;
      const int64_t size = state.slice.bytes();
      if (begin < 0 || bytes < 0 || begin > size || bytes > size - begin) {
        return absl::InternalError(absl::StrCat("output ", output, " has ", size,
                                                " bytes; asked for ", bytes, " from ", begin));
      }
      WEIR_ASSIGN_OR_RETURN(const device::HostView memory, session.ReadState(rank, name));
      return std::string(memory.data() + begin, static_cast<size_t>(bytes));
    }
  }
  return absl::InternalError(absl::StrCat("no rank of this process has output ", output));
}

void OutputRanks::Stop(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  stopped_ = reason;
  if (opened_ != nullptr) opened_->session.session->Stop(reason);
}

actors::SessionProgress OutputRanks::Progress() const {
  MutexLock lock(&mutex_);
  if (opened_ != nullptr) return opened_->session.session->Progress();
  actors::SessionProgress progress;
  progress.asleep = true;
  progress.done = true;
  progress.activity = "waits for its ranks";
  return progress;
}

std::string OutputRanks::DescribeStall() const {
  const Opened* const opened = Find();
  return opened == nullptr ? "" : opened->session.session->DescribeStall();
}

std::vector<actors::Wait> OutputRanks::ListWaits() const {
  const Opened* const opened = Find();
  return opened == nullptr ? std::vector<actors::Wait>() : opened->session.session->ListWaits();
}

}  // namespace weir::train
