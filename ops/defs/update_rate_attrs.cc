#include "ops/defs/update_rate_attrs.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/update_rate.h"

namespace weir::ops {

void AddUpdateRate(std::vector<AttrSchema>* attrs) {
  attrs->push_back(
      {"update_every", AttrKind::kInt, int64_t{1}, "steps from one update to the next"});
  attrs->push_back({"update_phase", AttrKind::kInt, int64_t{0},
                    "steps n with n % update_every == update_phase update"});
  attrs->push_back({"gradient_delay", AttrKind::kInt, int64_t{0},
                    "updates by which gradients lag: so many at first do nothing"});
}

absl::Status CheckUpdateRate(const InferInput& in) {
  const UpdateRate rate = UpdateRate::FromAttributes(in.attrs);
  if (rate.every >= 1 && rate.phase >= 0 && rate.phase < rate.every && rate.delay >= 0)
    return absl::OkStatus();
  return Rejected(
      {"W0310", "",
       "update_every of at least 1, update_phase below it, gradient_delay of at least 0",
       absl::StrCat(rate.every, ", ", rate.phase, " and ", rate.delay),
       "update_every: 1, update_phase: 0, gradient_delay: 0"});
}

}  // namespace weir::ops
