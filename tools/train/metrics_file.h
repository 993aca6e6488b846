// The file of --metrics: a line of JSON per step. Each line is written at once to the end of the
// file, so no other line can break it. A job holds a lock on its file, and a second job that names
// the same file is refused. The old content of the file stays until the first line of a run that
// begins anew. A run that goes on after others, or goes back to an earlier step, takes their lines
// of later steps away with its first line, so each step has one line. A pipe keeps all.
//
// A disk that is full or fails costs lines but does not stop the run: Write reports the failure
// once, tries again with each line, and reports when writing works again. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/train/lost_writes.h"
#include "tools/train/metric_log.h"

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
      : path_(path), begin_(begin), lost_("--metrics " + path, "line") {}
  // Opens the file, and returns 0 or an errno: EWOULDBLOCK if another job writes the file.
  int Reopen();
  int WriteText(const std::string& text);
  // Ends the file before the first line of a step after `step`, and before a last line without end.
  int CutAfter(int64_t step);

  const std::string path_;
  Begin begin_;
  int descriptor_ = -1;
  bool regular_ = false;
  std::optional<int64_t> kept_steps_;  // GoBackTo
  LostWrites lost_;
};

}  // namespace weir::train
