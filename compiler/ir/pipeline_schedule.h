// A pipeline schedule has three parts. The cut divides the model into parts and puts each part on a
// stage. Register slots limit the number of micro-batches for which a value may wait between the
// act that makes the value and the act that reads it last. Priority and precedence choose among
// acts that are ready. No component plays the schedule: actors do what tokens, slots and
// precedences allow, and the schedule results from that.
//
//   kind          parts a stage   kept from forward to backward             order of ready acts
//   ONE_F_ONE_B   1               stages - s                                forward, backward
//   GPIPE         1               all; the first backward act of the last   forward, backward
//                                 stage waits for its last forward act
//   INTERLEAVED   v               what the order of acts holds              PrecedenceOf
//   ZERO_BUBBLE   1               min(stages, 2 (stages - s) - 1); until    PrecedenceOf; weight
//                                 the weight gradients are done: stages     gradients last
//
// Part i lies on stage i % stages. The table is for a chain of stages. If a job places its calls
// (passes/place_calls.h), the stages form a graph: a stage sends to several stages, and several
// send to it. Then each stage has one part, and a stage counts by the longest way from it to a
// stage that sends nothing on: with n stages after it on that way, a stage has the slots and the
// precedences of the stage that has n stages after it in a chain.
//
// Not here: the work of a part, the cut (assign_stages.cc), the split of backward functions
// (split_backward.cc). Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/job_settings.h"
#include "runtime/base/rate.h"

namespace weir::compiler {

// The work that a part does for a micro-batch.
enum class PipelinePass : uint8_t { kForward, kBackward, kWeightGradient };

struct PipelineSchedule {
  // One stage needs no schedule: `kind` is then ONE_F_ONE_B, whatever the job says.
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int64_t num_stages = 1;
  int64_t virtual_stages = 1;  // parts per stage
  int64_t micro_batches = 1;
  // in_flight[p] is the number of micro-batches of part p that are between the start of their
  // forward pass and the end of their backward pass.
  std::vector<int64_t> in_flight;
  // Only if the job places its calls. By stage: the stages whose results it reads, ascending, and
  // the number of stages after it on the longest way.
  std::vector<std::vector<int64_t>> stages_before;
  std::vector<int64_t> stages_after;

  bool is_placed() const { return !stages_after.empty(); }
  // Returns whether the parts pass a micro-batch on one after the other, each to the next.
  bool is_chain() const { return stages_in_a_row() == num_stages; }
  // Returns the number of stages on the longest way of a micro-batch.
  int64_t stages_in_a_row() const;
  // Returns the number of stages after stage `s` on the longest way.
  int64_t StagesAfter(int64_t s) const {
    return is_placed() ? stages_after[s] : num_stages - s - 1;
  }
  // Returns whether a stage reads results of other stages.
  bool ReadsStages(int64_t s) const { return is_placed() ? !stages_before[s].empty() : s > 0; }
  // Return the parts whose results a part reads, and the parts that read its results.
  std::vector<int64_t> PartsBefore(int64_t part) const;
  std::vector<int64_t> PartsAfter(int64_t part) const;

  int64_t num_parts() const { return num_stages * virtual_stages; }
  int64_t StageOf(int64_t part) const { return part % num_stages; }
  bool splits_backward() const { return kind == ScheduleKind::kZeroBubble; }
  // Returns whether backward passes wait until all forward passes are done.
  bool gates_backward() const { return kind == ScheduleKind::kGpipe; }

  // Returns how many micro-batches of a value exist at once. Pass `made` of one part makes the
  // value, and pass `read` of another part of the same stage reads it last.
  int64_t Kept(PipelinePass made, int64_t made_part, PipelinePass read, int64_t read_part) const;

  // Returns which acts of a part go first among acts of equal priority.
  Precedence PrecedenceOf(PipelinePass pass, int64_t part) const;
  // Says whether an act begins a part's pass over a micro-batch or continues the pass.
  enum class Begin : uint8_t { kBegins, kGoesOn };
  int PriorityOf(PipelinePass pass, Begin begin) const;

  // Returns the share of a step, between the first forward and the last backward act, during which
  // stages are idle. The formula assumes that all parts cost the same and that transfers cost
  // nothing. There is no formula unless the stages are a chain (is_chain).
  // `backward` and `weight_gradient` are multiples of the time of a forward act. The
  // result is exact for ONE_F_ONE_B, GPIPE and INTERLEAVED if micro-batches come in whole groups of
  // stages, and for ZERO_BUBBLE if gradients of inputs cost no more than forward acts. Otherwise
  // the result is a little less than the true share.
  double BubbleFormula(double backward, double weight_gradient) const;
  std::string FormulaText() const;
};

// The largest number of parts per stage that a job may ask for.
inline constexpr int64_t kVirtualStagesMax = 1024;

// Returns the schedule that a job asks for. An interleaved schedule has 2 parts per stage unless
// the job says more.
PipelineSchedule ScheduleOf(const PipelineSettings& pipeline, int64_t num_stages,
                            int64_t micro_batches);

// Gives `schedule` the graph of the stages of a job that places its calls. stages_before[s] has the
// stages whose results stage s reads. The graph has no circle, and no stage has several parts.
void SetStageGraph(std::vector<std::vector<int64_t>> stages_before, PipelineSchedule* schedule);

}  // namespace weir::compiler
