#include "runtime/transport/pair_key.h"

#include <openssl/evp.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/transport/envelope.h"

namespace weir::transport {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)>;
using Context = std::unique_ptr<EVP_PKEY_CTX, decltype(&::EVP_PKEY_CTX_free)>;

EVP_PKEY* RawKey(const std::shared_ptr<void>& key) { return static_cast<EVP_PKEY*>(key.get()); }

absl::Status NoKey() {
  return absl::InternalError("the cryptographic library of this machine makes no X25519 key");
}

absl::Status BadKey(size_t size) {
  return Damaged({"W0523", "a rank's card", "a public key", absl::StrCat(size, " other bytes"),
                  "run the same build on all ranks"});
}

}  // namespace

absl::StatusOr<PairKey> PairKey::Make() {
  const Context context(::EVP_PKEY_CTX_new_id(EVP_PKEY_X25519, nullptr), &::EVP_PKEY_CTX_free);
  EVP_PKEY* made = nullptr;
  if (context == nullptr || ::EVP_PKEY_keygen_init(context.get()) != 1 ||
      ::EVP_PKEY_keygen(context.get(), &made) != 1)
    return NoKey();
  PairKey key;
  key.private_key_ = std::shared_ptr<void>(
      made, [](void* private_key) { ::EVP_PKEY_free(static_cast<EVP_PKEY*>(private_key)); });
  key.public_key_.resize(kPublicKeyBytes);
  size_t size = kPublicKeyBytes;
  if (::EVP_PKEY_get_raw_public_key(made, reinterpret_cast<unsigned char*>(key.public_key_.data()),
                                    &size) != 1)
    return NoKey();
  return key;
}

absl::StatusOr<std::string> PairKey::SecretWith(const std::string& public_key) const {
  const Key theirs(
      ::EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr,
                                    reinterpret_cast<const unsigned char*>(public_key.data()),
                                    public_key.size()),
      &::EVP_PKEY_free);
  if (theirs == nullptr) return BadKey(public_key.size());
  const Context context(::EVP_PKEY_CTX_new(RawKey(private_key_), nullptr), &::EVP_PKEY_CTX_free);
  if (context == nullptr || ::EVP_PKEY_derive_init(context.get()) != 1) return NoKey();
  std::string secret(kPublicKeyBytes, '\0');
  size_t size = secret.size();
  // A public key of small order would give a secret that everybody knows; OpenSSL refuses it.
  if (::EVP_PKEY_derive_set_peer(context.get(), theirs.get()) != 1 ||
      ::EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(secret.data()), &size) != 1)
    return BadKey(public_key.size());
  return secret;
}

uint64_t PairTag(const std::string& secret, RankId sender, RankId receiver) {
  const std::string code =
      Hmac(secret, absl::StrCat("weir messages from rank ", sender, " to rank ", receiver));
  uint64_t tag = 0;
  std::memcpy(&tag, code.data(), sizeof(tag));
  return tag;
}

}  // namespace weir::transport
