// The output of one worker. The bytes go to the worker's file unchanged, whole lines go to the
// console with the worker's label in front, and the last lines are kept for the report of a
// failure. WorkerOutput does not read from the worker and never blocks on it.
//
// Bounds: a line on the console has at most kConsoleLineBytesMax bytes, a kept line has at most
// kKeptLineBytesMax, and kKeptLinesMax lines are kept. A cut line says that it is cut and is whole
// in the file. If the file cannot be written (disk full), the bytes are lost and counted, and the
// worker goes on. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <ostream>
#include <string>
#include <vector>

#include "tools/launch/owned_descriptor.h"

namespace weir::launch {

inline constexpr size_t kConsoleLineBytesMax = 64 * 1024;
inline constexpr size_t kKeptLineBytesMax = 2 * 1024;
inline constexpr size_t kKeptLinesMax = 20;

class WorkerOutput {
 public:
  // `console` must outlive this object. Null: lines are only kept. A `file` that is not open gets
  // nothing.
  WorkerOutput(OwnedDescriptor file, const std::string& label, std::ostream* console);

  void Append(const char* bytes, size_t count);
  // Call when the worker has ended. A last line without a newline counts as a line too. Closes the
  // file.
  void Finish();

  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }
  // Sends no more lines to the console.
  void Hide() { console_ = nullptr; }
  int64_t num_bytes_lost() const { return num_bytes_lost_; }

 private:
  void WriteToFile(const char* bytes, size_t count);
  void AppendToLine(const char* bytes, size_t count);
  void EndLine();

  OwnedDescriptor file_;
  std::string prefix_;  // "[ranks 2-3] "
  std::ostream* console_;
  std::string line_;       // the start of the line under way, at most kConsoleLineBytesMax
  size_t line_bytes_ = 0;  // length of that line so far
  std::deque<std::string> last_lines_;
  int64_t num_bytes_lost_ = 0;
};

}  // namespace weir::launch
