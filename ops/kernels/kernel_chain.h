// A KernelChain is the kernels that one act runs, in order, with the memory that each kernel reads
// and writes. A kind of device may have a joiner, which puts one kernel in the place of several: a
// product that adds to what is there in place of a product and an addition. A joined chain leaves
// the same values in every output, but for roundings between the kernels that it joins, and leaves
// in scratch memory what it likes.
//
// The planned places of scratch stay as they are, so whether kernels can be joined depends on what
// the plan has put where: the functions here tell. Not here: which kernels a device joins
// (cuda/join.h).
// Thread rule: values and pure functions; registration before main.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

// The bytes of an operand. Operands in different memories share no bytes.
struct ChainOperand {
  enum class Space : uint8_t { kNone, kInput, kOutput, kScratch, kState };
  Space space = Space::kNone;  // kNone: an absent operand
  int32_t index = 0;           // port, or number of the state; 0 for scratch
  int32_t token = 0;           // of the port
  int64_t offset = 0, bytes = 0;

  bool operator==(const ChainOperand&) const = default;
  bool Overlaps(const ChainOperand& other) const {
    return space != Space::kNone && space == other.space && index == other.index &&
           token == other.token && offset < other.offset + other.bytes &&
           other.offset < offset + bytes;
  }
};

struct ChainKernel {
  KernelSpec spec;            // of a joined kernel: that of the first call, under another name
  std::vector<size_t> calls;  // of the program, whose work this kernel does; the first names it
  std::vector<ChainOperand> inputs, outputs;
  std::unique_ptr<Kernel> joined;  // null: the kernel of its one call

  bool Reads(const ChainOperand& operand) const;   // any byte of the operand as an input
  bool Writes(const ChainOperand& operand) const;  // any byte of the operand as an output
  // Kernels that update their outputs read them, too, so a change of an output's place in the order
  // has to look for both.
  bool Touches(const ChainOperand& operand) const { return Reads(operand) || Writes(operand); }
};

using KernelChain = std::vector<ChainKernel>;

// Returns the first kernel after `from` that touches the operand.
std::optional<size_t> FirstToTouch(const KernelChain& chain, size_t from,
                                   const ChainOperand& operand);

// Returns whether nobody reads what the operand's bytes, which must be scratch, hold before kernel
// `from` does its work after that: all later readers find bytes that `from` or others have written
// anew.
bool IsDeadAfter(const KernelChain& chain, size_t from, const ChainOperand& operand);

// Returns whether kernel `from` may do its work at the place of the later kernel `to`, or a part of
// kernel `to` be done at the place of `from`: the kernels between them neither write what is read
// nor touch what is written.
bool CanMove(const KernelChain& chain, size_t from, size_t to,
             const std::vector<ChainOperand>& reads, const std::vector<ChainOperand>& writes);

// Makes the readers of scratch operand `old`, which kernel `from` made, read `now` in its place.
// Returns whether that is possible; if not, the chain stays as it is. Possible means: each of them
// reads just that operand, and nobody writes to `now` before the last of them has read, except an
// addition of equal shapes that reads `old` and writes all of `now`.
bool MoveScratch(KernelChain* chain, size_t from, const ChainOperand& old, const ChainOperand& now);

// A ChainJoiner replaces kernels of a chain. An error is the user's: a setting that is wrong.
using ChainJoiner = absl::Status (*)(KernelChain* chain);
// Fatal on a duplicate.
void RegisterChainJoiner(const std::string& device, ChainJoiner joiner);
// Leaves the chain as it is for a kind of device without a joiner.
absl::Status JoinKernels(const std::string& device, KernelChain* chain);

#define WEIR_REGISTER_CHAIN_JOINER(device, joiner)            \
  [[maybe_unused]] static const bool weir_joiner_registered = \
      (::weir::kernels::RegisterChainJoiner(device, joiner), true)

}  // namespace weir::kernels
