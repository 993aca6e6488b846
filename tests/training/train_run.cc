#include "tests/training/train_run.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "tests/training/trace_check.h"
#include "tools/train/job_data.h"

namespace weir::training {
namespace {

class SyntheticFeed final : public actors::DataFeed {
 public:
  SyntheticFeed(const proto::Job& job, int64_t steps)
      : steps_(steps), micro_batches_(std::max<int64_t>(1, job.training().micro_batches())) {
    proto::Job synthetic = job;
    synthetic.mutable_data()->mutable_synthetic();
    data_ = train::OpenJobData(synthetic).value();
  }
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override {
    return data_->Fill(feed, {store::DataPart::kTrain, step % steps_, micro_batch, micro_batches_},
                       slice, out);
  }

 private:
  int64_t steps_;  // the number of steps before batches repeat
  int64_t micro_batches_;
  std::unique_ptr<store::Dataset> data_;
};

class MetricRecorder final : public actors::MetricSink {
 public:
  void Report(const std::string& metric, int64_t step, int64_t, float value) override {
    MutexLock lock(&mutex_);
    auto& series = series_[metric];
    if (static_cast<int64_t>(series.size()) <= step) series.resize(step + 1);
    series[step] = value;
  }
  std::vector<double> Take(const std::string& metric) {
    MutexLock lock(&mutex_);
    return std::move(series_[metric]);
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::vector<double>> series_ ABSL_GUARDED_BY(mutex_);
};

// Returns every state of every rank as whole tensors.
absl::StatusOr<std::map<std::string, std::vector<float>>> WholeStates(
    const actors::Session& session) {
  std::map<std::string, std::vector<std::pair<TensorSlice, std::string>>> shards;
  for (const RankId rank : session.local_ranks()) {
    for (const auto& state : session.plan(rank).states) {
      WEIR_ASSIGN_OR_RETURN(const device::HostView view, session.ReadState(rank, state.name));
      shards[state.name].push_back({state.slice, std::string(view.data(), view.size())});
    }
  }
  std::map<std::string, std::vector<float>> whole;
  for (const auto& [name, list] : shards) {
    WEIR_ASSIGN_OR_RETURN(whole[name], AssembleState(name, list));
  }
  return whole;
}

}  // namespace

std::unique_ptr<actors::DataFeed> RepeatingFeed(const proto::Job& job) {
  return std::make_unique<SyntheticFeed>(job, 4);
}

std::unique_ptr<actors::DataFeed> EndlessFeed(const proto::Job& job) {
  return std::make_unique<SyntheticFeed>(job, int64_t{1} << 40);
}

std::string FirstDifferentState(const std::map<std::string, std::vector<float>>& a,
                                const std::map<std::string, std::vector<float>>& b) {
  if (a.size() != b.size()) return "the set of states";
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size() ||
        std::memcmp(values.data(), other->second.data(), values.size() * sizeof(float)) != 0)
      return name;
  }
  return "";
}

std::string FirstDifference(const TrainRun& a, const TrainRun& b) {
  if (a.weights.empty()) return "the set of states";
  const std::string state = FirstDifferentState(a.weights, b.weights);
  return !state.empty() || a.losses == b.losses ? state : "losses";
}

proto::Job WithMesh(proto::Job job, const std::string& mesh) {
  job.clear_mesh();
  absl::StatusOr<sbp::Mesh> parsed = sbp::Mesh::Parse(mesh);
  if (!parsed.ok()) return job;
  for (const sbp::MeshAxis& axis : parsed->axes()) {
    auto* spec = job.mutable_mesh()->add_axis();
    spec->set_name(axis.name);
    spec->set_size(axis.size);
  }
  return job;
}

absl::StatusOr<std::vector<float>> AssembleState(
    const std::string& name, const std::vector<std::pair<TensorSlice, std::string>>& shards) {
  const Shape global = shards[0].first.global_shape;
  std::vector<float> whole(NumElements(global));
  std::vector<char> seen(whole.size(), 0);
  for (const auto& [slice, bytes] : shards) {
    int64_t count = slice.num_elements();
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, index = 0, stride = 1;
      for (size_t d = slice.shape.size(); d-- > 0;) {
        index += (slice.offset[d] + rest % slice.shape[d]) * stride;
        rest /= slice.shape[d];
        stride *= global[d];
      }
      float value;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      if (seen[index] && std::memcmp(&whole[index], &value, 4) != 0) {
        return absl::InternalError(absl::StrCat("replicas of ", name, " differ at element ", index,
                                                ": ", whole[index], " and ", value));
      }
      seen[index] = 1;
      whole[index] = value;
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i])
      return absl::InternalError(absl::StrCat("no rank holds element ", i, " of ", name));
  }
  return whole;
}

absl::StatusOr<std::vector<proto::RankPlan>> CompileForAllRanks(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<compiler::LogicalPlan> logical,
                        compiler::CompileJob(job, {}));
  std::vector<proto::RankPlan> plans;
  for (RankId rank : logical->places.all_ranks()) {
    WEIR_ASSIGN_OR_RETURN(proto::RankPlan plan, compiler::LowerForRank(*logical, rank));
    plans.push_back(std::move(plan));
  }
  return plans;
}

actors::SessionOptions VirtualTimeOptions(actors::DataFeed* feed) {
  actors::SessionOptions options;
  options.feed = feed;
  options.engine = actors::SessionOptions::EngineKind::kSim;
  options.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
  options.compute = actors::RankExecutorOptions::Compute::kSkip;
  options.sim_cost_ns = [](const actors::Plan&, const actors::PlanActor& actor) {
    return actor.timing.time_ns;
  };
  return options;
}

absl::StatusOr<TrainRun> Train(const proto::Job& job, const TrainRunOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<proto::RankPlan> plans, CompileForAllRanks(job));
  std::unique_ptr<actors::DataFeed> feed = options.feed ? options.feed(job) : RepeatingFeed(job);
  MetricRecorder sink;
  actors::SessionOptions session_options = options.session;
  session_options.feed = feed.get();
  session_options.sink = &sink;
  if (job.runtime().collectives() == proto::Runtime::NCCL)
    session_options.collectives = actors::SessionOptions::Collectives::kNccl;
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<actors::Session> session,
                        actors::Session::Create(plans, session_options));
  const bool computes = options.session.compute != actors::RankExecutorOptions::Compute::kSkip;
  TrainRun run;
  if (computes) {
    WEIR_ASSIGN_OR_RETURN(run.initial, WholeStates(*session));
  }
  WEIR_RETURN_IF_ERROR(session->RunSteps(options.steps));
  WEIR_RETURN_IF_ERROR(session->CheckAtRest());
  WEIR_RETURN_IF_ERROR(CheckRegistersByTrace(*session));
  if (options.inspect) options.inspect(*session);
  run.losses = sink.Take("loss");
  run.grad_norms = sink.Take("grad_norm");
  run.loss_scales = sink.Take("loss_scale");
  run.edges = session->Edges();
  if (!computes) return run;
  for (const RankId rank : session->local_ranks()) {
    for (const auto& state : session->plan(rank).states)
      run.shapes[state.name] = state.slice.global_shape;
  }
  WEIR_ASSIGN_OR_RETURN(run.weights, WholeStates(*session));
  return run;
}

}  // namespace weir::training
