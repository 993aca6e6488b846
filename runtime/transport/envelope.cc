#include "runtime/transport/envelope.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::transport {
namespace {

//   magic 8 | length of content 8 | content | code 32
constexpr char kMagic[8] = {'W', 'E', 'I', 'R', 'E', 'N', 'V', '1'};
constexpr size_t kHeadBytes = sizeof(kMagic) + sizeof(uint64_t);
constexpr size_t kCodeBytes = 32;

// The subject's length comes first, so that subject and content cannot trade bytes.
std::string Code(const std::string& key, const std::string& subject,
                 absl::string_view head_and_content) {
  return Hmac(key, absl::StrCat(subject.size(), ":", subject, head_and_content));
}

absl::Status NotWhole(const std::string& subject, const std::string& expected,
                      const std::string& found) {
  return Damaged({"W0523", subject, expected, found, "run all ranks from one starter"});
}

}  // namespace

std::string Hmac(const std::string& key, const std::string& message) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  // An empty key is a key too, but HMAC takes a null pointer for "as before".
  const char* key_bytes = key.empty() ? "" : key.data();
  ::HMAC(::EVP_sha256(), key_bytes, static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(message.data()), message.size(), code, &size);
  return std::string(reinterpret_cast<const char*>(code), size);
}

std::string SealEnvelope(const std::string& key, const std::string& subject,
                         const std::string& content) {
  std::string envelope(kMagic, sizeof(kMagic));
  const uint64_t length = content.size();
  envelope.append(reinterpret_cast<const char*>(&length), sizeof(length));
  envelope += content;
  return envelope + Code(key, subject, absl::string_view(envelope.data(), envelope.size()));
}

absl::StatusOr<std::string> OpenEnvelope(const std::string& key, const std::string& subject,
                                         const std::string& envelope) {
  if (envelope.size() < kHeadBytes + kCodeBytes ||
      std::memcmp(envelope.data(), kMagic, sizeof(kMagic)) != 0) {
    return NotWhole(subject, "an envelope", absl::StrCat(envelope.size(), " other bytes"));
  }
  uint64_t length = 0;
  std::memcpy(&length, envelope.data() + sizeof(kMagic), sizeof(length));
  const size_t room = envelope.size() - kHeadBytes - kCodeBytes;
  if (length != room)
    return NotWhole(subject, absl::StrCat(length, " bytes of content"), absl::StrCat(room));
  const std::string code =
      Code(key, subject, absl::string_view(envelope.data(), kHeadBytes + room));
  if (::CRYPTO_memcmp(code.data(), envelope.data() + kHeadBytes + room, kCodeBytes) != 0) {
    return NotWhole(subject, "the code of this job's key", "another");
  }
  return envelope.substr(kHeadBytes, room);
}

}  // namespace weir::transport
