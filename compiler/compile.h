// The compiler's front door: a job in, a logical plan out, and from that the plan
// of any one rank. Needs no device. The logical plan does not grow with the number of ranks,
// and LowerForRank is a pure function of (logical plan, rank).
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
  kGenerate,  // forward up to the logits, which are left in state "fetch/logits"
};

struct CompileOptions {
  PlanMode mode = PlanMode::kTrain;
  std::string dump_after;           // regular expression over pass names; "" = none
  std::set<std::string> disabled;   // passes not to run
  std::ostream* dump_to = nullptr;  // where dumps go; nullptr: stderr
  // Of the machines that will run the plan, for times and register counts; null: PeakCosts. Ranks
  // of one job must be compiled with equal costs: the plan's id does not tell them apart.
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
  double predicted_bubble =
      0;  // of a training step, by the costs that it is planned with; 0 with one stage
  std::string plan_id;  // hash of what was compiled
  Module module;
  std::vector<StageShape> stages;  // what the ranks of each do, taken together
  JobRhythm rhythm;                // when every station acts
  std::vector<PassTiming> timings;
};

absl::StatusOr<std::unique_ptr<LogicalPlan>> CompileJob(const Job& job,
                                                        const CompileOptions& options);

absl::StatusOr<RankPlan> LowerForRank(const LogicalPlan& plan, int64_t rank);

// How often something of rate `rate` happens in Training::update_every steps.
int64_t TimesPerUpdate(const LogicalPlan& plan, Rate rate);

// What all boxings of one step send over all links, by the closed form of sbp/boxing.h; where not
// all steps update, the mean over those of an update.
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
