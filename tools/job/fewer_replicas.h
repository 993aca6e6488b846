// Makes a job smaller that has lost devices: fewer replicas of its data parallelism, and as many
// more micro-batches, so that the batch of a step and the samples of a micro-batch on a device
// stay. Starts nothing.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/job.pb.h"

namespace weir::job {

inline constexpr char kReplicaAxis[] = "dp";

// Returns whether the job has more than one replica: an axis kReplicaAxis of more than one device.
bool HasReplicas(const proto::Job& job);

struct FewerReplicas {
  proto::Job job;
  int64_t devices = 0;  // of its mesh
};
// Returns the job with the most replicas that fit `devices`, a divisor of those that it has.
// nullopt: the job has no such axis, or not even one replica fits, or it would have fewer than
// `devices_min`. The sizes of the mesh are as the compiler accepts them, and its stages have no
// meshes of their own.
std::optional<FewerReplicas> WithFewerReplicas(const proto::Job& job, int64_t devices,
                                               int64_t devices_min);
// Returns "dp=1 instead of dp=2, and 2 micro-batches instead of 1", for people: a job has run as
// `before`, and goes on as `smaller`.
std::string FewerReplicasText(const proto::Job& before, const proto::Job& smaller);

}  // namespace weir::job
