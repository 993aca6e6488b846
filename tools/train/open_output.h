// Where the open file of an output on the way is: somebody may remove it, rename it, or put another
// file in its place while a run writes, and what the run writes then is in no file that people
// find. Thread rule: functions that look at the file system and change nothing.
#pragma once

#include <cstdint>
#include <string>

namespace weir::train {

struct OpenOutput {
  // kAtPath: the path names the file, or the system does not tell. kElsewhere: the file has another
  // name. kGone: it has no name that stays, and its contents go when it is closed.
  enum class Place : uint8_t { kAtPath, kElsewhere, kGone } place = Place::kAtPath;
  std::string path;  // of a file elsewhere; empty: not known
};

// Finds the file of the descriptor, which was opened at `path`.
OpenOutput FindOpenOutput(int descriptor, const std::string& path);

// What a run does after it has found its file elsewhere or gone.
enum class AfterLoss : uint8_t {
  kNewFile,   // goes on in the file that has the path now
  kSameFile,  // goes on in the file that it has open, because it cannot open another
  kNoFile,    // has no file
};
// Returns a warning that tells where the lines or events up to `last_step` are, and where those
// from `step` on go. `output`: what is written, as "--metrics m.jsonl". Precondition: the file is
// not at its path.
std::string LostFileText(const std::string& output, const OpenOutput& file, int64_t last_step,
                         int64_t step, AfterLoss after);

}  // namespace weir::train
