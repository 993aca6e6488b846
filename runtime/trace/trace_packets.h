// Reads the packets of a trace file, one after another.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/trace.pb.h"

namespace weir::trace {

inline constexpr uint32_t kTracePacketTag = (1u << 3) | 2u;  // Trace.packet, length-delimited

// Returns kDataLoss (W0531), with `name` for the file, at the first byte that does not belong to a
// packet. Never crashes.
absl::Status ForEachTracePacket(absl::string_view file, absl::string_view name,
                                const std::function<void(proto::TracePacket& packet)>& take);

// Returns the error W0531, with the flaw of the trace file.
absl::Status DamagedTrace(absl::string_view name, absl::string_view found);

}  // namespace weir::trace
