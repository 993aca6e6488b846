#include "runtime/transport/wire_message.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/transport/envelope.h"

namespace weir::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// Visits all fields in the order of the wire.
template <typename Message, typename Field>
void ForEachField(Message& m, Field&& field) {
  field(m.job_tag);
  field(m.pair_tag);
  field(m.epoch);
  field(m.role);
  field(m.kind);
  field(m.payload);
  field(m.sender);
  field(m.receiver_edge);
  field(m.number);
  field(m.checksum);
  field(m.header.epoch);
  field(m.header.role);
  field(m.header.codec_version);
  field(m.header.edge);
  field(m.header.slot);
  field(m.header.micro_batch);
  field(m.header.sequence);
  field(m.header.step);
  field(m.header.version);
  field(m.header.payload_bytes);
}

}  // namespace

void EncodeWireMessage(const WireMessage& message, char* out) {
  char* next = out;
  ForEachField(message, [&next](const auto& value) {
    std::memcpy(next, &value, sizeof(value));
    next += sizeof(value);
  });
}

absl::StatusOr<WireMessage> DecodeWireMessage(const char* data, size_t size) {
  if (size != kWireMessageBytes) {
    return absl::DataLossError(
        absl::StrCat("a header of ", size, " bytes instead of ", kWireMessageBytes));
  }
  WireMessage message;
  const char* next = data;
  ForEachField(message, [&next](auto& value) {
    std::memcpy(&value, next, sizeof(value));
    next += sizeof(value);
  });
  if (message.kind < WireMessage::Kind::kHello || message.kind > WireMessage::Kind::kBell) {
    return absl::DataLossError(absl::StrCat("a message of kind ", static_cast<int>(message.kind)));
  }
  if (message.payload > WireMessage::Payload::kSent) {
    return absl::DataLossError(
        absl::StrCat("a payload of kind ", static_cast<int>(message.payload)));
  }
  return message;
}

uint64_t JobTag(const std::string& job_key, uint32_t epoch, uint16_t role) {
  const std::string code =
      Hmac(job_key, absl::StrCat("weir transport, epoch ", epoch, ", role ", role));
  uint64_t tag = 0;
  std::memcpy(&tag, code.data(), sizeof(tag));
  return tag;
}

}  // namespace weir::transport
