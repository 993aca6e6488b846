// KeptActs keep the records of a process's acts in memory that outlives the process, so that a
// process that was killed leaves the trace of its last steps.
//
//   process:  KeptActs::Open -> { Keep | NoteTime }*
//   parent, after the end of the process:  TraceOfKept
//
// The memory is a file in memory (memfd_create) that both processes hold open: the system frees it
// when neither of them lives, so nothing is left behind. While acts are recorded, the rings of the
// ranks lie in it (act_record.h), and a record costs what it costs in memory of the process's own.
// Not here: how a process gets the file (tools/launch/worker_process.h).
//
//   0        Head: where the region is that counts, and moments for the length of a tick
//   region   RegionHead, the facts of the ranks (proto::KeptJob), then a ring for each rank
//
// A process that loads its ranks anew appends a region, and gives up the memory of the old one when
// the old ranks are gone. Thread rule: Keep by one thread, while the ranks are at rest; NoteTime by
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/trace/act_record.h"
#include "runtime/trace/trace_file.h"

namespace weir::trace {

// A process keeps at most as many bytes as the starter takes from another host.
inline constexpr int64_t kKeptBytesMax = int64_t{256} << 20;

struct KeptHead;

class KeptActs {
 public:
  // Opens the memory behind a descriptor, which must outlive this object and all rings in the
  // memory. Null if the memory cannot be had.
  static std::unique_ptr<KeptActs> Open(int descriptor);
  ~KeptActs();
  KeptActs(const KeptActs&) = delete;
  KeptActs& operator=(const KeptActs&) = delete;

  // Moves the rings into the memory; rings[i] is that of job.ranks[i]. From now on the trace of
  // these ranks can be had from the memory. kResourceExhausted if the system has no memory for
  // them, or if they need more than kKeptBytesMax; the rings then stay where they are.
  absl::Status Keep(const TracedJob& job, const std::vector<ActRing*>& rings);

  // Notes what time it is, by which ticks become times. Call now and then.
  void NoteTime();

 private:
  KeptActs(int descriptor, KeptHead* head);

  const int descriptor_;
  // Guards no member: it serializes the writers of the moments, which lie in the head.
  Mutex mutex_;
  KeptHead* const head_;
  int64_t end_ = 0;                  // of the regions; used by Keep
  std::weak_ptr<void> last_region_;  // likewise
};

// Returns the trace of the ranks whose records lie in `memory`, the bytes of the file, as a part of
// the job's trace that describes the job (trace_parts.h), by CLOCK_MONOTONIC of the process that
// wrote them. kNotFound if no ranks were kept. Records that cannot be are left out, because a
// process that fails may write anywhere before it ends.
absl::StatusOr<std::string> TraceOfKept(absl::string_view memory);

}  // namespace weir::trace
