// The lines that tell people when a run updates its weights, if that is not after each step.
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/update_rate.h"

namespace weir::train {

// `steps`: of the run, with the steps before a resume.
std::vector<std::string> UpdateLines(const UpdateRate& updates, int64_t steps);

}  // namespace weir::train
