// Divides the model into the parts of the pipeline and puts each part on a stage.
// Thread rule: pure function.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/pipeline_schedule.h"

namespace weir::compiler {

// Assigns ModelCall::part and stage. The parts follow pipeline.cut, or balance the floating-point
// operations if the job gives no cut.
absl::Status AssignStages(const std::vector<std::string>& cut, const PipelineSchedule& schedule,
                          Module* module);

// Returns the calls of the model, each with its part and stage, as stable text.
std::string CallsText(const Module& module);

}  // namespace weir::compiler
