// Credentials prove the identity of each party of a job. The starter makes an authority for each
// job, which lives in the starter's memory only, and from the authority a key and certificate for
// the coordinator and for each worker. Credentials reach a worker through a pipe, never through its
// arguments, environment or a file. Both ends of a connection prove their identity (mTLS).
// Thread rule: values and pure functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace weir::control {

struct Credentials {
  std::string authority_pem;    // certificate that signs for the job
  std::string certificate_pem;  // of this party, its identity inside
  std::string key_pem;          // private
  // 32 random bytes that all parties of the job share; they authenticate the values that the
  // parties exchange.
  std::string job_key;
};

// Returns whether certificate and key parse and belong together. gRPC takes any pair, and then
// refuses every connection.
bool IsKeyPair(const Credentials& credentials);

// Return DNS-like identities: "coordinator.<job>" and "worker-3.epoch-1.<job>".
std::string CoordinatorIdentity(const std::string& job_id);
std::string WorkerIdentity(const std::string& job_id, WorkerId worker, uint32_t epoch);

class JobAuthority {
 public:
  static absl::StatusOr<JobAuthority> Create(const std::string& job_id);
  absl::StatusOr<Credentials> Issue(const std::string& identity) const;

 private:
  struct Keys;
  std::shared_ptr<const Keys> keys_;
};

// Returns 16 random hexadecimal digits.
std::string MakeJobId();

// Authenticate returns the HMAC-SHA256 of `message`, 32 bytes; IsAuthentic compares in constant
// time.
std::string Authenticate(const std::string& key, const std::string& message);
bool IsAuthentic(const std::string& key, const std::string& message, const std::string& code);

}  // namespace weir::control
