#include "tools/hosts/sealed_stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/control/acknowledged.h"
#include "tools/launch/worker_process.h"

namespace weir::hosts {
namespace {

// With a pre-shared key from a callback, OpenSSL uses SHA-256 alone.
constexpr char kCipherSuites[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
// The other machine's system answers at least every second, also for a program that is stopped.
constexpr int64_t kSilentMs = 10'000;

struct ContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

std::string LibraryText() {
  char text[256] = "";
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof(text));
  ERR_clear_error();
  return text;
}

}  // namespace

struct SealedStream::State {
  ~State() { OPENSSL_cleanse(secret.data(), secret.size()); }

  launch::OwnedDescriptor socket;
  Side side = Side::kListens;
  bool writes = true;
  std::string secret;
  std::string name;  // of the side that dials
  std::unique_ptr<SSL_CTX, ContextDeleter> context;
  std::unique_ptr<SSL, SslDeleter> ssl;

  // OpenSSL asks for the key of the identity that the other side has told.
  static unsigned int GiveKey(SSL* ssl, const char* identity, unsigned char* key,
                              unsigned int size) {
    auto* const state = static_cast<State*>(SSL_get_app_data(ssl));
    state->name = identity == nullptr ? "" : identity;
    return state->CopySecret(key, size);
  }
  static unsigned int TellIdentity(SSL* ssl, const char* /*hint*/, char* identity,
                                   unsigned int identity_size, unsigned char* key,
                                   unsigned int size) {
    auto* const state = static_cast<State*>(SSL_get_app_data(ssl));
    if (state->name.size() >= identity_size) return 0;
    ::memcpy(identity, state->name.c_str(), state->name.size() + 1);
    return state->CopySecret(key, size);
  }
  unsigned int CopySecret(unsigned char* key, unsigned int size) const {
    if (secret.size() > size) return 0;
    ::memcpy(key, secret.data(), secret.size());
    return static_cast<unsigned int>(secret.size());
  }

  // Returns -1 with errno, or 0 for the end, for a result of OpenSSL that is no success.
  ssize_t Failure(int result) const {
    const int system_error = errno;
    switch (SSL_get_error(ssl.get(), result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
      case SSL_ERROR_ZERO_RETURN: return 0;
      case SSL_ERROR_SYSCALL: errno = system_error == 0 ? ECONNRESET : system_error; return -1;
      default:
        ERR_clear_error();
        errno = EPROTO;
        return -1;
    }
  }
};

absl::StatusOr<std::string> MakeSecret() {
  std::string secret(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), kSecretBytes) != 1)
    return absl::InternalError(absl::StrCat("cannot draw random bytes: ", LibraryText()));
  return secret;
}

SealedStream::SealedStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
SealedStream::~SealedStream() = default;

absl::StatusOr<std::unique_ptr<SealedStream>> SealedStream::Make(launch::OwnedDescriptor socket,
                                                                 Side side,
                                                                 const std::string& secret,
                                                                 const std::string& name) {
  auto state = std::make_unique<State>();
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  control::SinceAcknowledgedMs(socket.get());  // from now on the system asks
  state->socket = std::move(socket);
  state->side = side;
  state->secret = secret;
  state->name = name.substr(0, kSealedNameBytesMax);
  state->context.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = state->context.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherSuites) != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1)
    return absl::UnavailableError(absl::StrCat("cannot prepare TLS: ", LibraryText()));
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_server_callback(context, &State::GiveKey);
  SSL_CTX_set_psk_client_callback(context, &State::TellIdentity);
  state->ssl.reset(SSL_new(context));
  if (state->ssl == nullptr || SSL_set_fd(state->ssl.get(), state->socket.get()) != 1)
    return absl::UnavailableError(absl::StrCat("cannot prepare TLS: ", LibraryText()));
  SSL_set_app_data(state->ssl.get(), state.get());
  if (side == Side::kListens) {
    SSL_set_accept_state(state->ssl.get());
  } else {
    SSL_set_connect_state(state->ssl.get());
  }
  return std::unique_ptr<SealedStream>(new SealedStream(std::move(state)));
}

absl::StatusOr<SealedStream::Shaken> SealedStream::Shake() {
  ERR_clear_error();
  const launch::SigpipeHeld held;
  errno = 0;
  const int result = SSL_do_handshake(state_->ssl.get());
  if (result == 1) return Shaken::kDone;
  const int system_error = errno;
  switch (SSL_get_error(state_->ssl.get(), result)) {
    case SSL_ERROR_WANT_READ: return Shaken::kToRead;
    case SSL_ERROR_WANT_WRITE: return Shaken::kToWrite;
    case SSL_ERROR_SYSCALL:
    case SSL_ERROR_ZERO_RETURN:
      return absl::UnavailableError(system_error == 0 ? "the other side closed the connection"
                                                      : ::strerror(system_error));
    default: break;
  }
  ERR_clear_error();
  return absl::PermissionDeniedError("the other side does not know the job's secret");
}

const std::string& SealedStream::peer_name() const { return state_->name; }

ssize_t SealedStream::Read(char* bytes, size_t count) {
  if (!state_->socket.open()) return 0;
  ERR_clear_error();
  const launch::SigpipeHeld held;
  errno = 0;
  const int size = static_cast<int>(std::min<size_t>(count, std::numeric_limits<int>::max()));
  const int result = SSL_read(state_->ssl.get(), bytes, size);
  return result > 0 ? result : state_->Failure(result);
}

ssize_t SealedStream::Write(const char* bytes, size_t count) {
  if (!state_->writes || !state_->socket.open()) {
    errno = EPIPE;
    return -1;
  }
  ERR_clear_error();
  const launch::SigpipeHeld held;
  errno = 0;
  const int size = static_cast<int>(std::min<size_t>(count, std::numeric_limits<int>::max()));
  const int result = SSL_write(state_->ssl.get(), bytes, size);
  if (result > 0) return result;
  if (state_->Failure(result) == 0) errno = EPIPE;
  return -1;
}

bool SealedStream::has_pending() const { return SSL_has_pending(state_->ssl.get()) == 1; }

bool SealedStream::is_silent() const {
  return state_->socket.open() &&
         control::SinceAcknowledgedMs(state_->socket.get()).value_or(0) > kSilentMs;
}

int SealedStream::input() const { return state_->socket.get(); }
int SealedStream::output() const { return state_->writes ? state_->socket.get() : -1; }
void SealedStream::CloseOutput() {
  if (!std::exchange(state_->writes, false)) return;
  const launch::SigpipeHeld held;
  SSL_shutdown(state_->ssl.get());
  ERR_clear_error();
  ::shutdown(state_->socket.get(), SHUT_WR);
}
void SealedStream::Close() { state_->socket.Close(); }

}  // namespace weir::hosts
