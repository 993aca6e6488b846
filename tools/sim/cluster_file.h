// Reads what a user wrote about machines: a Cluster as protobuf text, checked. Errors say what was
// expected, what was found, where and what to try: W0700 no such file or no cluster, W0701 a name
// that nothing has or that is missing, W0702 a number out of its range. Thread rule: pure
// functions, but for reading the file.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace weir {

absl::StatusOr<Cluster> ReadClusterFile(const std::string& path);
// The same for text; `name` stands for the path in errors.
absl::StatusOr<Cluster> ParseCluster(const std::string& text, const std::string& name);

// Text that ParseCluster reads, with a head that says what it is.
std::string ClusterText(const Cluster& cluster);

}  // namespace weir
