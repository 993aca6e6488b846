// The times of kernels on a device of a cluster file. A time is looked up, interpolated, or
// computed from peaks:
//
//   exact     a row of the same op, dtype and shapes
//   between   rows of the op and dtype, over flops (bytes if an op has none), straight in
//   logarithms beyond    the nearest row, in proportion no row    the longer of flops over the peak
//   and bytes over the bandwidth, and kernel_ns
//
// Thread rule: immutable once made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/plan/plan.h"
#include "proto/cluster.pb.h"

namespace weir::sim {

// The key of a kernel in a cluster file, and the amount of its work. `chunks` acts share the work.
struct KernelWork {
  std::string op;
  std::string dtype;
  std::string shapes;
  double flops = 0;
  double bytes = 0;
};
KernelWork WorkOf(const actors::PlanCall& call, int64_t chunks);
// Returns the work of an actor that has no program: feed, report, copy.
KernelWork WorkOf(const actors::Plan& plan, const actors::PlanActor& actor);

class DeviceCosts {
 public:
  explicit DeviceCosts(proto::DeviceModel model);

  const proto::DeviceModel& model() const { return model_; }
  // kInvalidArgument (W0703): an op has neither rows nor a peak.
  absl::StatusOr<double> KernelNs(const KernelWork& work) const;
  // Returns the kernel's time with all cores of the host busy over its time alone. The ratio comes
  // from the kernel's row, or else from all rows of the op and dtype; 0 if no row has it.
  double BusyRatio(const KernelWork& work) const;
  // Returns whether a row of exactly this op, dtype and shapes gives the time.
  bool HasRow(const KernelWork& work) const { return RowOf(work) != nullptr; }
  // Returns the peak for operands of this type; 0 if the file has none.
  double PeakFlops(const std::string& dtype) const;

 private:
  struct Point {
    double work;
    double ns;
  };
  using OpKey = std::pair<std::string, std::string>;  // op, dtype
  struct Row {
    double ns;
    double busy_ns;  // 0: not said
  };
  const Row* RowOf(const KernelWork& work) const;

  proto::DeviceModel model_;
  std::map<OpKey, std::map<std::string, Row>> exact_;  // by shapes
  std::map<OpKey, std::vector<Point>> points_;         // by work
  std::map<OpKey, Row> sums_;                          // sums over the rows that have busy_ns
};

}  // namespace weir::sim
