#include "ops/kernels/kernel_chain.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace weir::kernels {
namespace {

// The map is built on first use, since registrations run before main in any order.
std::map<std::string, ChainJoiner>& Joiners() {
  static auto* joiners = new std::map<std::string, ChainJoiner>();
  return *joiners;
}

bool AnyOverlaps(const std::vector<ChainOperand>& operands, const ChainOperand& operand) {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const ChainOperand& other) { return other.Overlaps(operand); });
}

// Removes the bytes of `operand` from operands of the same memory.
std::vector<ChainOperand> Without(const std::vector<ChainOperand>& operands,
                                  const ChainOperand& operand) {
  std::vector<ChainOperand> rest;
  for (const ChainOperand& from : operands) {
    if (!from.Overlaps(operand)) {
      rest.push_back(from);
      continue;
    }
    if (from.offset < operand.offset) {
      rest.push_back(from);
      rest.back().bytes = operand.offset - from.offset;
    }
    const int64_t end = operand.offset + operand.bytes;
    if (end < from.offset + from.bytes) {
      rest.push_back(from);
      rest.back().offset = end;
      rest.back().bytes = from.offset + from.bytes - end;
    }
  }
  return rest;
}

bool IsAdditionInPlace(const ChainKernel& kernel, const ChainOperand& old,
                       const ChainOperand& now) {
  return kernel.spec.op == "add" && kernel.outputs[0] == now &&
         kernel.inputs[0].bytes == now.bytes && kernel.inputs[1].bytes == now.bytes &&
         old.bytes == now.bytes;
}

}  // namespace

bool ChainKernel::Reads(const ChainOperand& operand) const { return AnyOverlaps(inputs, operand); }
bool ChainKernel::Writes(const ChainOperand& operand) const {
  return AnyOverlaps(outputs, operand);
}

std::optional<size_t> FirstToTouch(const KernelChain& chain, size_t from,
                                   const ChainOperand& operand) {
  for (size_t i = from + 1; i < chain.size(); ++i) {
    if (chain[i].Touches(operand)) return i;
  }
  return std::nullopt;
}

bool IsDeadAfter(const KernelChain& chain, size_t from, const ChainOperand& operand) {
  std::vector<ChainOperand> live = {operand};
  for (size_t i = from; i < chain.size() && !live.empty(); ++i) {
    if (i > from && std::any_of(live.begin(), live.end(),
                                [&](const ChainOperand& part) { return chain[i].Reads(part); })) {
      return false;
    }
    for (const ChainOperand& output : chain[i].outputs) live = Without(live, output);
  }
  return true;
}

bool CanMove(const KernelChain& chain, size_t from, size_t to,
             const std::vector<ChainOperand>& reads, const std::vector<ChainOperand>& writes) {
  for (size_t i = from + 1; i < to; ++i) {
    for (const ChainOperand& operand : reads) {
      if (chain[i].Writes(operand)) return false;
    }
    for (const ChainOperand& operand : writes) {
      if (chain[i].Touches(operand)) return false;
    }
  }
  return true;
}

bool MoveScratch(KernelChain* chain, size_t from, const ChainOperand& old,
                 const ChainOperand& now) {
  std::vector<ChainOperand*> readers;
  bool written = false;  // `now`, by somebody who may not be the last reader
  for (size_t i = from + 1; i < chain->size(); ++i) {
    ChainKernel& kernel = (*chain)[i];
    if (kernel.Reads(old)) {
      if (written) return false;
      for (ChainOperand& input : kernel.inputs) {
        if (!input.Overlaps(old)) continue;
        if (input != old) return false;
        readers.push_back(&input);
      }
      if (kernel.Writes(now) && !IsAdditionInPlace(kernel, old, now)) return false;
    }
    written = written || kernel.Writes(now);
    if (!kernel.Writes(old)) continue;
    if (!IsDeadAfter(*chain, i, old)) return false;
    break;
  }
  for (ChainOperand* const reader : readers) *reader = now;
  return true;
}

void RegisterChainJoiner(const std::string& device, ChainJoiner joiner) {
  if (!Joiners().emplace(device, joiner).second) {
    std::fprintf(stderr, "device %s has two joiners of kernels\n", device.c_str());
    std::abort();
  }
}

absl::Status JoinKernels(const std::string& device, KernelChain* chain) {
  const auto joiner = Joiners().find(device);
  return joiner == Joiners().end() ? absl::OkStatus() : joiner->second(chain);
}

}  // namespace weir::kernels
