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
// Part i lies on stage i % stages. Not here: the work of a part, the cut (assign_stages.cc), the
// split of backward functions (split_backward.cc). Thread rule: values and pure functions.
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
  // nothing. `backward` and `weight_gradient` are multiples of the time of a forward act. The
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

}  // namespace weir::compiler
