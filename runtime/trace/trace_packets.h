// The packets of a trace file, one after another.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/trace.pb.h"

namespace weir {

inline constexpr uint32_t kTracePacketTag = (1u << 3) | 2u;  // Trace.packet, length-delimited

// kDataLoss (W0531), which calls the file by `name`, at the first byte that is no packet. Never
// crashes.
absl::Status ForEachTracePacket(absl::string_view file, absl::string_view name,
                                const std::function<void(trace::TracePacket& packet)>& take);

// W0531: what is wrong with a trace file.
absl::Status DamagedTrace(absl::string_view name, absl::string_view found);

}  // namespace weir
