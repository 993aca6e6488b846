#include "runtime/transport/message_ring.h"

#include <atomic>
#include <cstddef>
#include <cstring>

namespace weir::transport {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kEntryBytes = 128;
constexpr int64_t kRingBytes = kLineBytes + kRingEntries * kEntryBytes;
// Message, number, riders.
constexpr int64_t kRidersAt = kWireMessageBytes + sizeof(uint64_t);
static_assert(kRidersAt + sizeof(RingEntry::riders) == kEntryBytes);
static_assert(kWireMessageBytes % alignof(uint64_t) == 0);
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

using Word = std::atomic_ref<uint64_t>;

Word WordAt(char* address) { return Word(*reinterpret_cast<uint64_t*>(address)); }

char* RingAt(char* block, int64_t ring) { return block + kLineBytes + ring * kRingBytes; }

char* EntryAt(char* ring, uint64_t number) {
  return ring + kLineBytes + static_cast<int64_t>(number % kRingEntries) * kEntryBytes;
}

// Returns the word of the entry in which message `number` leaves number + 1, since memory begins as
// zeros.
Word NumberAt(char* ring, uint64_t number) {
  return WordAt(EntryAt(ring, number) + kWireMessageBytes);
}

}  // namespace

int64_t RingBlockBytes(int64_t num_rings) { return kLineBytes + num_rings * kRingBytes; }

// The order of the sign and of the numbers of entries decides who sees whom, so all of these
// operations have one order: an owner whose look at a number comes before the number has shown the
// sign before that, and the sender, who looks at the sign after it, sees the sign.
void SleepSign::Show() { WordAt(block_).store(1, std::memory_order_seq_cst); }

void SleepSign::Hide() { WordAt(block_).store(0, std::memory_order_relaxed); }

bool SleepSign::TakeDown() {
  const Word sign = WordAt(block_);
  return sign.load(std::memory_order_seq_cst) != 0 &&
         sign.exchange(0, std::memory_order_seq_cst) != 0;
}

RingReader::RingReader(char* block, int64_t ring) : ring_(RingAt(block, ring)) {}

// The order of SleepSign::Show, and acquire: the message, and the payload that the message
// announces, were written before its number.
bool RingReader::has_message() const {
  return ring_ != nullptr &&
         NumberAt(ring_, num_taken_).load(std::memory_order_seq_cst) == num_taken_ + 1;
}

bool RingReader::TryTake(RingEntry* entry) {
  if (!has_message()) return false;
  const char* const from = EntryAt(ring_, num_taken_);
  std::memcpy(entry->wire, from, kWireMessageBytes);
  std::memcpy(entry->riders.data(), from + kRidersAt, sizeof(entry->riders));
  ++num_taken_;
  // Release: the entry was copied before the sender may write it again.
  WordAt(ring_).store(num_taken_, std::memory_order_release);
  return true;
}

RingWriter::RingWriter(char* block, int64_t ring) : ring_(RingAt(block, ring)) {}

bool RingWriter::HasRoom(int64_t num_entries) {
  if (ring_ == nullptr) return false;
  const auto fits = [&] {
    return num_put_ - num_taken_ + static_cast<uint64_t>(num_entries) <= kRingEntries;
  };
  if (fits()) return true;
  num_taken_ = WordAt(ring_).load(std::memory_order_acquire);
  return num_put_ >= num_taken_ && fits();
}

void RingWriter::Put(const char* wire, const std::array<RingRider, 2>& riders) {
  char* const to = EntryAt(ring_, num_put_);
  std::memcpy(to, wire, kWireMessageBytes);
  std::memcpy(to + kRidersAt, riders.data(), sizeof(riders));
  // The order of SleepSign::TakeDown, and release.
  NumberAt(ring_, num_put_).store(num_put_ + 1, std::memory_order_seq_cst);
  ++num_put_;
}

}  // namespace weir::transport
