// OutputRanks are the ranks, in this process, of a job that runs its model for its results
// (output_runner.h). A process that holds all ranks needs nothing else; a worker process holds
// some, with a network to the others.
//
// With several processes, each call runs in all of them at once and returns when all are done, but
// for Read, which needs nobody else.
// Thread rule: one thread; Stop and Progress from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/loaded_ranks.h"
#include "tools/weights/mapped_weights.h"

namespace weir::train {

class OutputRanks final : public LoadedRanks {
 public:
  OutputRanks() = default;
  ~OutputRanks() override = default;

  // Opens the data and the ranks. `data` are those of the job as this machine has them; null: as
  // the job says. Mode, feed and trace of `session` do not count.
  absl::Status Open(const proto::Job& job, const proto::Data* data, store::DataUse use,
                    JobSessionOptions session) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsOpen() const { return Find() != nullptr; }
  // Precondition, here and below: IsOpen().
  absl::Status Load(const weights::MappedWeights& from);
  absl::Status RunStep();
  // Returns the outputs that a local rank has.
  std::vector<std::string> Held() const;
  // As OutputRunner::Read. kInternal: no local rank has the output, or it has fewer bytes.
  absl::StatusOr<std::string> Read(const std::string& output, int64_t begin, int64_t bytes) const;
  const JobSession& opened() const;

  void Stop(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mutex_);
  actors::SessionProgress Progress() const override ABSL_LOCKS_EXCLUDED(mutex_);
  std::string DescribeStall() const override;
  std::vector<actors::Wait> ListWaits() const override;

 private:
  struct Opened {
    JobSamples samples;
    std::unique_ptr<SampleFeed> feed;  // depends on the samples
    JobSession session;                // depends on the feed
  };
  // Returns what Open has made, or null. It never changes afterwards.
  const Opened* Find() const ABSL_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<Opened> opened_ ABSL_GUARDED_BY(mutex_);
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::train
