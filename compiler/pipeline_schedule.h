// A pipeline schedule, as what it is made of: where the model is cut into parts and on which stage
// each part lies, how many micro-batches a value may wait between the act that makes it and the act
// that reads it last (register slots), and who goes first among acts that are ready (priority,
// turn). Nobody plays the schedule: actors do what tokens, slots and turns allow, and the schedule
// is what comes out.
//
//   kind          parts a stage   kept from forward to backward               order of ready acts
//   ONE_F_ONE_B   1               stages - s                                  forward, backward
//   GPIPE         1               all; the first backward act of the last     forward, backward
//                                 stage waits for its last forward act
//   INTERLEAVED   v               what the order by turns holds               turns, see TurnOf
//   ZERO_BUBBLE   1               min(stages, 2 (stages - s) - 1), and until   turns, then weight
//   gradients
//                                 the weight gradients are done: stages
//
// Part i lies on stage i % stages. Not here: what a part computes, cutting (assign_stages.cc), the
// split of backward functions (split_backward.cc). Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// What happens to a micro-batch in a part.
enum class PipelinePass : uint8_t { kForward, kBackward, kWeightGradient };

struct PipelineSchedule {
  // Among acts of equal priority the least turn goes first: of micro-batch k,
  // first + k / group * group_stride + k % group * stride.
  struct Turn {
    int64_t first = 0;
    int64_t group = 1;
    int64_t group_stride = 0;
    int64_t stride = 0;
    int64_t At(int64_t micro_batch) const {
      return first + micro_batch / group * group_stride + micro_batch % group * stride;
    }
    bool always_zero() const { return first == 0 && group_stride == 0 && stride == 0; }
  };

  // One stage needs no schedule: then `kind` is ONE_F_ONE_B whatever the job says.
  weir::Pipeline::ScheduleKind kind = weir::Pipeline::ONE_F_ONE_B;
  int64_t num_stages = 1;
  int64_t virtual_stages = 1;  // parts per stage
  int64_t micro_batches = 1;
  std::vector<int64_t> in_flight;  // by part: micro-batches between the begin of their forward and
                                   // the end of their backward pass

  int64_t num_parts() const { return num_stages * virtual_stages; }
  int64_t StageOf(int64_t part) const { return part % num_stages; }
  bool splits_backward() const { return kind == weir::Pipeline::ZERO_BUBBLE; }
  // Whether backward passes wait until all forward passes are done.
  bool gates_backward() const { return kind == weir::Pipeline::GPIPE; }

  // How many micro-batches of a value exist at once that pass `made` of one part makes and pass
  // `read` of another part of the same stage reads last.
  int64_t Kept(PipelinePass made, int64_t made_part, PipelinePass read, int64_t read_part) const;

  Turn TurnOf(PipelinePass pass, int64_t part) const;
  // Whether an act begins a part's pass over a micro-batch or goes on with one.
  enum class Begin : uint8_t { kBegins, kGoesOn };
  int PriorityOf(PipelinePass pass, Begin begin) const;

  // The share of a step, between the first forward and the last backward act, that stages are idle
  // if all parts cost the same and transfers nothing; `backward` and `weight_gradient` as multiples
  // of a forward act. For ONE_F_ONE_B, GPIPE and INTERLEAVED with micro-batches in whole groups of
  // stages exact, for ZERO_BUBBLE if gradients of inputs cost no more than forward acts; else a
  // little less than what comes out.
  double BubbleFormula(double backward, double weight_gradient) const;
  std::string FormulaText() const;
};

std::string Name(weir::Pipeline::ScheduleKind kind);  // "1F1B", "zero-bubble"

// The schedule of a job. kInvalidArgument (W0476): virtual_stages that the schedule has no use for.
absl::StatusOr<PipelineSchedule> ScheduleOf(const Job& job, int64_t num_stages,
                                            int64_t micro_batches);

}  // namespace weir::compiler
