#include "runtime/trace/trace_parts.h"

#include <algorithm>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/trace.pb.h"
#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

void Write(const proto::TracePacket& packet, google::protobuf::io::CodedOutputStream* out) {
  out->WriteVarint32(kTracePacketTag);
  out->WriteVarint32(static_cast<uint32_t>(packet.ByteSizeLong()));
  packet.SerializeToCodedStream(out);
}

absl::Status Join(const std::vector<TracePart>& parts,
                  google::protobuf::io::CodedOutputStream* out) {
  bool first = true;
  for (const TracePart& part : parts) {
    const absl::Status read =
        ForEachTracePacket(part.bytes, "part of a trace", [&](proto::TracePacket& packet) {
          if (!first && packet.trusted_packet_sequence_id() == kTraceJobSequence) return;
          packet.set_timestamp(static_cast<uint64_t>(std::max<int64_t>(
              0, static_cast<int64_t>(packet.timestamp()) - part.clock_ahead_ns)));
          Write(packet, out);
        });
    if (!read.ok()) return read;
    first = false;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> JoinTraceParts(const std::vector<TracePart>& parts) {
  std::string joined;
  {
    // A stream fills all the room that the text has, so one stream serves all packets.
    google::protobuf::io::StringOutputStream stream(&joined);
    google::protobuf::io::CodedOutputStream out(&stream);
    WEIR_RETURN_IF_ERROR(Join(parts, &out));
  }
  return joined;
}

}  // namespace weir::trace
