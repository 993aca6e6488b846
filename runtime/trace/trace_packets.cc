#include "runtime/trace/trace_packets.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
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

constexpr char kCopyAgain[] = "copy the file again, or record it again: weir train --trace FILE";

std::string WholeText(int64_t packets) {
  return absl::StrCat("after ", packets, packets == 1 ? " whole packet" : " whole packets");
}

// Returns the error of a file of which byte `at` and those after it are `what`.
absl::Status BrokenAt(absl::string_view name, absl::string_view what, int64_t at, size_t bytes,
                      int64_t packets) {
  if (packets == 0) return DamagedTrace(name, what);
  return Damaged({"W0531", std::string(name), "a trace written by weir",
                  absl::StrCat(what, " at byte ", at, " of ", bytes, ", ", WholeText(packets)),
                  kCopyAgain});
}

// Returns whether the field that begins at byte `at`, or its length, reaches beyond the end of the
// file.
bool IsCutShort(absl::string_view file, int64_t at) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(file.data()) + at,
                      static_cast<int>(file.size()) - static_cast<int>(at));
  uint32_t tag = 0, length = 0;
  if (!in.ReadVarint32(&tag)) return true;
  if (tag != kTracePacketTag) return false;
  if (!in.ReadVarint32(&length)) return true;
  return length <= kPacketBytesMax &&
         length > file.size() - static_cast<size_t>(at) - static_cast<size_t>(in.CurrentPosition());
}

absl::Status CutTrace(absl::string_view name, int64_t at, size_t bytes, int64_t packets) {
  return Damaged(
      {"W0531", std::string(name), "a whole trace written by weir",
       absl::StrCat("that the file ends at byte ", bytes,
                    ", within the packet that begins at byte ", at, ", ", WholeText(packets)),
       kCopyAgain});
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
  int64_t packets = 0;
  for (int64_t at = 0; static_cast<size_t>(at) < file.size(); at = in.CurrentPosition()) {
    if (IsCutShort(file, at)) return CutTrace(name, at, file.size(), packets);
    const uint32_t tag = in.ReadTag();
    uint32_t length = 0;
    if (tag != kTracePacketTag || !in.ReadVarint32(&length) || length > kPacketBytesMax)
      return BrokenAt(name, "other bytes", at, file.size(), packets);
    if (length > kCountedPacketBytes &&
        !HasFewParts(file.substr(static_cast<size_t>(in.CurrentPosition()), length))) {
      return BrokenAt(name, "a damaged packet, or one of too many parts,", at, file.size(),
                      packets);
    }
    const auto limit = in.PushLimit(static_cast<int>(length));
    if (!packet.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage())
      return BrokenAt(name, "a damaged packet", at, file.size(), packets);
    in.PopLimit(limit);
    ++packets;
    take(packet);
  }
  return absl::OkStatus();
}

}  // namespace weir::trace
