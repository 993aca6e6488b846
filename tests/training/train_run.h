// Trains a job for a few steps in this process and hands back what a test compares:
// loss curve, weights as whole tensors, what registers and edges did.
// Not the trainer of the CLI: no files, no progress. Thread rule: one thread per run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/launch.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"

namespace weir::testing {

struct TrainRunOptions {
  int64_t steps = 3;
  SessionOptions session;  // engine, threads, seeds; feed, sink and initialiser are set by the run
  std::function<std::unique_ptr<DataFeed>(const Job&)> feed;  // null: RepeatingFeed
  std::function<void(const Session&)> inspect;  // called at the end of the run, if set
};

struct TrainRun {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::map<std::string, std::vector<float>>
      initial;  // whole tensors by name, optimiser state too, before step 0
  std::map<std::string, std::vector<float>> weights;  // the same after the last step
  std::map<std::string, Shape> shapes;
  std::vector<EdgeReport> edges;
};

// `job` with its mesh replaced by "dp=2,tp=2".
Job WithMesh(Job job, const std::string& mesh);

// The batches of a run: four seeded ones over and over, so that there is something to learn.
std::unique_ptr<DataFeed> RepeatingFeed(const Job& job);
// Batches that do not come again: rows one after another, however they are cut into steps and
// micro-batches.
std::unique_ptr<DataFeed> EndlessFeed(const Job& job);

// The plans of all ranks of `job`, by rank.
absl::StatusOr<std::vector<RankPlan>> CompileForAllRanks(const Job& job);

// A session in virtual time that computes nothing: every act takes the time that the compiler
// planned for it, and messages arrive at once unless the caller says otherwise. `feed` must outlive
// the session.
SessionOptions VirtualTimeOptions(DataFeed* feed);

// Compiles, checks that all plans fit, runs, checks that every register is at rest and, from
// the trace, that none ever held more than its slots.
absl::StatusOr<TrainRun> Train(const Job& job, const TrainRunOptions& options);

// Puts the shards of a state together: `shards[r]` and `slices[r]` of rank r. Replicas must agree
// to the bit, else kInternal.
absl::StatusOr<std::vector<float>> AssembleState(
    const std::string& name, const std::vector<std::pair<TensorSlice, std::string>>& shards);

}  // namespace weir::testing
