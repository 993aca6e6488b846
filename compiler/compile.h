// The compiler's front door. CompileJob turns a job into a logical plan, and LowerForRank turns a
// logical plan into the plan of one rank. Neither needs a device. The logical plan does not grow
// with the number of ranks, and LowerForRank is a pure function of (logical plan, rank).
// Errors: kInvalidArgument (the job is rejected) with codes W03xx and W04xx.
// Thread rule: pure functions; LogicalPlan is immutable once made.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/pass_progress.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace weir::compiler {

// The most devices of a mesh. A rank that takes part in an exchange with all other ranks has a
// transfer for each of them.
inline constexpr int64_t kDevicesMax = 16384;

// KeptModules has modules as the passes before layouts leave them, so that a search need not import
// and differentiate one graph for each of its jobs: jobs that differ in rules alone share a module,
// except where rules or meshes are for some stages only. Thread rule: one thread.
class KeptModules {
 public:
  struct Kept {
    Module imported;  // as the first pass leaves it
    Module without_layouts;
    PipelineSchedule schedule;
  };
  // Returns the modules of the job with any rules; null: none are kept.
  const Kept* Find(const proto::Job& job, PlanMode mode) const;
  void Keep(const proto::Job& job, PlanMode mode, Kept modules);

 private:
  std::map<std::string, Kept> kept_;  // by the bytes of the job without its rules
};

struct CompileOptions {
  PlanMode mode = PlanMode::kTrain;
  // True: the compilation ends with the program of a step (the pass bundle-boxings), which takes a
  // small part of the time. Such a plan can be looked at, but not lowered. The plan has no id, and
  // the module is not verified after each pass.
  bool program_only = false;
  std::string dump_after;           // regular expression over pass names; "" = none
  std::set<std::string> disabled;   // passes not to run
  std::ostream* dump_to = nullptr;  // where dumps go; nullptr: stderr
  // For tests: as PassPipelineOptions says (compiler/passes/pass.h).
  std::function<std::string(const Module&)> text_for_second_run = nullptr;
  // The costs of the machines that will run the plan. Times and register counts follow from these
  // costs. Null: PeakCosts. All ranks of a job must be compiled with equal costs, because the
  // plan's id does not depend on the costs.
  const CostModel* costs = nullptr;
  // The rhythm that another compilation of the same job has solved with the same costs. Null: this
  // compilation solves the rhythm, which takes most of its time. A rhythm of another job cannot do
  // harm: LowerForRank proves the plan of each rank with it, and fails.
  const JobRhythm* rhythm = nullptr;
  // The compilation takes its module from here, or keeps the module here for others. The plan is
  // the same. Null: nothing is kept.
  KeptModules* kept = nullptr;
  // CompileJob calls `on_pass` before each pass, on the thread of the compilation. Null: nobody is
  // told.
  std::function<void(const PassProgress&)> on_pass = nullptr;
};

absl::StatusOr<std::unique_ptr<LogicalPlan>> CompileJob(const proto::Job& job,
                                                        const CompileOptions& options);

// Returns the plan of a rank. `rank` is a number as people and messages have it. kInvalidArgument:
// the job has no such rank.
absl::StatusOr<proto::RankPlan> LowerForRank(const LogicalPlan& plan, RankId rank);

// The memory of the first rank of a stage.
struct FirstRank {
  // The plan of that rank, or else that of the first rank of an earlier stage that does equal work.
  // The two plans differ in names, ranks, times and slots, and in where their registers lie.
  std::shared_ptr<const proto::RankPlan> plan;
  int64_t plan_stage = 0;   // whose first rank has `plan`
  int64_t arena_bytes = 0;  // of this stage's rank
  // By name of a weight in `plan`: the weight of this stage in its place.
  std::map<std::string, std::string> weights;
};

// Returns the first ranks of all stages, by stage. One plan is made for stages of equal work, which
// takes far less time than all plans. Errors: those of LowerForRank.
absl::StatusOr<std::vector<FirstRank>> LowerFirstRanks(const LogicalPlan& plan);

}  // namespace weir::compiler
