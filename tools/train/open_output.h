// Finds where the open file of an output is while a run writes: somebody may remove the file,
// rename it, or put another file in its place, and later lines are then in no file that people
// find. Thread rule: one thread for an object; the function changes nothing.
#pragma once

#include <cstdint>
#include <optional>
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

// Decides in which file a run goes on that has found its file elsewhere or gone, and tells people
// once.
class LostOutput {
 public:
  // `output`: the option and its value, as "--metrics m.jsonl".
  explicit LostOutput(const std::string& output) : output_(output) {}

  // Notes that the open file is at its path.
  void NoteAtPath() { is_elsewhere_ = false; }
  // Returns whether the run goes on in the file that it has open, because it cannot open another;
  // else it goes on in the file that has the path now, or in none. `error` is that of opening the
  // path anew, or 0. Adds to `news` a warning that tells where the lines or events up to
  // `last_step` are, and where those from `step` on go; none without a last step. Precondition: the
  // file is not at its path.
  bool KeepsFile(const OpenOutput& file, int error, std::optional<int64_t> last_step, int64_t step,
                 std::string* news);

 private:
  const std::string output_;
  bool is_elsewhere_ = false;  // the open file has another name, which a warning has told
};

}  // namespace weir::train
