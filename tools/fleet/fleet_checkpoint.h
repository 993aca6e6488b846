// A checkpoint folder of a job in worker processes. The starter makes the folder and commits it;
// each worker whose host sees the folder writes the shards of its ranks there. A worker on a host
// that does not see the folder sends the bytes to the starter between bursts of steps, and the
// starter writes them. Thread rule: one thread, that of the fleet's commands.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/store/shard_file.h"
#include "tools/fleet/fleet.h"
#include "tools/train/checkpoint_commit.h"
#include "tools/train/job_runner.h"

namespace weir::fleet {

class FleetCheckpoint {
 public:
  // `fleet` must outlive this object.
  explicit FleetCheckpoint(Fleet* fleet) : fleet_(fleet) {}

  // See JobRunner::PrepareCheckpoints, BeginCheckpoint and EndCheckpoint. `states` are those of all
  // ranks.
  absl::Status Prepare();
  absl::Status Begin(const train::CheckpointOrder& order,
                     const std::map<std::string, train::StateType>& states);
  absl::StatusOr<std::optional<train::CheckpointWritten>> End(train::JobRunner::Wait wait);

 private:
  // The files of a worker that sends.
  struct Sender {
    std::vector<std::unique_ptr<store::ShardWriter>> writers;  // in the order of the bytes
    size_t current = 0;
    int64_t position = 0;  // of the next byte to ask for
  };
  struct Part {
    bool is_done = false;
    std::optional<Sender> sender;  // absent: the worker writes
  };

  absl::Status BeginAll(const train::CheckpointOrder& order,
                        const std::map<std::string, train::StateType>& states);
  // Finds which workers send.
  absl::Status Probe();
  // Begins the files of a worker that sends.
  absl::Status OpenFiles(const proto::WorkerAnswer& answer,
                         const std::map<std::string, train::StateType>& states, Sender* sender);
  // Asks all workers for outcomes and bytes.
  absl::Status LookAt(int64_t limit_ms, train::JobRunner::Wait wait);
  absl::Status TakeBytes(const proto::WorkerAnswer& answer, Part* part);
  absl::Status TakeFiles(const proto::WorkerAnswer& answer, Part* part);
  bool IsWritten() const;
  // Ends the writing of all workers that live, and removes what is written. `reason` is the error
  // that ends the checkpoint.
  void GiveUp(const absl::Status& reason);
  bool MayFetch(train::JobRunner::Wait wait);

  Fleet* const fleet_;
  const MonotonicClock clock_;
  train::CheckpointCommit commit_;
  IdVector<WorkerId, Part> parts_;
  std::unique_ptr<train::WritePace> pace_;  // of what is sent
};

}  // namespace weir::fleet
