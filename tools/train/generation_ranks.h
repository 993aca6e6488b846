// GenerationRanks are the ranks of a generating job that this process holds, with the plans of the
// generation that are open (generation_runner.h). A process that holds all ranks needs nothing
// else; a worker process holds some, with a network to the others.
//
// With several processes, each call runs in all of them at once and returns when all are done, but
// for Logits, which needs nobody else.
// Thread rule: one thread; Stop and Progress from any thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "tools/train/generation_runner.h"
#include "tools/train/job_session.h"
#include "tools/train/loaded_ranks.h"
#include "tools/weights/mapped_weights.h"

namespace weir::train {

class GenerationRanks final : public LoadedRanks {
 public:
  GenerationRanks();
  ~GenerationRanks() override;

  // Opens the plan of `job`. Mode, feed and trace of `session` do not count.
  absl::Status Open(GenerationPlan plan, const proto::Job& job, JobSessionOptions session);
  // Loads the weights of the plan's local ranks.
  absl::Status Load(GenerationPlan plan, const weights::MappedWeights& from);
  absl::Status RunStep(GenerationPlan plan, const TokenRows& tokens);
  // Returns whether a local rank of the plan has the logits.
  bool HasLogits(GenerationPlan plan) const;
  absl::StatusOr<std::vector<std::vector<float>>> Logits(GenerationPlan plan,
                                                         const std::vector<int64_t>& rows) const;
  // As GenerationRunner::CarryCache, for the shards of this process.
  absl::StatusOr<bool> CarryCache();
  void Close(GenerationPlan plan);
  bool IsOpen(GenerationPlan plan) const { return Find(plan) != nullptr; }
  // Precondition, here and above: the plan is open.
  const JobSession& opened(GenerationPlan plan) const;

  void Stop(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mutex_);
  actors::SessionProgress Progress() const override ABSL_LOCKS_EXCLUDED(mutex_);
  std::string DescribeStall() const override;
  std::vector<actors::Wait> ListWaits() const override;

 private:
  struct OpenPlan;
  // Returns the plan. Only the owner's thread may use the result, because that thread alone closes
  // plans.
  OpenPlan* Find(GenerationPlan plan) const ABSL_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;
  // By GenerationPlan; null: not open.
  std::array<std::unique_ptr<OpenPlan>, 3> plans_ ABSL_GUARDED_BY(mutex_);
  int64_t acts_of_closed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::train
