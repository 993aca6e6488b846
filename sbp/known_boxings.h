// The boxings of a job, each planned once. The layers of a model are alike, so most boxings of a
// program move a tensor of the same type from the same layout to the same layout.
// Thread rule: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sbp/boxing_over_hosts.h"

namespace weir::sbp {

class KnownBoxings {
 public:
  // Returns what PlanBoxingOverHosts returns. The places of all calls are those of one job. The
  // boxing lives as long as this object. Errors are not kept: a second call returns the same error.
  absl::StatusOr<const Boxing*> Of(const TensorType& type, const Placement& from,
                                   const Placement& to, const Places& places);

 private:
  struct Known {
    TensorType type;
    Placement from, to;
    std::unique_ptr<const Boxing> boxing;
  };
  absl::flat_hash_map<uint64_t, std::vector<Known>> known_;  // by sizes and places
};

}  // namespace weir::sbp
