// The critical path of recorded steps leads from the end of the last step back to the begin of the
// first (step_rule.h says when a step begins and ends). At each point the path goes to the cause
// that kept the device from being further:
//
//   the queue had just ended another act       -> that act
//   it waited for a token                      -> the act that published it, and the way from there
//   it waited for a free slot                  -> the act that gave up the token in it, and the way
//   the device had no room for another act     -> the act of any of its queues that made room
//
// A device with a depth of one act is one queue. The last of the four causes is one of devices that
// take acts ahead.
//
// Every moment of the steps therefore lies on the path once, and shares sum to 1. Only acts and
// edges on the path can make a step shorter. A replay must tell by how much (what_if.h), since
// another path may be as long. Rests between two runs of the session are left out. Thread rule:
// pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

// PathActs are the acts that a user calls by one name, on one rank.
struct PathActs {
  RankId rank;
  std::string function;
  std::string phase;
  double share = 0;
  double ns_per_step = 0;
  double acts_per_step = 0;  // that lie on the path
};

// A PathEdge is a way between two ranks: a token or credit has been sent, but has not arrived.
struct PathEdge {
  std::string name;  // of the register
  RankId from;       // of a slot, from the reader to the writer
  RankId to;
  enum class Kind : uint8_t { kToken, kSlot } kind = Kind::kToken;
  double share = 0;
  double ns_per_step = 0;
  double times_per_step = 0;
};

struct CriticalPath {
  int64_t first_step = 0;
  int64_t last_step = 0;
  double step_ns = 0;          // mean
  std::vector<PathActs> acts;  // most first
  // The edges with the most time come first. Edges that took no time are also here, since the path
  // crosses them.
  std::vector<PathEdge> edges;
  std::map<std::string, double> phases;  // shares of acts
  std::map<RankId, double> ranks;        // shares of acts
  double in_transfer = 0;                // share of all edges
  // The share in which the queue had an act to do, or no known event to wait for.
  double between_acts = 0;
};

// Precondition: run.first_step <= first_step <= last_step <= run.last_step.
CriticalPath FindCriticalPath(const RecordedRun& run, int64_t first_step, int64_t last_step);

}  // namespace weir::trace
