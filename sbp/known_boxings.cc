#include "sbp/known_boxings.h"

#include <utility>

#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::sbp {

absl::StatusOr<const Boxing*> KnownBoxings::Of(const TensorType& type, const Placement& from,
                                               const Placement& to, const Places& places) {
  uint64_t key = MixKey(static_cast<uint64_t>(from.place), static_cast<uint64_t>(to.place));
  for (const TensorDim& dim : type.dims) key = MixKey(key, static_cast<uint64_t>(dim.size));
  std::vector<Known>& alike = known_[key];
  for (const Known& known : alike) {
    if (known.from == from && known.to == to && known.type == type) return known.boxing.get();
  }
  WEIR_ASSIGN_OR_RETURN(Boxing boxing, PlanBoxingOverHosts(type, from, to, places));
  alike.push_back({type, from, to, std::make_unique<const Boxing>(std::move(boxing))});
  return alike.back().boxing.get();
}

}  // namespace weir::sbp
