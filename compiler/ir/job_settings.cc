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

}  // namespace weir::compiler
