// Converts a Transfer to the field of a plan that holds it, and back. There is no other codec.
// Thread rule: pure functions.
#pragma once

#include <optional>

#include "proto/plan.pb.h"
#include "runtime/base/transfer/transfer.h"

namespace weir {

// Sets the oneof `transfer` of `call`. A kernel that belongs to no transfer sets nothing.
void EncodeTransfer(const Transfer& transfer, proto::KernelCall* call);

// Reads the oneof `transfer` of `call` into `out`. Returns what is wrong, by the rules of
// FindFlaw(Transfer) too; then `out` is unspecified.
std::optional<TransferFlaw> DecodeTransfer(const proto::KernelCall& call, Transfer* out);

}  // namespace weir
