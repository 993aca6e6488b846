// The causes of a step's time as sentences, the costliest first: what holds the job, for which
// share of a step, and what to try. Missing cores come before all others. A cause is named only if
// it costs a few per cent of a step. Shares of several causes may tell of the same time, so they do
// not add up.
//
//   missing cores      no device has a core for most of the time that it works
//   a slow rank        the same acts take longer there than elsewhere
//   few registers      a replay with more slots is faster
//   communication      a replay with links that take no time is faster; the exchange or the link
//   few micro-batches  a pipeline of even stages would have this bubble with as many
//   uneven work        one device works longer in a step than the others
//   data, update       the share of these acts on the critical path
//   short acts         the shortest acts of a device take nearly as long as its others, so the
//                      time is that of acts as such, and not of their work
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/trace/trace_report.h"
#include "tools/trace/why_slow.h"

namespace weir::trace {

struct Cause {
  double share = 0;        // of a step
  double ns_per_step = 0;  // the same share of a typical step of the record
  std::string text;        // a sentence with its advice
  std::string view;        // the view of `weir view` that shows the cause: "timeline"
  std::string find;        // what to look for there, as on the timeline; empty: nothing
};

// Returns at most `most` causes.
std::vector<Cause> FindCauses(const TraceReport& report, const WhySlow& why, size_t most = 5);

std::string ToText(const std::vector<Cause>& causes);

}  // namespace weir::trace
