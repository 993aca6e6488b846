// Estimates the time of a step, and the memory of a device, of a job that was compiled up to its
// program. Each function of the model counts once, with the number of its calls on each stage as a
// weight, so a model of a hundred layers takes as long as one of a single layer. The times of
// kernels and messages are those of the cost model; what can hide behind what is a rough rule
// (step_estimate.cc). `weir sim` plays the whole plan; a test holds the order of these estimates to
// the order of its answers.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/cost/boxing_cost.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// The calls of a whole model, on its stages.
struct ModelShape {
  std::vector<std::map<std::string, double>> calls;  // by stage, by name of the function
  PipelineSchedule schedule;
  double CallsOf(const std::string& function) const;  // on all stages
};

struct StepEstimate {
  double step_ns = 0;
  // The bytes of the fullest device, with an evaluation beside the training, and without the
  // workspace of kernels, which the compiler does not know. A plan of the whole job tells more.
  double device_bytes = 0;
  // Parts of step_ns, of the stage that takes longest: what the device computes, and the time that
  // boxings in the passes, gradients and weights add to that. The rest is the pipeline's bubble.
  double compute_ns = 0;
  double boxing_ns = 0;
  double gradients_ns = 0;
  double weights_ns = 0;
  double bubble_ns = 0;
  double sent_bytes = 0;  // by one device of that stage
  // False if an axis of the mesh splits no tensor: the job is then refused (W0920).
  bool uses_mesh = true;
};

// `plan` is the plan of a job whose mesh has no pipeline and which calls each function of the model
// at least once; `shape` has the calls of the model, whose places `boxings` knows. Of the plan, the
// rhythm may be missing.
StepEstimate EstimateStep(const LogicalPlan& plan, const ModelShape& shape, const CostModel& costs,
                          BoxingCosts* boxings);

// Returns the time of a call of each function, by name, in a micro-batch: forward and backward.
std::map<std::string, double> CallTimes(const LogicalPlan& plan, const CostModel& costs,
                                        BoxingCosts* boxings);

}  // namespace weir::compiler
