// A TransferNote says what a transfer changes, and why, for people. The compiler writes it into the
// plan, and traces carry it on; nothing else depends on it. proto/transfer_note.proto has the same
// as a message. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir {

struct TransferNote {
  // Tensors that travel together. Those of equal layouts are one change.
  struct Change {
    std::string from;  // "[dp: P(sum), tp: B]"
    std::string to;
    int32_t tensors = 1;
    friend bool operator==(const Change&, const Change&) = default;
  };
  // A criterion of the compiler that decided over a layout.
  struct Reason {
    std::string kind;  // "rule"; the message lists the kinds
    std::string axis;  // of the mesh; empty: all
    std::string text;  // "rule batch -> dp"
    friend bool operator==(const Reason&, const Reason&) = default;
  };
  std::string method;  // "all-gather"
  std::vector<Change> changes;
  int32_t from_stage = 0;
  int32_t to_stage = 0;
  std::vector<Reason> why;
  friend bool operator==(const TransferNote&, const TransferNote&) = default;
};

// Returns "[dp: P(sum)] -> [dp: B] and 2 other changes"; the first change is that of most tensors.
// A move to another stage is "[dp: S(0)], stage 0 -> 1". Empty if the note has no changes.
std::string ChangesText(const TransferNote& note);
// Returns "rule batch -> dp, rule heads -> tp"; empty if the compiler gave no reason.
std::string WhyText(const TransferNote& note);

}  // namespace weir
