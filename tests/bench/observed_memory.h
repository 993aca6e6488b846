// Memory that a session takes, as the system counts it, beside what its plans say: pages that came
// to be resident from before the session is made to after its third step. Thread rule: one thread;
// ObserveApart forks, so before any other thread is there.
#pragma once

#include <string>
#include <vector>

#include "tools/zoo/gpt.h"

namespace weir::bench {

struct ObservedMemory {
  double planned = 0;        // bytes: arenas, workspaces, staging
  double outside_arena = 0;  // of planned: workspaces and staging
  double anonymous = 0;      // private pages written to, after three steps
  double resident = 0;       // the peak, with pages of program and libraries that were read for it
};

// A training job of all kinds of layout whose memory differs.
struct MemoryCase {
  std::string what;
  std::string mesh;
  int64_t zero_stage = 0;
  int64_t micro_batches = 1;
  enum class Keep : uint8_t { kAll, kRecompute } keep = Keep::kAll;
};

// One device, dp=2, ZeRO-3 on dp=2, pp=2 with 1F1B, recomputation.
std::vector<MemoryCase> MemoryCases();

// The medium GPT with twice the layers: large enough that what a rank takes beside its plan
// (threads, trace) does not count.
TransformerOptions DeepGpt();

// Runs the case on `gpt` in a process of its own, so that nothing of an earlier one is left. Exits
// the program on an error.
ObservedMemory ObserveApart(TransformerOptions gpt, const MemoryCase& of);

}  // namespace weir::bench
