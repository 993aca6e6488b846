// The passes of the compiler, in the order in which compile.cc runs them. Each pass is one file
// with the name of the pass, and each pass keeps the module verifiable. A second run of a pass
// changes nothing.
// Thread rule: pure functions of (context, module).
#pragma once

#include "compiler/passes/pass.h"

namespace weir::compiler {

// apply-precision: with bf16 or f16, parameters and activations of model functions become so
// (weights at rest stay f32), and the pass infers types again. A node with a precision of its own
// (Node::precision) gets operands of that precision: a value that crosses a border is cast once for
// all its readers in a function. A parameter that any node reads in f32 arrives in f32. An op whose
// kernel has f32 results for bf16 operands (the loss of each row, a sum that is reported) keeps
// them. Error: W0862.
absl::Status ApplyPrecision(const PassContext& context, Module* module);

// compute-ahead: if a step has several micro-batches, a step_mean becomes an argument of its
// function, which a new function "<name>.ahead" computes from data once a step. Error: W0452.
absl::Status ComputeAhead(const PassContext& context, Module* module);

// expand-cross-entropy: if a rule splits the vocabulary, softmax_cross_entropy becomes reduce_max,
// exp_sum_pick and cross_entropy_finish, which need no whole rows of logits.
absl::Status ExpandCrossEntropy(const PassContext& context, Module* module);

// differentiate: adds a function "<name>.backward" for every model function on the way from a
// parameter to the loss, and the stashes that the backward function reads. A graph transform over
// single functions.
absl::Status Differentiate(const PassContext& context, Module* module);

// remove-dead-nodes: removes nodes that no result depends on, and optional outputs without readers.
absl::Status RemoveDeadNodes(const PassContext& context, Module* module);

// split-backward: moves the nodes of a backward function that only gradients of parameters need to
// a new function "<name>.weight_gradient", which may run later. Expects layouts.
absl::Status SplitBackward(const PassContext& context, Module* module);

// propagate-layouts: gives every value a layout, from the rules and through the factors of each op,
// and notes why. Inserts the op "boxing" wherever a node wants an operand in another layout.
absl::Status PropagateLayouts(const PassContext& context, Module* module);

// recompute-values: if a function lists the values to keep, its backward function recomputes the
// other values that it reads. A recomputed value uses the nodes (boxings included), layouts and
// random keys of the forward function and so has the same bits. Each recomputed node stands just
// before its first reader. A value that is no longer read is no longer kept.
absl::Status RecomputeValues(const PassContext& context, Module* module);

}  // namespace weir::compiler
