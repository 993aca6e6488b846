// How ops along a sequence run on a few positions at a time, with what they keep of the earlier
// ones. The compiler derives the graph that generates from these entries
// (compiler/dims/decode_job.h), and so names no op itself. An op registers its entries beside its
// definition. Thread rule: filled before main, frozen after.
#pragma once

#include <string>
#include <vector>

namespace weir::ops {

// An op that treats the positions of a sequence differently is replaced by `op`, which has the
// attributes of the replaced one apart from `if_true`, and takes one more operand: the position of
// each element, i32[batch, positions].
struct AtPositions {
  int axis = 1;         // of operand 0, and of the result: the positions. Axis 0 is the batch
  int num_inputs = 1;   // of the op; with more operands the op is not replaced
  std::string if_true;  // an attribute that must be true; empty: none
  std::string op;
  // `op` keeps what it was given: KeepsOutputs(op). It takes yet another operand, the table of the
  // pages of each sequence, i32[batch, entries], whose entry 0 stands for no page.
  bool keeps = false;
};

// Returns the entry of an op; nullptr: the op treats all positions alike, or runs on all of them at
// once.
const AtPositions* FindAtPositions(const std::string& op);

// Returns the ops whose entries name `op`, but for `op` itself.
std::vector<std::string> OpsThatRunAs(const std::string& op);

// Returns whether the outputs of `op` after the first are memory that the op reads and writes in
// place and that stays from step to step. The memory is a pool of pages, and the op has the
// attributes `pages`, their number for each row of the batch, and `page_size`, the positions of a
// page.
bool KeepsOutputs(const std::string& op);

// Registers an entry for `op`. Ends the program on a duplicate. Returns true.
bool RegisterAtPositions(const std::string& op, AtPositions entry);

#define WEIR_REGISTER_AT_POSITIONS(op, ...)                   \
  [[maybe_unused]] static const bool weir_at_positions_##op = \
      ::weir::ops::RegisterAtPositions(#op, ::weir::ops::AtPositions __VA_ARGS__)

}  // namespace weir::ops
