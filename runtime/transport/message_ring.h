// A message ring carries messages without a payload behind them (wire_message.h) from one rank to
// another rank of the same host, through shared memory of the receiver. The receiver has one block
// of memory, with a sleep sign and a ring for each of its peers:
//
//   sleep sign | ring 0: taken, entries | ring 1: ... | ...
//
// An entry takes two lines of the cache: a message, its number, and up to two credits that ride on
// the message. The sender writes all that and then the number, the receiver copies the entry once
// the number is there, and `taken` tells the sender how many entries are free again. Nothing waits:
// a full ring takes no message, and the sender then sends the message in another way.
//
// A receiver that is about to sleep shows its sleep sign and looks into its rings once more
// (fall_asleep.h). A sender that has filled entries looks at the sign: if the sign is shown, the
// sender takes the sign down and wakes the receiver in another way. So either the receiver sees the
// entries, or a sender sees the sign. A sender may be late, and take down a sign that the receiver
// shows for the next sleep.
//
// Other processes can write all of this memory at any time. A reader believes only its own count of
// entries, and what it returns is a copy that nobody else can change. The caller judges the copy.
// Not here: the memory, and what a message means. Thread rule: each side of a ring belongs to one
// thread; the two sides, and all senders at a sign, work at the same time.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/ids.h"
#include "runtime/transport/wire_message.h"

namespace weir::transport {

inline constexpr int64_t kRingEntries = 64;

// A RingRider is a credit as far as it differs from the message that it rides on.
struct RingRider {
  EdgeHandle receiver_edge;  // none: there is no rider
  int32_t slot = 0;
  uint32_t number = 0;
};

// A RingEntry is a message and the credits that ride on it, those first that there are.
struct RingEntry {
  char wire[kWireMessageBytes] = {};
  std::array<RingRider, 2> riders;
};

// Returns the size of a block with this many rings. A block begins as zeros, and its address is a
// multiple of 64.
int64_t RingBlockBytes(int64_t num_rings);

class SleepSign {
 public:
  SleepSign() = default;
  explicit SleepSign(char* block) : block_(block) {}

  // These are the owner's calls. What was put before Show returned is seen by the owner's readers
  // after Show.
  void Show();
  void Hide();
  // Returns whether the caller, who has put something before, must wake the owner.
  bool TakeDown();

 private:
  char* block_ = nullptr;
};

// A RingReader is the receiver's side of one ring. It begins at the first entry.
class RingReader {
 public:
  RingReader() = default;
  RingReader(char* block, int64_t ring);

  bool has_message() const;
  // Copies the next entry to `entry`, or returns false if there is none.
  bool TryTake(RingEntry* entry);

 private:
  char* ring_ = nullptr;  // null: there is no ring
  uint64_t num_taken_ = 0;
};

// A RingWriter is the sender's side of one ring. It begins at the first entry.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(char* block, int64_t ring);

  // Returns whether there is a ring with this many free entries.
  bool HasRoom(int64_t num_entries);
  // Precondition: HasRoom(1).
  void Put(const char* wire, const std::array<RingRider, 2>& riders);

 private:
  char* ring_ = nullptr;
  uint64_t num_put_ = 0;
  uint64_t num_taken_ = 0;  // as last seen
};

}  // namespace weir::transport
