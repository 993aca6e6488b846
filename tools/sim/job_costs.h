// Whose costs a job is predicted with. `weir plan` and `weir sim` both ask here, so for one command
// line they have the same costs and can say whose:
//
//   --cluster PATH       those of that file
//   --cluster defaults   the defaults, whatever is kept
//   no --cluster         those that `weir calibrate --keep` measured on this machine, if it did;
//   else the defaults
//
// The defaults are a core of a present-day server (compiler::DevicePeaks), as many hosts of eight
// as the job needs. Not here: `weir train`, which plans with the compiler's defaults; the bits of
// the result are the same with any. Thread rule: immutable once made, but for reading files and the
// environment.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "proto/cluster.pb.h"

namespace weir {

inline constexpr char kDefaultCosts[] = "defaults";  // as --cluster

class JobCosts {
 public:
  enum class Source : uint8_t { kDefaults, kFile, kKept };

  // `cluster` as --cluster has it; empty: none was given. Errors: those of the file (W0700 to
  // W0702).
  static absl::StatusOr<JobCosts> Choose(const std::string& cluster);
  // The built-in defaults.
  static JobCosts Defaults();
  // Those of a cluster that was read already, called by its name; without devices: the defaults.
  static JobCosts Of(const Cluster& cluster);

  Source source() const { return source_; }
  // The cluster to simulate `ranks` ranks on.
  Cluster ClusterFor(int64_t ranks) const;
  // The cluster as it is in its file; without devices for the defaults.
  const Cluster& cluster() const { return cluster_; }
  // The costs with which the compiler plans. They live as long as any copy of this object.
  const compiler::CostModel& model() const { return *model_; }
  // "the costs of here.textproto", "the default costs: those of a server's core, not of this
  // machine".
  std::string Text() const;

 private:
  Source source_ = Source::kDefaults;
  std::string path_;
  Cluster cluster_;
  std::shared_ptr<const compiler::CostModel> model_;
};

// Where `weir calibrate --keep` writes the costs of this machine and the other verbs look for them:
// $WEIR_CLUSTER, else weir/here.textproto in $XDG_CONFIG_HOME or in ~/.config. Empty if none of
// these is set.
std::string KeptClusterPath();

}  // namespace weir
