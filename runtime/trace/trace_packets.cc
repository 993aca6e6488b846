#include "runtime/trace/trace_packets.h"

#include <limits>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

constexpr uint32_t kPacketBytesMax = 1 << 24;

}  // namespace

absl::Status DamagedTrace(absl::string_view name, absl::string_view found) {
  return Damaged({"W0531", std::string(name), "a trace written by weir", std::string(found), "weir train --trace FILE"});
}

absl::Status ForEachTracePacket(absl::string_view file, absl::string_view name, const std::function<void(trace::TracePacket& packet)>& take) {
  if (file.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return DamagedTrace(name, "more than 2 GiB");
  google::protobuf::io::ArrayInputStream array(file.data(), static_cast<int>(file.size()));
  google::protobuf::io::CodedInputStream in(&array);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  trace::TracePacket packet;
  while (uint32_t tag = in.ReadTag()) {
    uint32_t length = 0;
    if (tag != kTracePacketTag || !in.ReadVarint32(&length) || length > kPacketBytesMax) return DamagedTrace(name, "other bytes");
    const auto limit = in.PushLimit(static_cast<int>(length));
    if (!packet.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) return DamagedTrace(name, "a damaged packet");
    in.PopLimit(limit);
    take(packet);
  }
  return absl::OkStatus();
}

}  // namespace weir
