// Puts each call of the model on the stage that pipeline.place names, and finds the graph of the
// stages:
//
//   image.0 image.1 ──┐            stage 0 ──┐
//                     ├── joint               ├── stage 2
//   text.0  text.1  ──┘            stage 1 ──┘
//
// A stage sends to each stage that reads its results. The graph has no circle: a micro-batch never
// comes back to a stage that it has left, so each stage has one part of the pipeline, and the slots
// and precedences of a schedule follow from the longest way to the end
// (ir/pipeline_schedule.h). Not here: the chain of stages that a cut makes (assign_stages.cc).
// Thread rule: pure function.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/pipeline_schedule.h"

namespace weir::compiler {

// Assigns ModelCall::part and stage, and gives `schedule` the graph of the stages. With one stage,
// all calls lie there. Errors name the place or the calls: an unknown name (W0453), a stage that
// the mesh lacks (W0454), a stage without calls (W0455), and stages in a circle (W0456).
absl::Status PlaceCalls(const std::vector<PipelineSettings::Place>& places,
                        PipelineSchedule* schedule, Module* module);

}  // namespace weir::compiler
