// Compares the memory that a session takes, by the count of the system, with the memory in its
// plans. The count is the pages that became resident between the making of the session and the end
// of its third step. Thread rule: one thread; ObserveApart forks, so call it before any other
// thread exists.
#pragma once

#include <string>
#include <vector>

#include "tools/zoo/gpt.h"

namespace weir::bench {

struct ObservedMemory {
  double planned = 0;        // bytes: arenas, workspaces, staging
  double outside_arena = 0;  // the part of planned for workspaces and staging
  double anonymous = 0;      // private pages written to, after three steps
  double resident = 0;  // the peak, with the pages of program and libraries that were read for it
};

// A training job. The cases cover all kinds of layout whose memory differs.
struct MemoryCase {
  std::string what;
  std::string mesh;
  int64_t zero_stage = 0;
  int64_t micro_batches = 1;
  enum class Keep : uint8_t { kAll, kRecompute } keep = Keep::kAll;
};

// Returns the cases: one device, dp=2, ZeRO-3 on dp=2, pp=2 with 1F1B, recomputation.
std::vector<MemoryCase> MemoryCases();

// Returns the medium GPT with twice the layers, which is so large that a rank's memory outside its
// plan (threads, trace) does not count.
zoo::TransformerOptions DeepGpt();

// Runs the case on `gpt` in a separate process, so that nothing of an earlier case is left. Exits
// the program on an error.
ObservedMemory ObserveApart(zoo::TransformerOptions gpt, const MemoryCase& of);

}  // namespace weir::bench
