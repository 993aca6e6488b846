// Divides the model into the parts of the pipeline and puts each part on a stage.
// Thread rule: pure function.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/layout_rules.h"
#include "compiler/ir/pipeline_schedule.h"

namespace weir::compiler {

// Assigns ModelCall::part and stage. The parts follow pipeline.cut, or balance the floating-point
// operations if the job gives no cut. If stages have unequal meshes, the operations of one device
// of the part's stage count: all operations of a node, divided by the devices of each axis along
// which a rule splits a dimension of the node.
absl::Status AssignStages(const std::vector<std::string>& cut, const LayoutRules& rules,
                          const PipelineSchedule& schedule, Module* module);

// Assigns the calls as the settings say: by cuts or by places (place_calls.h). Places give
// `schedule` the graph of the stages.
absl::Status AssignStages(const PipelineSettings& pipeline, const LayoutRules& rules,
                          PipelineSchedule* schedule, Module* module);

// If some layout rules are for some stages only, gives each function that is called on stages with
// different rules a copy for each of them, since a function is laid out once.
void GiveStagesTheirFunctions(const LayoutRules& rules, Module* module);

// Returns the calls of the model, each with its part and stage, as stable text.
std::string CallsText(const Module& module);

}  // namespace weir::compiler
