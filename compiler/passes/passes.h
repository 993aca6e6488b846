// The passes of the compiler, in the order pipeline.cc runs them. Each is one file
// named like its pass; each keeps the module verifiable.
// Thread rule: pure functions of (context, module).
#pragma once

#include "compiler/pass.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// apply-precision: with bf16, parameters and activations of model functions become bf16 (weights at
// rest stay f32) and types are inferred again.
absl::Status ApplyPrecision(const PassContext& context, Module* module);

// expand-cross-entropy: where a rule splits the vocabulary, softmax_cross_entropy becomes
// reduce_max, exp_sum_pick and cross_entropy_finish, which need no whole rows of logits.
absl::Status ExpandCrossEntropy(const PassContext& context, Module* module);

// differentiate: for every model function on the way from a parameter to the loss, a
// function "<name>.backward" and the stashes it reads. A graph transform over single functions.
absl::Status Differentiate(const PassContext& context, Module* module);

// remove-dead-nodes: drops nodes no result depends on, and optional outputs nobody reads.
absl::Status RemoveDeadNodes(const PassContext& context, Module* module);

// split-backward: the nodes of a backward function that only gradients of parameters need move to a
// function
// "<name>.weight_gradient" of their own, which may run later. Expects layouts.
absl::Status SplitBackward(const PassContext& context, Module* module);

// propagate-layouts: a layout for every value, from the rules through the factors of each op; notes
// why. Inserts the op "boxing" wherever a node wants an operand in another layout.
absl::Status PropagateLayouts(const PassContext& context, Module* module);

// recompute-values: where a function says what to keep, its backward function computes the other
// values that it reads again, by the nodes (boxings included), layouts and random keys of the
// forward function, so with the same bits; each stands just before its first reader. What is no
// longer read is no longer kept.
absl::Status RecomputeValues(const PassContext& context, Module* module);

}  // namespace weir::compiler
