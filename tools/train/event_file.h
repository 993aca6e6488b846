// The folder of --tensorboard: a file of events that TensorBoard reads, a summary of scalars per
// step. A run adds a file of its own to the folder, and never changes the files of others. The file
// begins with the number of its first step, and TensorBoard forgets what earlier files say of this
// step and of later ones: a resumed run goes on where it was resumed, and a run from the begin
// replaces all.
//
// Folder and file come with the first step, so a run that ends before it writes nothing. A disk
// that is full or fails costs steps but does not stop the run, by the rule of MetricsFile
// (metrics_file.h). Each event is written in one piece, and a part of an event is taken back. If
// somebody removes or renames the file, or its folder, the next step begins a new file, and one
// warning says so, by the rule of MetricsFile, too.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/train/lost_writes.h"
#include "tools/train/open_output.h"

namespace weir::train {

class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string, double>>;

  explicit EventFile(const std::string& folder)
      : folder_(folder),
        lost_file_("--tensorboard " + folder),
        lost_("--tensorboard " + folder, "step") {}
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Tries to make a file in `folder`, or in its place if there is none, and leaves nothing behind.
  // kNotFound (W0075): no file can be made in the folder, or the folder cannot be made.
  static absl::Status CheckFolder(const std::string& folder);

  // Writes the values of a step at `wall_seconds` since 1970. Names are those of the metrics file;
  // Tag says what they become. Returns a warning that a person should read now, or mostly an empty
  // text.
  std::string Write(int64_t step, double wall_seconds, const Scalars& values);
  const LostWrites& lost() const { return lost_; }

  // Returns the tag of a metric: "lr" is "learning_rate", "tokens_per_second" is "tokens_per_s",
  // "step_seconds" is "step_time", "eval_loss" is "eval/loss".
  static std::string Tag(const std::string& metric);

 private:
  int Open(int64_t step, double wall_seconds);
  // Begins a new file if the path no longer names the open one. Returns 0 or an errno, and adds to
  // `news` what a person should read.
  int FollowPath(int64_t step, double wall_seconds, std::string* news);
  int Append(const std::string& bytes);

  const std::string folder_;
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;                  // of the whole events in the file
  std::optional<int64_t> last_step_;  // of the last event that was written here
  LostOutput lost_file_;
  LostWrites lost_;
};

// Returns an event in the frame of an event file: its length, the checksum of the length, the
// event, its checksum.
std::string FrameOf(const std::string& event);

}  // namespace weir::train
