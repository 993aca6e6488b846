// Predicts the effect of changes on a recorded run, each by a replay of the run: more slots of a
// register, an op that takes no time, links that are faster, a rank that is faster.
//
//   slots:NAME=N     N slots of every register NAME, or +N more: slots:NAME=+1
//   free:NAME        everything called NAME (function, actor or phase) takes no time
//   link:A-B=F       messages from rank A to rank B take 1/F of the time; link:all=F on every link
//   rank:R=F         acts of rank R take 1/F of the time; rank:all=F on every rank
//
// A `*` in a NAME stands for any text; several changes at once are joined by `;`.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/trace/critical_path.h"
#include "tools/trace/replay.h"
#include "tools/trace/stragglers.h"

namespace weir::trace {

struct WhatIfRow {
  std::string spec;      // as above; can be passed to TryWhatIf again
  std::string about;     // for people
  bool finished = true;  // false: the run would come to a standstill
  double step_ns = 0;
  // The share of the step's time that the change saves, against the replay without changes.
  double gain = 0;
  int64_t more_bytes = 0;  // of registers, on all ranks
};

// W0533 if the text is no change or names nothing in this run; the message lists the valid names.
absl::StatusOr<WhatIfRow> TryWhatIf(const Replayer& replayer, const RecordedRun& run,
                                    absl::string_view spec);

// Tries one more slot of the registers for which producers waited most, the ops with the largest
// parts of the path at no cost, faster links, and slow ranks at the speed of their peers. Returns
// the changes best first, without those that gain nothing. Calls `tell`, if it is not null, before
// each replay.
std::vector<WhatIfRow> TryWhatIfs(const Replayer& replayer, const RecordedRun& run,
                                  const CriticalPath& path,
                                  const std::vector<Straggler>& stragglers,
                                  const std::function<void(const std::string& doing)>& tell);

}  // namespace weir::trace
