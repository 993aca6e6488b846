// What `weir train` takes on the command line, and `weir check` with it: a user checks a run by
// writing check in place of train. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/cli_verbs.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet.h"
#include "tools/launch/log_directory.h"
#include "tools/train/trainer.h"

namespace weir {

// How a job is spread over processes.
struct FleetArguments {
  int processes = 0;  // 0: all ranks in this one
  std::string transport = "auto";
  std::string checksums = "on";
  std::string logs = kLogBaseDefault;
  std::string ranks;
  double heartbeat_seconds = 1;
  double dead_after_seconds = 4;
  double stuck_after_seconds = 60;
  double grace_seconds = 5;

  void AddTo(CLI::App* verb);
  absl::StatusOr<FleetOptions> Options(const Job& job, Console* console) const;
};

// A job as a run has it. --steps makes the run shorter or longer than training.steps and leaves the
// schedule of learning rates as the job has it, so that a run may be made in pieces.
struct JobToTrain {
  Job job;
  std::string
      note;  // a sentence on learning rates, if --steps is not what the job says; may be empty
};

struct TrainArguments {
  JobArguments job;
  TrainOptions options;
  int64_t steps = -1;  // below 0: the job's
  int64_t seed = -1;   // below 0: the job's
  std::string on_nonfinite = "stop";
  FleetArguments fleet;

  void AddTo(CLI::App* verb, CliContext* context);
  absl::StatusOr<JobToTrain> Read() const;
};

}  // namespace weir
