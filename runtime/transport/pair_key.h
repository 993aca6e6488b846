// Keys by which two ranks of a job know each other's messages. The key of the job proves to a rank
// that a message comes from some rank of the job; the key of a pair proves from which. Each rank
// makes a private key, which never leaves it, and shows the public key on its card. Both ranks of a
// pair compute the same secret from their own private and the other's public key (X25519), and no
// other rank can.
//
// The proof holds if the cards are authentic: the starter lets a worker publish cards of the
// worker's own ranks alone. It does not hold against somebody who can read the network between the
// two ranks, because messages are not encrypted.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace weir::transport {

inline constexpr size_t kPublicKeyBytes = 32;

class PairKey {
 public:
  // kInternal if the cryptographic library fails.
  static absl::StatusOr<PairKey> Make();

  const std::string& public_key() const { return public_key_; }
  // Returns the secret that this key's rank shares with the rank of `public_key`, 32 bytes.
  // kDataLoss if the bytes are no public key.
  absl::StatusOr<std::string> SecretWith(const std::string& public_key) const;

 private:
  std::shared_ptr<void> private_key_;  // OpenSSL's
  std::string public_key_;
};

// Returns the tag of the messages from `sender` to `receiver`, whose secret is `secret`.
uint64_t PairTag(const std::string& secret, RankId sender, RankId receiver);

}  // namespace weir::transport
