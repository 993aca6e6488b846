#include "runtime/trace/trace_parts.h"

#include <algorithm>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/trace.pb.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

void Append(const proto::TracePacket& packet, std::string* out) {
  google::protobuf::io::StringOutputStream stream(out);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteVarint32(kTracePacketTag);
  coded.WriteVarint32(static_cast<uint32_t>(packet.ByteSizeLong()));
  packet.SerializeToCodedStream(&coded);
}

}  // namespace

absl::StatusOr<std::string> JoinTraceParts(const std::vector<TracePart>& parts) {
  std::string joined;
  bool first = true;
  for (const TracePart& part : parts) {
    const absl::Status read =
        ForEachTracePacket(part.bytes, "part of a trace", [&](proto::TracePacket& packet) {
          if (!first && packet.trusted_packet_sequence_id() == kTraceJobSequence) return;
          packet.set_timestamp(static_cast<uint64_t>(std::max<int64_t>(
              0, static_cast<int64_t>(packet.timestamp()) - part.clock_ahead_ns)));
          Append(packet, &joined);
        });
    if (!read.ok()) return read;
    first = false;
  }
  return joined;
}

}  // namespace weir::trace
