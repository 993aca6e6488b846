// A SealedStream is a TCP connection between the starter of a job and the agent of a host, which
// both prove that they know the job's secret, and on which nobody else can read or write: TLS 1.3
// with the secret as its pre-shared key, and a fresh Diffie-Hellman exchange. The side that dials
// also tells its name, which travels in clear text.
//
//   Make -> { Shake until it returns kDone } -> { Read, Write } -> Close
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/hosts/byte_stream.h"

namespace weir::hosts {

inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kSealedNameBytesMax = 120;

// Returns a new secret: kSecretBytes random bytes.
absl::StatusOr<std::string> MakeSecret();

class SealedStream final : public ByteStream {
 public:
  enum class Side : uint8_t { kListens, kDials };
  // Takes a connected socket that does not block. `name`: of the side that dials, at most
  // kSealedNameBytesMax bytes without NUL. Preconditions: the secret has kSecretBytes bytes.
  // kUnavailable if the library has no memory.
  static absl::StatusOr<std::unique_ptr<SealedStream>> Make(launch::OwnedDescriptor socket,
                                                            Side side, const std::string& secret,
                                                            const std::string& name);
  ~SealedStream() override;

  // Goes on with the handshake. The other results than kDone say for what to poll. kUnavailable:
  // the connection has ended; kPermissionDenied: the other side does not know the secret, or is no
  // Weir.
  enum class Shaken : uint8_t { kDone, kToRead, kToWrite };
  absl::StatusOr<Shaken> Shake();

  // The name that the other side has told, after Shake on the side that listens.
  const std::string& peer_name() const;

  ssize_t Read(char* bytes, size_t count) override;
  ssize_t Write(const char* bytes, size_t count) override;
  bool has_pending() const override;
  bool is_silent() const override;
  int input() const override;
  int output() const override;
  void CloseOutput() override;
  void Close() override;

 private:
  struct State;  // OpenSSL's
  explicit SealedStream(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace weir::hosts
