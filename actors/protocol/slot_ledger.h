// A SlotLedger counts, for each slot of one register, the consumers that still read the slot.
// Producers ask the ledger before they write, consumers tell the ledger when they have read. A
// ledger lives beside the memory of the register: with the producer if the register is local, with
// the consumers if it is inbound. Not here: messages; the caller turns the last release into a
// credit.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::actors {

class SlotLedger {
 public:
  SlotLedger(int32_t slots, int32_t num_consumers)
      : num_consumers_(num_consumers), readers_(slots, 0) {}

  enum class Use : uint8_t { kInUse, kFree };

  // Records that a token now lies in `slot`. Precondition: free. kFree if nobody will read the
  // token.
  Use Publish(int32_t slot) {
    readers_[slot] = num_consumers_;
    return num_consumers_ == 0 ? Use::kFree : Use::kInUse;
  }
  // Records that from the start a token lies in `slot` that `readers` consumers have yet to read.
  void Hold(int32_t slot, int32_t readers) { readers_[slot] = readers; }
  // Records that one consumer has read `slot`. Precondition: in use. kFree if that consumer was the
  // last.
  Use Release(int32_t slot) { return --readers_[slot] == 0 ? Use::kFree : Use::kInUse; }

  bool is_free(int32_t slot) const { return readers_[slot] == 0; }
  int32_t readers(int32_t slot) const { return readers_[slot]; }
  int32_t slots() const { return static_cast<int32_t>(readers_.size()); }
  int32_t num_in_use() const {
    int32_t n = 0;
    for (int32_t r : readers_) n += r > 0;
    return n;
  }

 private:
  int32_t num_consumers_;
  std::vector<int32_t> readers_;
};

}  // namespace weir::actors
