// Finds, for each boxing of a run, its bytes, their speed and the waits for them that no work hid.
// Boxings that differ only in the layer are one row.
//
// The record shows how long a message was under way only where somebody waited for it: from the end
// of the act that sent it until the reader was ready. A message that nobody waited for was fast
// enough, and is in no mean here. So the speed is that of the messages which mattered. Beside it
// stands the speed that the plan expected of the link. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/transfer/transfer_note.h"
#include "tools/trace/recorded_run.h"

namespace weir::trace {

struct TransferRow {
  std::string name;    // of the exchange, of all layers: "all-reduce forward layers.*: down"
  std::string method;  // "all-reduce"; the first word of the name
  // The note says what the transfer changes, and why. It is null if the trace does not say so. If
  // layers differ, the note is that of the first layer.
  std::shared_ptr<const TransferNote> note;
  int64_t registers = 0;
  int64_t links = 0;  // pairs of ranks
  double bytes_per_step = 0;
  double messages_per_step = 0;
  // The next fields are of the messages that a queue waited for: their number, bytes and times.
  int64_t timed = 0;
  double timed_bytes = 0, timed_ns = 0;
  // The same messages by the plan; 0: the trace does not say.
  double planned_ns = 0;
  // Devices waited for these messages, mean over all queues: until they were sent, and after.
  double late_ns_per_step = 0, under_way_ns_per_step = 0;

  double bytes_per_second() const { return timed_ns > 0 ? timed_bytes / timed_ns * 1e9 : 0; }
  double planned_bytes_per_second() const {
    return planned_ns > 0 ? timed_bytes / planned_ns * 1e9 : 0;
  }
};

// Returns the boxings of the steady steps (StepTimes::FirstSteady), those with the longest waits
// first, then those with most bytes.
std::vector<TransferRow> FindTransfers(const RecordedRun& run);

// Returns the first `rows_max` rows for people, in lines of at most kReportColumns: waits, bytes
// and speeds, and below each row the layouts before and after and the reasons. Empty without rows.
std::string TransfersText(const std::vector<TransferRow>& rows, size_t rows_max);

}  // namespace weir::trace
