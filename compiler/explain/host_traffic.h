// Counts the bytes that a step would send between hosts if the ranks lay over hosts in other ways.
// Layouts do not depend on hosts, so one plan tells all of them. Thread rule: values.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "sbp/boxing.h"

namespace weir::compiler {

class HostTraffic {
 public:
  // Collects the boxings of a step. The plan needs no rhythm.
  explicit HostTraffic(const LogicalPlan& plan);

  // Returns the bytes that a step sends from host to host, over all links, with the stages at
  // `places`: a closed form, whose time does not grow with the number of ranks
  // (sbp::BytesBetweenHosts). If only some steps update, the result is the mean over the steps of
  // an update. Preconditions: the places differ from those of the plan only in the numbers of ranks
  // and in hosts, and hosts cut them evenly (sbp::Places::host_cut). Errors: those of
  // sbp::PlanBoxing.
  absl::StatusOr<double> BytesBetweenHosts(const sbp::Places& places) const;

 private:
  // Boxings of tensors of one type between the same layouts.
  struct Boxings {
    sbp::TensorType type;
    sbp::Layout from, to;
    int64_t within_stages = 0;  // how many stay at their stage, in the steps of an update
    std::vector<std::pair<int64_t, int64_t>> stages;  // of the others
    std::vector<int64_t> times;                       // of each pair of stages
  };

  Boxings* Find(const sbp::TensorType& type, const sbp::Layout& from, const sbp::Layout& to);

  std::vector<Boxings> boxings_;
  int64_t steps_per_update_ = 1;
};

}  // namespace weir::compiler
