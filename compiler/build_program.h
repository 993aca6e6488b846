// build-program: from the compiled functions of the model to the program of a step:
//
//   source -> forward calls -> backward calls -> gradients accumulated and boxed
//          -> global norm -> update -> the weights of the next step
//
// Stages, ZeRO, accumulation and mixed precision are decided here, and only by where
// boxings, casts and accumulations stand:
//
//   ZeRO  gradient of a micro-batch   boxed to the update layout   weights boxed to compute
//   0     P, accumulated              once an update, P->B         never
//   1     P, accumulated              once an update, P->S         once an update, S->B
//   2     boxed at once, P->S         accumulated as S             once an update, S->B
//   3     boxed at once, P->S         accumulated as S             every use, S->B
//
// An update is made every Training::update_every steps; a delay of gradients is a delay of the
// values that norm and update read.
//
// Thread rule: pure function.
#pragma once

#include "absl/status/status.h"
#include "compiler/compile.h"

namespace weir::compiler {

// Fills values, items and variables of `plan->module`. Expects laid-out functions.
absl::Status BuildProgram(LogicalPlan* plan);

// Assigns ModelCall::part and stage: by pipeline.cut, or parts balanced by floating-point
// operations.
absl::Status AssignStages(const Job& job, const PipelineSchedule& schedule, Module* module);

}  // namespace weir::compiler
