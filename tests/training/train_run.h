// Trains a job for a few steps in this process and returns what a test compares: the loss curve,
// weights as whole tensors, and counts of registers and edges. This
// trainer is not the trainer of the CLI: a run writes no files and shows no progress. Thread rule:
// one thread per run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"

namespace weir::training {

struct TrainRunOptions {
  int64_t steps = 3;
  actors::SessionOptions
      session;  // engine, threads, seeds; feed, sink and initialiser are set by the run
  std::function<std::unique_ptr<actors::DataFeed>(const proto::Job&)> feed;  // null: RepeatingFeed
  std::function<void(const actors::Session&)> inspect;  // called at the end of the run, if set
};

struct TrainRun {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<double> loss_scales;  // none unless the loss scale adapts
  std::map<std::string, std::vector<float>>
      initial;  // whole tensors by name, optimiser state too, before step 0
  std::map<std::string, std::vector<float>> weights;  // the same states after the last step
  std::map<std::string, Shape> shapes;
  std::vector<actors::EdgeReport> edges;
};

// Returns the name of the first state whose bits differ (TrainRun::weights); "" if none does.
std::string FirstDifferentState(const std::map<std::string, std::vector<float>>& a,
                                const std::map<std::string, std::vector<float>>& b);
// The same for two runs, which must have states; "losses" if those alone differ.
std::string FirstDifference(const TrainRun& a, const TrainRun& b);

// Returns `job` with its mesh replaced by `mesh`, for example "dp=2,tp=2".
proto::Job WithMesh(proto::Job job, const std::string& mesh);

// Returns the batches of a run: four seeded batches repeat, so that there is something to learn.
std::unique_ptr<actors::DataFeed> RepeatingFeed(const proto::Job& job);
// Returns batches that never repeat: row follows row, whatever the cut into steps and
// micro-batches.
std::unique_ptr<actors::DataFeed> EndlessFeed(const proto::Job& job);

// Returns the plans of all ranks of `job`, by rank.
absl::StatusOr<std::vector<proto::RankPlan>> CompileForAllRanks(const proto::Job& job);

// Returns options for a session in virtual time that computes nothing: every act takes the time
// that the compiler planned for it, and messages arrive at once unless the caller says otherwise.
// `feed` must outlive the session.
actors::SessionOptions VirtualTimeOptions(actors::DataFeed* feed);

// Compiles the job, checks that all plans fit, runs them, and checks that every register is at rest
// at the end and, from the trace, that no register ever held more than its slots.
absl::StatusOr<TrainRun> Train(const proto::Job& job, const TrainRunOptions& options);

// Joins the shards of a state: `shards[r]` and `slices[r]` are those of rank r. Replicas must agree
// to the bit, else kInternal.
absl::StatusOr<std::vector<float>> AssembleState(
    const std::string& name, const std::vector<std::pair<TensorSlice, std::string>>& shards);

}  // namespace weir::training
