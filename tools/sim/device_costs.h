// What kernels take on a device of a cluster file: looked up, interpolated, or from peaks.
//
//   exact     a row of the same op, dtype and shapes
//   between   rows of the op and dtype, over flops (bytes where an op has none), straight in
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
#include "actors/plan.h"
#include "proto/cluster.pb.h"

namespace weir {

// How a kernel is called in a cluster file, and how much it does. `chunks`: acts that share its
// work.
struct KernelWork {
  std::string op;
  std::string dtype;
  std::string shapes;
  double flops = 0;
  double bytes = 0;
};
KernelWork WorkOf(const PlanCall& call, int64_t chunks);
// The same of an actor that has no program: feed, report, copy.
KernelWork WorkOf(const Plan& plan, const PlanActor& actor);

class DeviceCosts {
 public:
  explicit DeviceCosts(DeviceModel model);

  const DeviceModel& model() const { return model_; }
  // kInvalidArgument (W0703) if an op has neither rows nor a peak.
  absl::StatusOr<double> KernelNs(const KernelWork& work) const;
  // Its time with all cores of the host busy over its time alone: of the row, else of all rows of
  // the op and dtype; 0 if none says.
  double BusyRatio(const KernelWork& work) const;
  // Whether a row of just this op, dtype and shapes says what it takes.
  bool HasRow(const KernelWork& work) const { return RowOf(work) != nullptr; }
  // Of operands of this type; 0 if the file does not say.
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

  DeviceModel model_;
  std::map<OpKey, std::map<std::string, Row>> exact_;  // by shapes
  std::map<OpKey, std::vector<Point>> points_;         // by work
  std::map<OpKey, Row> sums_;                          // of the rows that say busy_ns
};

}  // namespace weir
