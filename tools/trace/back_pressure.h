// The actors of a run as a graph under pressure: how long each waited for input, how long for a
// free slot, and which register holds the others up.
//
// An actor is busy while it acts. From the end of an act until the next begins it is
//
//   starved    until the last token of its inputs has come
//   blocked    then, until the last slot of its outputs is free
//   ready      then, while its device does other acts, or nothing
//
// Actors that do the same work in all layers and on all ranks are one node, so that a plan of many
// actors fits on a screen. Work and boxings of one function are two nodes. On a rank, a node is
// busy while any of its actors is; else blocked while one of them is; else ready; else starved.
//
// An actor may be blocked without harm: one that reads data runs ahead of the step until its
// register is full. A wait for a slot holds a writer up only while its device has nothing else to
// do.
//
// Such a wait spreads backwards: a producer waits because its reader waits. So the culprit is
// looked for from the longest such wait onwards: from reader to reader, as long as the reader is
// held up itself. The register that the last of these waits was for is the culprit. Thread rule:
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

struct PressureNode {
  std::string name;  // the function, of all layers
  std::string phase;
  int64_t actors = 0;
  std::vector<RankId> ranks;  // ascending
  // The place in a drawing: data flows from row to row, and back only along edges that lag.
  int32_t row = 0, column = 0;
  // Mean shares of the time on its ranks; they sum to 1, or are 0 if the actors do not act.
  double busy = 0, starved = 0, blocked = 0, ready = 0;
  double busy_ns_per_step = 0;  // of all actors together
};

struct PressureEdge {
  int32_t from = 0, to = 0;        // nodes
  int64_t registers = 0;           // that lead from the one to the other
  double bytes_per_step = 0;       // of all of them
  double slots_in_use = 0;         // share of their slots, mean over registers and over time
  double full = 0;                 // share of the time in which all slots are in use, mean
  double starved_ns_per_step = 0;  // readers waited for their tokens, sum over actors
  double blocked_ns_per_step = 0;  // writers waited for their slots, sum over actors
  // The part of blocked_ns_per_step in which the device of the writer had nothing else to do.
  double held_up_ns_per_step = 0;
  std::string worst;  // the register with most of these waits, of all layers; else the largest
  // Tokens are there before the first step: they are a weight, or a later step reads them.
  bool lags = false;
};

struct BackPressure {
  std::vector<PressureNode> nodes;
  std::vector<PressureEdge> edges;  // most time held up first, then most bytes
  // The edges from the one whose writers are held up most to that of the culprit, which is the
  // last. Empty if that one holds no device up for kHeldUpMin of a step.
  std::vector<int32_t> chain;
};

inline constexpr double kHeldUpMin = 0.01;
inline constexpr size_t kPressureNodesMax = 60;

// Looks at the steady steps (StepTimes::FirstSteady). A run with more than kPressureNodesMax
// functions gets one node for all functions of a kind ("forward", "backward") instead.
BackPressure FindBackPressure(const RecordedRun& run);

// Returns a sentence that names the culprit and what it holds up, or that there is none.
std::string PressureText(const BackPressure& pressure);

}  // namespace weir::trace
