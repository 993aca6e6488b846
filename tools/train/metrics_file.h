// The file of --metrics: a line of JSON per step, each written at once to its end, so that no line
// is ever broken by another. A job holds a lock on its file; a second job that names it is refused.
// What lies in the file is kept until the first line of a run that begins anew.
//
// A disk that is full or fails costs lines, not the run: Write says so once, goes on trying with
// each line, and says so when it works again. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/train/metric_log.h"

namespace weir {

class MetricsFile {
 public:
  enum class Begin : uint8_t { kAnew, kAfterOthers };
  // kNotFound: W0075 cannot be written, W0961 another job writes it.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path, Begin begin);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // The warning that a person should read now. It is mostly empty.
  std::string Write(const MetricLine& line);
  int64_t num_lost() const { return num_lost_; }  // lines

 private:
  MetricsFile(const std::string& path, Begin begin) : path_(path), begin_(begin) {}
  int Reopen();
  int WriteText(const std::string& text);

  const std::string path_;
  Begin begin_;
  int descriptor_ = -1;
  bool regular_ = false;
  bool failing_ = false;
  int64_t num_lost_ = 0;
};

}  // namespace weir
