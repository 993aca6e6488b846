#include "runtime/transport/wire_message.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "runtime/transport/envelope.h"

namespace weir::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// A message in memory is a message on the wire: the fields of both stand one after another.
static_assert(std::is_trivially_copyable_v<WireMessage>);
static_assert(sizeof(WireMessage) == kWireMessageBytes);
static_assert(offsetof(WireMessage, sender) == 24);
static_assert(offsetof(WireMessage, header) == 40);
static_assert(offsetof(MessageHeader, edge) == 8);
static_assert(offsetof(MessageHeader, payload_bytes) == 48);

}  // namespace

void EncodeWireMessage(const WireMessage& message, char* out) {
  std::memcpy(out, &message, sizeof(message));
}

absl::StatusOr<WireMessage> DecodeWireMessage(const char* data, size_t size) {
  if (size != kWireMessageBytes) {
    return absl::DataLossError(
        absl::StrCat("a header of ", size, " bytes instead of ", kWireMessageBytes));
  }
  WireMessage message;
  std::memcpy(&message, data, sizeof(message));
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
