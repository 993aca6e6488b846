#include "compiler/ir/job_settings.h"

namespace weir::compiler {

std::string Name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe: return "GPipe";
    case ScheduleKind::kInterleaved: return "interleaved 1F1B";
    case ScheduleKind::kZeroBubble: return "zero-bubble";
    case ScheduleKind::kOneFOneB: break;
  }
  return "1F1B";
}

std::string Name(RegisterChoice choice) {
  switch (choice) {
    case RegisterChoice::kSolved: return "SOLVED";
    case RegisterChoice::kOne: return "ONE";
    case RegisterChoice::kTwo: return "TWO";
    case RegisterChoice::kTwiceStages: return "TWICE_STAGES";
    case RegisterChoice::kSchedule: break;
  }
  return "SCHEDULE";
}

int StatesOfWeight(const TrainingSettings& training) {
  struct Count {
    int operator()(const AdamWSettings&) const { return 2; }
    int operator()(const SgdSettings& sgd) const { return sgd.momentum == 0 ? 0 : 1; }
    int operator()(const LionSettings&) const { return 1; }
    int operator()(const LambSettings&) const { return 2; }
    int operator()(const AdafactorSettings&) const { return 0; }  // rows and columns
    int operator()(const MuonSettings&) const { return 1; }
  };
  return std::visit(Count(), training.optimizer) + (training.average_decay.has_value() ? 1 : 0);
}

}  // namespace weir::compiler
