// A sealed value: what ranks leave for each other in an Exchange, so that the receiver parses
// only bytes that a holder of the job's key has written for this very purpose.
// It authenticates; it does not hide. Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weir {

// HMAC-SHA256 of `message`, 32 bytes.
std::string Hmac(const std::string& key, const std::string& message);

// `subject` says what the content is and whose; an envelope opens only for the same one.
std::string SealEnvelope(const std::string& key, const std::string& subject,
                         const std::string& content);
// The content. kDataLoss for anything that SealEnvelope did not make of this key and subject.
absl::StatusOr<std::string> OpenEnvelope(const std::string& key, const std::string& subject,
                                         const std::string& envelope);

}  // namespace weir
