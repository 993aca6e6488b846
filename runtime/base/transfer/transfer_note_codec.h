// Converts a TransferNote to its message and back. Safe on any message: texts are taken as they
// are. Thread rule: pure functions.
#pragma once

#include "proto/transfer_note.pb.h"
#include "runtime/base/transfer/transfer_note.h"

namespace weir {

TransferNote FromProto(const proto::TransferNote& in);
proto::TransferNote ToProto(const TransferNote& in);

}  // namespace weir
