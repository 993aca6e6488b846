// Hand-written plans and a world for them, for tests of the runtime.
// A job is a text file under actors/testing/plans: RankPlan messages in text form, one
// per rank, separated by lines "---".
// Thread rule: the feed and the sink may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "actors/feed.h"
#include "actors/launch.h"
#include "actors/testing/shared_network.h"
#include "proto/plan.pb.h"

namespace weir {

// Dies with the parser's message if the file is missing or wrong.
std::vector<RankPlan> LoadTestJob(const std::string& name);
std::vector<RankPlan> ParseTestJob(const std::string& text);

// Fills every element from (feed, step, micro-batch, global element).
class TestFeed final : public DataFeed {
 public:
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch, const TensorSlice& slice,
                    void* out) override;
  // The feed fails at this step.
  void FailAt(int64_t step) { fail_at_ = step; }

 private:
  int64_t fail_at_ = -1;
};

class TestSink final : public MetricSink {
 public:
  using Values = std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<float>>;
  void Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) override;
  Values values() const;

 private:
  mutable std::mutex mutex_;  // guards values_
  Values values_;
};

// All that a run leaves behind: states by (rank, name), metrics, bytes by edge.
struct Outcome {
  std::map<std::pair<int, std::string>, std::string> states;
  TestSink::Values metrics;
  std::map<uint64_t, int64_t> bytes_by_edge;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Creates a session with a TestFeed and a TestSink, and runs `steps` steps in calls of
// `steps_per_call`. `events`, if given, receives the simulator's count.
absl::StatusOr<Outcome> RunTestJob(const std::vector<RankPlan>& plans, SessionOptions options, int64_t steps,
                                   int64_t steps_per_call);

// The sessions of a job that is spread over several, made and run together, a thread each.
class SplitJob {
 public:
  // `parts[i]` are the ranks of session i. `feed` and `sink` serve all.
  struct Options {
    std::vector<std::vector<int>> parts;
    SessionOptions session;  // its network is set here
    SharedNetwork::Landing landing = SharedNetwork::Landing::kAnywhere;
    SharedNetwork::Mapping mapping = SharedNetwork::Mapping::kDirect;
    std::vector<uint32_t> epochs;  // by part; empty: as the session's options say
  };
  static absl::StatusOr<std::unique_ptr<SplitJob>> Create(const std::vector<RankPlan>& plans, const Options& options);

  // All sessions run, each on a thread. The first error in time, which stops the others.
  absl::Status RunSteps(int64_t steps);
  Session& session(int part) { return *sessions_[part]; }
  int num_sessions() const { return static_cast<int>(sessions_.size()); }

 private:
  explicit SplitJob(size_t num_ranks, const Options& options)
      : network_(static_cast<int>(num_ranks), options.landing, options.mapping), sessions_(options.parts.size()) {}

  SharedNetwork network_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// As RunTestJob, by the sessions of a SplitJob.
absl::StatusOr<Outcome> RunSplitJob(const std::vector<RankPlan>& plans, SplitJob::Options options, int64_t steps,
                                    int64_t steps_per_call);

}  // namespace weir
