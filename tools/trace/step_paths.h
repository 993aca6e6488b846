// The critical path of each step by itself, and its segments in groups: the acts of one name, the
// ways of one exchange, and the time between acts, each of all layers.
//
// The path of several steps (critical_path.h) is a mean. A person who looks at one step wants the
// path of that step, the places on the timeline where it runs, and the groups that take most of
// it. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/critical_path.h"
#include "tools/trace/step_parts.h"

namespace weir::trace {

// A PathGroup is the segments of one path that have one cause and one name.
struct PathGroup {
  // kCompute, kCommunication, kData: acts; kUnderWay: tokens under way; kCredit: slots on their way
  // back; kBetweenActs.
  StepPartKind cause = StepPartKind::kCompute;
  std::string name;           // the function or the exchange, of all layers; between acts: empty
  std::vector<RankId> ranks;  // that acted, or waited for what was under way; ascending
  int64_t ns = 0;
  double share = 0;     // of the step
  int64_t times = 0;    // segments
  PathSegment longest;  // of the segments
};

// A NamedSegment is a segment in the words of a user.
struct NamedSegment {
  int64_t begin = 0;  // ns, as everything in a trace
  int64_t end = 0;
  StepPartKind cause = StepPartKind::kCompute;
  std::string name;  // of the function or the register; between acts: of the function that was late
  RankId rank;       // that acted, or waited
  RankId sender;     // of a way; else none
};

struct StepPath {
  int64_t step = 0;
  int64_t ns = 0;
  std::vector<PathSegment> segments;  // from the first to the last
  std::vector<PathGroup> groups;      // most first
};

struct StepPaths {
  // Ascending. The last steps of the trace, at most kStepPathsMax, and the outliers of all steps.
  std::vector<StepPath> steps;
  // The steady step of `steps` whose time is nearest to the median of the steady steps.
  int64_t typical_step = 0;
};

inline constexpr size_t kStepPathsMax = 100;

StepPaths FindStepPaths(const RecordedRun& run);

// Returns "compute", "token under way", "slot on its way back" and the like.
std::string PathCauseName(StepPartKind cause);

// Returns the cause of a segment, one of those of a PathGroup.
StepPartKind CauseOf(const RecordedRun& run, const PathSegment& segment);

// Returns the groups of a path, most first.
std::vector<PathGroup> GroupSegments(const RecordedRun& run,
                                     const std::vector<PathSegment>& segments);

// Returns the same segments with their names.
std::vector<NamedSegment> NameSegments(const RecordedRun& run,
                                       const std::vector<PathSegment>& segments);

}  // namespace weir::trace
