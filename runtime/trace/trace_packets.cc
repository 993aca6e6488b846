#include "runtime/trace/trace_packets.h"

#include <limits>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/status.h"

namespace weir::trace {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t kPacketBytesMax = 1 << 24;
// A part of two bytes becomes a message of a hundred, so a large packet is counted before it is
// parsed. The facts of a plan of 20,000 actors have some 100,000 parts.
constexpr uint32_t kCountedPacketBytes = 1 << 16;
constexpr int64_t kPartsMax = 300'000;

// Adds to `parts` the messages, elements and unknown fields of a message of `type`. Returns false
// if the next bytes are no field, or there are too many parts.
bool CountParts(const Descriptor& type, CodedInputStream* in, int64_t* parts) {
  while (const uint32_t tag = in->ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
    if (field == nullptr || field->is_repeated()) ++*parts;
    uint64_t value = 0;
    uint32_t length = 0;
    switch (tag & 7) {
      case 0:
        if (!in->ReadVarint64(&value)) return false;
        break;
      case 1:
        if (!in->Skip(8)) return false;
        break;
      case 5:
        if (!in->Skip(4)) return false;
        break;
      case 2: {
        if (!in->ReadVarint32(&length) || length > kPacketBytesMax) return false;
        if (field != nullptr && field->message_type() != nullptr) {
          const auto limit = in->PushLimit(static_cast<int>(length));
          if (!CountParts(*field->message_type(), in, parts)) return false;
          in->PopLimit(limit);
        } else {
          const bool is_bytes =
              field == nullptr || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
          if (!is_bytes) *parts += length;  // numbers, packed: of a byte each
          if (!in->Skip(static_cast<int>(length))) return false;
        }
        break;
      }
      default: return false;
    }
    if (*parts > kPartsMax) return false;
  }
  return true;
}

bool HasFewParts(absl::string_view packet) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(packet.data()),
                      static_cast<int>(packet.size()));
  int64_t parts = 0;
  return CountParts(*proto::TracePacket::descriptor(), &in, &parts);
}

}  // namespace

absl::Status DamagedTrace(absl::string_view name, absl::string_view found) {
  return Damaged({"W0531", std::string(name), "a trace written by weir", std::string(found),
                  "weir train --trace FILE"});
}

absl::Status ForEachTracePacket(absl::string_view file, absl::string_view name,
                                const std::function<void(proto::TracePacket& packet)>& take) {
  if (file.size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return DamagedTrace(name, "more than 2 GiB");
  google::protobuf::io::ArrayInputStream array(file.data(), static_cast<int>(file.size()));
  google::protobuf::io::CodedInputStream in(&array);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  proto::TracePacket packet;
  while (uint32_t tag = in.ReadTag()) {
    uint32_t length = 0;
    if (tag != kTracePacketTag || !in.ReadVarint32(&length) || length > kPacketBytesMax)
      return DamagedTrace(name, "other bytes");
    if (length > kCountedPacketBytes &&
        !HasFewParts(file.substr(static_cast<size_t>(in.CurrentPosition()), length))) {
      return DamagedTrace(name, "a damaged packet, or one of too many parts");
    }
    const auto limit = in.PushLimit(static_cast<int>(length));
    if (!packet.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage())
      return DamagedTrace(name, "a damaged packet");
    in.PopLimit(limit);
    take(packet);
  }
  return absl::OkStatus();
}

}  // namespace weir::trace
