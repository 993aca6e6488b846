// What one worker prints: the bytes go to its file as they are, whole lines to the console with
// the worker's label in front, and the last lines are kept for the report of a failure.
// It does not read from the worker and never blocks on it.
//
// Bounds: a line on the console has at most kConsoleLineBytesMax bytes, a kept one
// kKeptLineBytesMax, and kKeptLinesMax are kept; what is cut says so and is whole in the file.
// A file that cannot be written (disk full) costs its bytes, counted, and not the worker.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <ostream>
#include <string>
#include <vector>

#include "tools/launch/owned_descriptor.h"

namespace weir {

inline constexpr size_t kConsoleLineBytesMax = 64 * 1024;
inline constexpr size_t kKeptLineBytesMax = 2 * 1024;
inline constexpr size_t kKeptLinesMax = 20;

class WorkerOutput {
 public:
  // `console` may be null: then the lines are only kept. It must outlive this.
  WorkerOutput(OwnedDescriptor file, const std::string& label, std::ostream* console);

  void Append(const char* bytes, size_t count);
  // The worker has ended: a last line without an end is a line too. Closes the file.
  void Finish();

  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }
  // No more lines for the console.
  void Hide() { console_ = nullptr; }
  int64_t num_bytes_lost() const { return num_bytes_lost_; }

 private:
  void WriteToFile(const char* bytes, size_t count);
  void AppendToLine(const char* bytes, size_t count);
  void EndLine();

  OwnedDescriptor file_;
  std::string prefix_;  // "[rank 2-3] "
  std::ostream* console_;
  std::string line_;       // the begin of the line under way, at most kConsoleLineBytesMax
  size_t line_bytes_ = 0;  // its length so far
  std::deque<std::string> last_lines_;
  int64_t num_bytes_lost_ = 0;
};

}  // namespace weir
