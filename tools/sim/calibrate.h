// Measures this machine into a Cluster: what kernels take, at the shapes of a job and in their places between the others;
// how much cores slow each other down; how long a waiting rank takes to wake.
//
//   kernels   the ranks of the job run in virtual time, but with real kernels, one act at a time on one device; of every
//             place in the step the median over steps; of equal kernels in several places the mean
//   busy      the same on all cores at once, each with ranks of its own: what each kernel loses by what cores share
//   cores     the job on k cores at once, against one alone
//   trace     if asked for: that run of the job's own mesh, each device by itself, acts as long as their kernels took,
//             messages without time; so it shows devices beside each other that this machine cannot run at once
//   wake      a tiny pipeline in real time, against what the simulator says of it; its steps are little else than waiting
//
// Nobody else should use the machine meanwhile. Thread rule: one thread; it starts others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"

namespace weir {

struct CalibrateOptions {
  std::vector<Job> layouts;         // the job in other layouts, where its kernels have other shapes
  int threads_per_device = 1;
  int64_t steps = 5;                // measured of each layout, after one that is not
  std::string trace;                // where to write one of the job's own mesh; empty: none
  std::function<void(const std::string& line)> say;  // what is being measured; may be null
};

// Errors of the job, its data or a layout; W0532 if the trace cannot be written.
absl::StatusOr<Cluster> Calibrate(const Job& job, const CalibrateOptions& options);

}  // namespace weir
