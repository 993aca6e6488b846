// Measures this machine into a Cluster: what kernels take, at the shapes of a job and in their
// places between the others; how much cores slow each other down; how long a waiting rank takes to
// wake.
//
//   kernels   the ranks of the job run in virtual time, but with real kernels, one act at a time on
//   one device; of every
//             place in the step the median over steps; of equal kernels in several places the mean
//   busy      the same on all cores at once, each with ranks of its own: what each kernel loses by
//   what cores share cores     the job on k cores at once, against one alone trace     if asked
//   for: that run of the job's own mesh, each device by itself, acts as long as their kernels took,
//             messages without time; so it shows devices beside each other that this machine cannot
//             run at once
//   wake      a tiny pipeline in real time, against what the simulator says of it; its steps are
//   little else than waiting bytes     if the cluster is to be of processes: a job that does little
//   but exchange gradients, in processes and in
//             one, against what the simulator says of it; what bytes cost more in processes is
//             charged half to the sender and half to the receiver, whose threads copy and check
//             them. The wake is then that of processes
//
// Nobody else should use the machine meanwhile. Thread rule: one thread; it starts others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "tools/train/job_runner.h"

namespace weir {

struct CalibrateOptions {
  std::vector<Job> layouts;  // the job in other layouts, where its kernels have other shapes
  int threads_per_device = 1;
  int64_t steps = 5;  // measured of each layout, after one that is not
  std::string trace;  // where to write one of the job's own mesh; empty: none
  std::function<void(const std::string& line)> say;  // what is being measured; may be null
  // What a step of a job of two ranks takes in two processes of this machine, nanoseconds, in each
  // of some rounds of so many steps; what comes before the first round is not measured. Null: the
  // cluster is to be of one process.
  std::function<absl::StatusOr<std::vector<int64_t>>(const Job& job, int threads_per_device,
                                                     int64_t rounds, int64_t steps)>
      in_processes;
};

// What a step takes in each of `rounds`, after one that is not measured.
absl::StatusOr<std::vector<int64_t>> TimeRounds(JobRunner* runner, int64_t rounds, int64_t steps);

// Errors of the job, its data or a layout; W0532 if the trace cannot be written.
absl::StatusOr<Cluster> Calibrate(const Job& job, const CalibrateOptions& options);

}  // namespace weir
