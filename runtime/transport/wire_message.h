// What crosses between processes: a header of fixed size, and a payload behind it unless that
// lies in the receiver's memory already. Encoding, and decoding of any bytes without harm.
// Whether a well-formed message is right at this moment, MessageLedger decides.
// Thread rule: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/transport/transport.h"

namespace weir {

struct WireMessage {
  enum class Kind : uint8_t { kHello = 1, kToken = 2, kCredit = 3, kBye = 4 };
  // Where a token's payload is: nowhere, in the slot already, behind the header.
  enum class Payload : uint8_t { kNone = 0, kMapped = 1, kSent = 2 };

  uint64_t job_tag = 0;  // JobTag of the sender's job, epoch and role
  uint32_t epoch = 0;    // of the network
  uint16_t role = 0;
  Kind kind = Kind::kHello;
  Payload payload = Payload::kNone;
  int32_t sender = 0;             // rank
  EdgeHandle receiver_edge = -1;  // the receiver's number of the edge
  uint32_t number = 0;            // of this token or credit on its edge, from 0, modulo 2^32
  uint32_t checksum = 0;          // CRC32C of the payload; 0 where none is computed
  // A token's. Of a credit: edge and slot. Of a bye: sequence, how many tokens and credits the
  // sender has sent to this receiver. Else zero.
  MessageHeader header;
};

inline constexpr size_t kWireMessageBytes = 88;

// Writes kWireMessageBytes.
void EncodeWireMessage(const WireMessage& message, char* out);
// kDataLoss unless `size` bytes are exactly a message with known kind and payload.
absl::StatusOr<WireMessage> DecodeWireMessage(const char* data, size_t size);

// Tells jobs, epochs and roles apart: from a secret, so that no stranger can name it.
uint64_t JobTag(const std::string& job_key, uint32_t epoch, uint16_t role);

}  // namespace weir
