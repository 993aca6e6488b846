// The compiler's front door. CompileJob turns a job into a logical plan, and LowerForRank turns a
// logical plan into the plan of one rank. Neither needs a device. The logical plan does not grow
// with the number of ranks, and LowerForRank is a pure function of (logical plan, rank).
// Errors: kInvalidArgument (the job is rejected) with codes W03xx and W04xx.
// Thread rule: pure functions; LogicalPlan is immutable once made.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "compiler/ir.h"
#include "compiler/lower/stage_shape.h"
#include "compiler/pass.h"
#include "compiler/pipeline_schedule.h"
#include "compiler/rhythm/job_rhythm.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "runtime/base/update_rate.h"

namespace weir::compiler {

enum class PlanMode : uint8_t {
  kTrain,     // forward, backward, update
  kEvaluate,  // forward; scalar outputs of the model are metrics
  kGenerate,  // forward up to the logits, which stay in state "fetch/logits"
};

struct CompileOptions {
  PlanMode mode = PlanMode::kTrain;
  std::string dump_after;           // regular expression over pass names; "" = none
  std::set<std::string> disabled;   // passes not to run
  std::ostream* dump_to = nullptr;  // where dumps go; nullptr: stderr
  // The costs of the machines that will run the plan. Times and register counts follow from these
  // costs. Null: PeakCosts. All ranks of a job must be compiled with equal costs, because the
  // plan's id does not depend on the costs.
  const CostModel* costs = nullptr;
};

struct LogicalPlan {
  Job job;
  PlanMode mode = PlanMode::kTrain;
  Mesh mesh;
  Mesh stage_mesh;
  int64_t micro_batches = 1;
  UpdateRate updates;  // kTrain
  int64_t chunk_bytes_max = 1 << 20;
  PipelineSchedule schedule;
  // The bubble of a training step by the costs that the plan was made with. 0 with one stage.
  double predicted_bubble = 0;
  std::string plan_id;  // hash of the compiled job
  Module module;
  std::vector<StageShape> stages;  // the combined work of the ranks of each stage
  JobRhythm rhythm;                // when every station acts
  std::vector<PassTiming> timings;
};

absl::StatusOr<std::unique_ptr<LogicalPlan>> CompileJob(const Job& job,
                                                        const CompileOptions& options);

absl::StatusOr<RankPlan> LowerForRank(const LogicalPlan& plan, int64_t rank);

// Returns how often something of rate `rate` happens in Training::update_every steps.
int64_t TimesPerUpdate(const LogicalPlan& plan, Rate rate);

// Returns the bytes that all boxings of one step send over all links, by the closed form of
// sbp/boxing.h. If only some steps update, the result is the mean over the steps of an update.
absl::StatusOr<int64_t> BytesPerStep(const LogicalPlan& plan);

}  // namespace weir::compiler

namespace weir {
using compiler::BytesPerStep;
using compiler::CompileJob;
using compiler::CompileOptions;
using compiler::LogicalPlan;
using compiler::LowerForRank;
using compiler::PlanMode;
}  // namespace weir
