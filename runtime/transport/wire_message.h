// A WireMessage crosses between processes: a header of fixed size, and a payload behind the header
// unless the payload lies in the receiver's memory already. This header encodes messages, and
// decodes any bytes without harm. MessageLedger decides whether a well-formed message is right at
// its moment.
// Thread rule: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/transport/transport.h"

namespace weir::transport {

struct WireMessage {
  // A bell says nothing but that the receiver shall look into its message rings.
  enum class Kind : uint8_t { kHello = 1, kToken = 2, kCredit = 3, kBye = 4, kBell = 5 };
  // The place of a token's payload: nowhere, in the slot already, behind the header.
  enum class Payload : uint8_t { kNone = 0, kMapped = 1, kSent = 2 };

  uint64_t job_tag = 0;   // JobTag of the sender's job, epoch and role
  uint64_t pair_tag = 0;  // PairTag of sender and receiver (pair_key.h)
  uint32_t epoch = 0;     // of the network
  uint16_t role = 0;
  Kind kind = Kind::kHello;
  Payload payload = Payload::kNone;
  RankId sender{0};
  EdgeHandle receiver_edge;  // the receiver's number of the edge
  uint32_t number = 0;       // of this token or credit on its edge, from 0, modulo 2^32
  uint32_t checksum = 0;     // CRC32C of the payload; 0 where none is computed
  // A token has a whole header. A credit has edge and slot. A bye has as its sequence the number of
  // tokens and credits that the sender has sent to this receiver. All other fields are zero.
  MessageHeader header;
};

inline constexpr size_t kWireMessageBytes = 96;
// Messages without a payload may travel behind another one, in the same header: up to this many.
inline constexpr int kRidersMax = 3;

// Writes kWireMessageBytes to `out`.
void EncodeWireMessage(const WireMessage& message, char* out);
// kDataLoss unless `size` bytes are exactly a message with known kind and payload.
absl::StatusOr<WireMessage> DecodeWireMessage(const char* data, size_t size);

// Returns a tag that tells jobs, epochs and roles apart. The tag is made from a secret, so that no
// stranger can name it.
uint64_t JobTag(const std::string& job_key, uint32_t epoch, uint16_t role);

}  // namespace weir::transport
