// The pass build-program turns the compiled functions of the model into the program of a step:
//
//   source -> forward calls -> backward calls -> gradients accumulated and boxed
//          -> global norm -> update -> the weights of the next step
//
// This pass decides stages, ZeRO, accumulation and mixed precision, and it expresses each decision
// only by the place of boxings, casts and accumulations:
//
//   ZeRO  gradient of a micro-batch   boxed to the update layout   weights boxed to compute
//   0     P, accumulated              once an update, P->B         never
//   1     P, accumulated              once an update, P->S         once an update, S->B
//   2     boxed at once, P->S         accumulated as S             once an update, S->B
//   3     boxed at once, P->S         accumulated as S             every use, S->B
//
// A job makes an update every Training::update_every steps. A delay of gradients is a delay of the
// values that norm and update read.
//
// Thread rule: pure function.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/layout_rules.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Fills values, items and variables of `plan->module`. Expects laid-out functions. `rules`, those
// of the job, explain the boxings. Leaves a program that exists as it is.
absl::Status BuildProgram(const LayoutRules& rules, LogicalPlan* plan);

}  // namespace weir::compiler
