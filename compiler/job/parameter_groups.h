// Puts the weights of a model into the groups of a training, by their names.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/job_settings.h"

namespace weir::compiler {

// Sets the group of each weight by patterns in which `*` stands for any characters and `?` for one,
// and freezes the weights of groups that are frozen. Refuses a pattern that no weight fits (W0082).
absl::Status ApplyGroups(const std::vector<GroupSettings>& groups, Module* module);

}  // namespace weir::compiler
