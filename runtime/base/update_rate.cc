#include "runtime/base/update_rate.h"

namespace weir {

UpdateRate UpdateRate::FromAttributes(const Attributes& attributes) {
  UpdateRate rate;
  rate.every = attributes.Int("update_every", rate.every);
  rate.phase = attributes.Int("update_phase", rate.phase);
  rate.delay = attributes.Int("gradient_delay", rate.delay);
  return rate;
}

void UpdateRate::ToAttributes(Attributes* attributes) const {
  if (every != 1) attributes->Set("update_every", every);
  if (phase != 0) attributes->Set("update_phase", phase);
  if (delay != 0) attributes->Set("gradient_delay", delay);
}

}  // namespace weir
