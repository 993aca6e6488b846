// The file of --metrics: a line of JSON per step. Each line is written at once to the end of the
// file, so no other line can break it. A job holds a lock on its file, and a second job that names
// the same file is refused. The old content of the file stays until the first line of a run that
// begins anew. A run that goes on after others, or goes back to an earlier step, takes their lines
// of later steps away with its first line, so each step has one line. A pipe keeps all.
//
// A disk that is full or fails costs lines but does not stop the run: Write reports the failure
// once, tries again with each line, and reports when writing works again.
//
// Before each line the path is looked at. If it no longer names the open file, because somebody has
// removed or renamed that file, the file is opened anew at the path: another file that is there
// keeps all that it has by then, also when the run goes back to an earlier step. One warning says
// where the earlier lines are. A renamed file is written on as long as no file can be opened at the
// path. An object knows nothing of the file of an earlier one: OpenAgain takes the file at the path
// for that of the run.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/train/lost_writes.h"
#include "tools/train/metric_log.h"
#include "tools/train/open_output.h"

namespace weir::train {

class MetricsFile {
 public:
  enum class Begin : uint8_t { kAnew, kAfterOthers };
  // kNotFound: the file cannot be written (W0075), or another job writes it (W0961).
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path, Begin begin);
  // Returns the file of a run that starts again. What is refused by then is no error: it costs
  // lines, and each Write tries again.
  static std::unique_ptr<MetricsFile> OpenAgain(const std::string& path, Begin begin);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // The next line is of a step after `step`: it takes the place of all lines of later steps.
  void GoBackTo(int64_t step) { kept_steps_ = step; }
  // Writes the line. Returns a warning that a person should read now, or mostly an empty text.
  std::string Write(const MetricLine& line);
  const LostWrites& lost() const { return lost_; }

 private:
  MetricsFile(const std::string& path, Begin begin)
      : path_(path),
        begin_(begin),
        lost_file_("--metrics " + path),
        lost_("--metrics " + path, "line") {}
  // Opens the file, and returns 0 or an errno: EWOULDBLOCK if another job writes the file.
  int Reopen();
  // Opens the file that has the path now, if it is another than the open one. Returns 0 or an
  // errno, and adds to `news` what a person should read. `step` is that of the next line.
  int FollowPath(int64_t step, std::string* news);
  int WriteText(const std::string& text);
  // Ends the file before the first line of a step after `step`, and before a last line without end,
  // but not within the first kept_bytes_.
  int CutAfter(int64_t step);

  const std::string path_;
  Begin begin_;
  int descriptor_ = -1;
  bool regular_ = false;
  std::optional<int64_t> kept_steps_;  // GoBackTo
  std::optional<int64_t> last_step_;   // of the last line that was written here
  bool follows_path_ = false;          // the file that was opened first is gone or elsewhere
  off_t kept_bytes_ = 0;               // at the begin of the open file, and not of this run
  LostOutput lost_file_;
  LostWrites lost_;
};

}  // namespace weir::train
