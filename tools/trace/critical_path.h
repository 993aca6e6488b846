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
  // They serve reports alone (step_rule.h), so no change of layout can spare them.
  bool serves_reports = false;
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
  bool serves_reports = false;  // as of PathActs, of the actor that waited
};

// A PathSegment is a piece of the path without a change of cause.
struct PathSegment {
  enum class Kind : uint8_t { kAct, kToken, kSlot, kBetweenActs } kind = Kind::kAct;
  int64_t begin = 0;  // ns, as everything in a trace
  int64_t end = 0;
  // The act on the path; of a way and of a time between acts, the act that it held up. A place
  // among the ranks of the run, and one among the acts of that rank; -1: none.
  RecordedRankId rank_index;
  int32_t act = -1;
  RecordedRegisterId register_index;  // of a way; else none
  RecordedRankId sender;              // of a way: the rank that it comes from; else none
};

struct CriticalPath {
  int64_t first_step = 0;
  int64_t last_step = 0;
  std::vector<int64_t> left_out;  // steps between these two that the path does not have, ascending
  double step_ns = 0;             // mean
  std::vector<PathActs> acts;     // most first
  // The edges with the most time come first. Edges that took no time are also here, since the path
  // crosses them.
  std::vector<PathEdge> edges;
  std::map<std::string, double> phases;  // shares of acts
  std::map<RankId, double> ranks;        // shares of acts
  double in_transfer = 0;                // share of all edges
  // The share in which the queue had an act to do, or no known event to wait for.
  double between_acts = 0;
  // From the first to the last; they take the time of the steps, without rests.
  std::vector<PathSegment> segments;
};

// Finds the path of these steps without those of `left_out`, which are ascending. Preconditions:
// run.first_step <= first_step <= last_step <= run.last_step; a step remains.
CriticalPath FindCriticalPath(const RecordedRun& run, int64_t first_step, int64_t last_step,
                              const std::vector<int64_t>& left_out = {});

}  // namespace weir::trace
