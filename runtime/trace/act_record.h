// An ActRecord is the record of one act of a rank, of fixed size, in a ring made when the plan is
// loaded. Recording is always on, so it must be cheap: no text, no allocation, one reading of the
// time per act. When the ring is full the oldest records go. Not here: names and files
// (runtime/trace/trace_file.h).
// Thread rule: written by the rank's thread; read when that thread is at rest.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"

namespace weir::trace {

struct ActRecord {
  // kGroup: for the other ranks of the group of a collective, and for no register.
  enum class Wait : uint8_t { kNone, kInput, kCredit, kGroup };

  ActorId actor;               // none: no act, but the moment a run began
  RegisterId waited_register;  // what came last before the act was ready
  int64_t step = 0;
  int64_t ready = 0;  // times are ticks of the rank's clock
  int64_t start = 0;
  int64_t end = 0;
  int64_t bytes_sent = 0;
  int32_t micro_batch = 0;
  int32_t chunk = 0;
  Wait wait = Wait::kNone;
  // CPU time of the rank's own thread, known only if the act was long enough to be worth two
  // readings (kCpuReadMinNs).
  static constexpr uint32_t kCpuUnknown = 0xffffffff;
  uint32_t cpu_us = kCpuUnknown;
};
// An act is measured if its last turn took at least this time: two readings of a thread's CPU time
// take less than 1 us.
inline constexpr int64_t kCpuReadMinNs = 200'000;
static_assert(sizeof(ActRecord) <= 64, "a record is one cache line");

class ActRing {
 public:
  // Keeps the newest `capacity` records, rounded up to a power of two; 0 keeps none.
  explicit ActRing(int64_t capacity)
      : records_(capacity > 0 ? std::bit_ceil(static_cast<uint64_t>(capacity)) : 1),
        keep_(capacity > 0) {}

  // Returns room for the next record; the ring counts the record at once.
  ActRecord& Add() { return records_[keep_ ? num_added_++ & (records_.size() - 1) : 0]; }

  int64_t size() const {
    return static_cast<int64_t>(num_added_ < records_.size() ? num_added_ : records_.size()) *
           keep_;
  }
  int64_t num_dropped() const { return static_cast<int64_t>(num_added_) - size(); }
  // Returns the i-th record kept, oldest first.
  const ActRecord& at(int64_t i) const {
    return records_[(num_added_ - size() + i) & (records_.size() - 1)];
  }

 private:
  std::vector<ActRecord> records_;
  uint64_t num_added_ = 0;
  bool keep_;
};

}  // namespace weir::trace
