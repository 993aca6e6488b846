// Reads a user's description of machines: a Cluster as protobuf text, checked. Errors say what was
// expected, what was found, where, and what to try: W0700 no such file or no cluster, W0701 an
// unknown or a missing name, W0702 a number out of its range. Thread rule: pure functions, except
// for reading the file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace weir::sim {

absl::StatusOr<proto::Cluster> ReadClusterFile(const std::string& path);
// Parses a text. `name` stands for the path in errors.
absl::StatusOr<proto::Cluster> ParseCluster(const std::string& text, const std::string& name);

// Returns the number of devices of all hosts. Every number of `cluster` is in its range.
int64_t NumDevices(const proto::Cluster& cluster);

// Returns a text that ParseCluster reads, with a heading that says what it is.
std::string ClusterText(const proto::Cluster& cluster);

}  // namespace weir::sim
