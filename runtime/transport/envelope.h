// An envelope is a sealed value that ranks leave for each other in an Exchange. The receiver parses
// only bytes that a holder of the job's key has written for this very purpose. An envelope
// authenticates; it does not hide. Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weir::transport {

// Returns the HMAC-SHA256 of `message`, 32 bytes.
std::string Hmac(const std::string& key, const std::string& message);

// `subject` names the content and its owner; an envelope opens only for the same subject.
std::string SealEnvelope(const std::string& key, const std::string& subject,
                         const std::string& content);
// Returns the content. kDataLoss for anything that SealEnvelope did not make of this key and
// subject.
absl::StatusOr<std::string> OpenEnvelope(const std::string& key, const std::string& subject,
                                         const std::string& envelope);

}  // namespace weir::transport
