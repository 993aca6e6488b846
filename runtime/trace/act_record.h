// An ActRecord is the record of one act of a rank, of fixed size, in a ring made when the plan is
// loaded. Recording is always on, so it must be cheap: no text, no allocation, one reading of the
// time per act. When the ring is full the oldest records go. Not here: names and files
// (runtime/trace/trace_file.h), memory that outlives the process (runtime/trace/kept_acts.h).
// Thread rule: written by the rank's thread; read when that thread is at rest or dead.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

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
static_assert(std::is_trivially_copyable_v<ActRecord>, "a record may lie in memory of processes");

// An ActRing keeps the newest records of a rank. The ring lies in memory of its own, or, after
// MoveTo, in memory that may outlive the process (kept_acts.h). A record counts once Commit has
// been called for it, so whoever reads the memory of a process that was killed sees whole records
// alone, except that the oldest record of a full ring may be the room of a record that was not
// committed.
class ActRing {
 public:
  // The ring in memory is a Head, and after it the records.
  struct alignas(64) Head {
    uint64_t num_added = 0;
  };

  // Keeps the newest `capacity` records, rounded up to a power of two; 0 keeps none.
  explicit ActRing(int64_t capacity)
      : mask_(capacity > 0 ? std::bit_ceil(static_cast<uint64_t>(capacity)) - 1 : 0),
        keep_(capacity > 0) {
    MoveTo(NewMemory());
  }
  // A copy has memory of its own.
  ActRing(const ActRing& other) : memory_(other.memory_), mask_(other.mask_), keep_(other.keep_) {
    MoveTo(NewMemory());
  }
  ActRing(ActRing&&) = default;
  ActRing& operator=(ActRing&&) = default;

  // Returns room for the next record. Commit counts the record.
  ActRecord& Next() { return records()[head()->num_added & mask_]; }
  void Commit() {
    if (!keep_) return;
    // The record is in memory before its number: a process may be killed between the two.
    std::atomic_ref<uint64_t>(head()->num_added)
        .store(head()->num_added + 1, std::memory_order_release);
  }
  // Returns room for the next record, and counts it at once.
  ActRecord& Add() {
    ActRecord& record = Next();
    Commit();
    return record;
  }

  int64_t size() const {
    return static_cast<int64_t>(std::min(head()->num_added, mask_ + 1)) * keep_;
  }
  int64_t num_dropped() const { return static_cast<int64_t>(head()->num_added) - size(); }
  // Returns the i-th record kept, oldest first.
  const ActRecord& at(int64_t i) const {
    return records()[(head()->num_added - static_cast<uint64_t>(size() - i)) & mask_];
  }

  int64_t capacity() const { return static_cast<int64_t>(mask_ + 1) * keep_; }
  // Returns the bytes of the ring in memory.
  size_t bytes() const { return BytesOf(static_cast<int64_t>(mask_ + 1)); }
  // Returns the bytes of a ring of that capacity, a power of two.
  static size_t BytesOf(int64_t capacity) {
    return sizeof(Head) + static_cast<size_t>(capacity) * sizeof(ActRecord);
  }
  // Moves the records to `memory`, which has room for bytes() and is aligned as Head is. The ring
  // keeps the memory. At rest.
  void MoveTo(std::shared_ptr<char> memory) {
    Head* const to = new (memory.get()) Head();
    auto* const records = reinterpret_cast<ActRecord*>(memory.get() + sizeof(Head));
    std::uninitialized_default_construct_n(records, mask_ + 1);
    if (memory_ != nullptr) {
      to->num_added = head()->num_added;
      std::copy_n(this->records(), mask_ + 1, records);
    }
    memory_ = std::move(memory);
  }

 private:
  static constexpr std::align_val_t kAlignment{alignof(Head)};

  std::shared_ptr<char> NewMemory() const {
    return std::shared_ptr<char>(static_cast<char*>(::operator new(bytes(), kAlignment)),
                                 [](char* memory) { ::operator delete(memory, kAlignment); });
  }
  Head* head() const { return reinterpret_cast<Head*>(memory_.get()); }
  ActRecord* records() const { return reinterpret_cast<ActRecord*>(memory_.get() + sizeof(Head)); }

  std::shared_ptr<char> memory_;
  uint64_t mask_;  // the capacity less one
  bool keep_;
};

}  // namespace weir::trace
