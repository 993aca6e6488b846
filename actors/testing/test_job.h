// Runs sessions of hand-written plans (test_plans.h) and returns their outcomes.
// Thread rule: pure functions and values; SplitJob one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "actors/session/session.h"
#include "actors/testing/certified.h"
#include "actors/testing/shared_network.h"
#include "actors/testing/test_plans.h"
#include "proto/plan.pb.h"
#include "runtime/base/ids.h"

namespace weir::actors {

// An Outcome is the result of a run: states by (rank, name), metrics, bytes by edge.
struct Outcome {
  std::map<std::pair<RankId, std::string>, std::string> states;
  TestSink::Values metrics;
  std::map<EdgeId, int64_t> bytes_by_edge;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Derives a certificate, creates a session with a TestFeed and a TestSink, and runs `steps` steps
// in calls of `steps_per_call`.
absl::StatusOr<Outcome> RunTestJob(const std::vector<proto::RankPlan>& plans,
                                   SessionOptions options, int64_t steps, int64_t steps_per_call);

// A SplitJob holds the sessions of a job that is spread over several sessions, made and run
// together, a thread each.
class SplitJob {
 public:
  // `parts[i]` holds the ranks of session i. `feed` and `sink` serve all sessions.
  struct Options {
    std::vector<std::vector<int>> parts;
    SessionOptions session;  // its network is set here
    SharedNetwork::Landing landing = SharedNetwork::Landing::kAnywhere;
    SharedNetwork::Mapping mapping = SharedNetwork::Mapping::kDirect;
    std::vector<uint32_t> epochs;  // by part; empty: as the session's options say
  };
  // The plans must have certificates (Certified) and are not changed: as in processes, no session
  // sees the plans of all ranks.
  static absl::StatusOr<std::unique_ptr<SplitJob>> Create(const std::vector<proto::RankPlan>& plans,
                                                          const Options& options);

  // Runs all sessions, each on a thread. Returns the first error in time, which stops the others.
  absl::Status RunSteps(int64_t steps);
  Session& session(int part) { return *sessions_[part]; }
  int num_sessions() const { return static_cast<int>(sessions_.size()); }

 private:
  explicit SplitJob(size_t num_ranks, const Options& options)
      : network_(static_cast<int>(num_ranks), options.landing, options.mapping),
        sessions_(options.parts.size()) {}

  SharedNetwork network_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Does the same as RunTestJob, with the sessions of a SplitJob.
absl::StatusOr<Outcome> RunSplitJob(const std::vector<proto::RankPlan>& plans,
                                    SplitJob::Options options, int64_t steps,
                                    int64_t steps_per_call);

}  // namespace weir::actors
