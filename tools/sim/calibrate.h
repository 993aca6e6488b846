// Measures this machine into a Cluster: the times of kernels, at the shapes of a job and in their
// places between other kernels; how much cores slow each other down; how long a waiting rank takes
// to wake. The measurements are
//
//   kernels   The ranks of the job run in virtual time, but with real kernels, one act at a time on
//             one device. Each place in the step gets the median over steps, and equal kernels in
//             several places get the mean.
//   busy      The same on all cores at once, each core with ranks of its own. This shows how much
//             each kernel loses by the resources that cores share.
//   cores     The job on k cores at once, compared with the job on one.
//   trace     If asked for: the run of the job's own mesh, with each device by itself. Acts are as
//             long as their kernels took, and messages take no time. The trace therefore shows
//             devices beside each other that this machine cannot run at once.
//   wake      A tiny pipeline in real time, compared with the simulator. Its steps are mostly
//             waiting.
//   bytes     If the cluster is for processes: a job that mostly exchanges gradients, in processes
//             and in one process, compared with the simulator. The extra cost of bytes in processes
//             is charged half to the sender and half to the receiver, whose threads copy and check
//             the bytes. The wake is then that of processes.
//
// A job without a loss (Graph::without_loss) is not trained: a step is its model once, on the
// samples of a step. A job for GPUs has its kernels measured on the GPU, and nothing else
// (calibrate_gpu.h).
//
// Nothing else should use the machine meanwhile. Thread rule: one thread, which starts others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/plan/plan.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "tools/train/job_runner.h"

namespace weir::sim {

struct CalibrateOptions {
  std::vector<proto::Job> layouts;  // the job in other layouts, where its kernels have other shapes
  int threads_per_device = 1;
  int64_t steps = 5;  // measured in each layout, after one unmeasured step
  std::string trace;  // where to write a trace of the job's own mesh; empty: none
  std::function<void(const std::string& line)> say;  // reports the present measurement; may be null
  // Returns the time of a step of a two-rank job in two processes of this machine, in nanoseconds,
  // for each of `rounds` rounds of `steps` steps. The steps before the first round are not
  // measured. Null: the cluster is for one process.
  std::function<absl::StatusOr<std::vector<int64_t>>(const proto::Job& job, int threads_per_device,
                                                     int64_t rounds, int64_t steps)>
      in_processes;
};

// Returns the time of a step in each of `rounds` rounds, after one unmeasured round.
absl::StatusOr<std::vector<int64_t>> TimeRounds(train::JobRunner* runner, int64_t rounds,
                                                int64_t steps);

// Compiles the job, in the mode of compiler::ModeOf, and returns the plan of each rank. Errors:
// those of the job.
absl::StatusOr<std::vector<actors::Plan>> PlansOf(const proto::Job& job);

// Errors: those of the job, its data or a layout; W0532 if the trace cannot be written.
absl::StatusOr<proto::Cluster> Calibrate(const proto::Job& job, const CalibrateOptions& options);

}  // namespace weir::sim
