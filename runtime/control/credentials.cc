#include "runtime/control/credentials.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir::control {
namespace {

constexpr int kJobKeyBytes = 32;
constexpr int kSerialBits = 127;
// Clocks of hosts may differ, and may be set while a job runs, so the period is long; the key dies
// with the starter anyway.
constexpr long kValidFromS = -7L * 24 * 3600;
constexpr long kValidUntilS = 400L * 24 * 3600;
constexpr char kCoordinatorPrefix[] = "coordinator.";

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* object) const { Free(object); }
};
using KeyPointer = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using CertificatePointer = std::unique_ptr<X509, Freed<X509, X509_free>>;
using NamePointer = std::unique_ptr<X509_NAME, Freed<X509_NAME, X509_NAME_free>>;
using NumberPointer = std::unique_ptr<BIGNUM, Freed<BIGNUM, BN_free>>;
using ExtensionPointer =
    std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION, X509_EXTENSION_free>>;
using BioPointer = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;

absl::Status LibraryError(const char* what) {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", text));
}

std::string TextOf(const BioPointer& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  std::string text(data, size);
  OPENSSL_cleanse(data, size);
  return text;
}

absl::StatusOr<std::string> CertificateText(X509* certificate) {
  BioPointer bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), certificate) != 1)
    return LibraryError("write a certificate");
  return TextOf(bio);
}

absl::StatusOr<std::string> KeyText(EVP_PKEY* key) {
  BioPointer bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr ||
      PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return LibraryError("write a key");
  }
  return TextOf(bio);
}

bool AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  ExtensionPointer extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetName(X509_NAME* name, const std::string& text) {
  // A common name holds 64 characters; only the alternative name is checked.
  const std::string shown = text.substr(0, 64);
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(shown.data()),
                                    static_cast<int>(shown.size()), -1, 0) == 1;
}

// Returns a certificate of `key` without its extensions and signature.
absl::StatusOr<CertificatePointer> Draft(EVP_PKEY* key, const std::string& name) {
  CertificatePointer certificate(X509_new());
  NumberPointer serial(BN_new());
  if (certificate == nullptr || serial == nullptr ||
      X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate.get())) == nullptr ||
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kValidFromS) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValidUntilS) == nullptr ||
      !SetName(X509_get_subject_name(certificate.get()), name) ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return LibraryError("draft a certificate");
  }
  return certificate;
}

// Returns whether a DNS name in a certificate may hold the text. The check keeps commas and the
// like out of OpenSSL's value syntax.
bool IsIdentity(const std::string& identity) {
  if (identity.empty() || identity.size() > 253) return false;
  for (char c : identity) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!ok) return false;
  }
  return true;
}

absl::StatusOr<std::string> RandomBytes(int count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&bytes[0]), count) != 1)
    return LibraryError("draw random bytes");
  return bytes;
}

}  // namespace

struct JobAuthority::Keys {
  KeyPointer key;
  CertificatePointer certificate;
  std::string certificate_pem;
  std::string job_key;
};

bool IsKeyPair(const Credentials& credentials) {
  const std::string& certificate_pem = credentials.certificate_pem;
  const std::string& key_pem = credentials.key_pem;
  BioPointer certificate_bio(
      BIO_new_mem_buf(certificate_pem.data(), static_cast<int>(certificate_pem.size())));
  BioPointer key_bio(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())));
  if (certificate_bio == nullptr || key_bio == nullptr) return false;
  CertificatePointer certificate(
      PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr));
  KeyPointer key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr));
  const bool fits = certificate != nullptr && key != nullptr &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return fits;
}

std::string CoordinatorIdentity(const std::string& job_id) {
  return absl::StrCat(kCoordinatorPrefix, job_id);
}

std::string WorkerIdentity(const std::string& job_id, WorkerId worker, uint32_t epoch) {
  return absl::StrCat("worker-", worker, ".epoch-", epoch, ".", job_id);
}

absl::StatusOr<JobAuthority> JobAuthority::Create(const std::string& job_id) {
  auto keys = std::make_shared<Keys>();
  keys->key.reset(EVP_EC_gen("P-256"));
  if (keys->key == nullptr) return LibraryError("make the key of the job's authority");
  auto certificate = Draft(keys->key.get(), absl::StrCat("authority.", job_id));
  if (!certificate.ok()) return certificate.status();
  X509* drafted = certificate->get();
  if (X509_set_issuer_name(drafted, X509_get_subject_name(drafted)) != 1 ||
      !AddExtension(drafted, drafted, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(drafted, drafted, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(drafted, drafted, NID_subject_key_identifier, "hash") ||
      X509_sign(drafted, keys->key.get(), EVP_sha256()) == 0) {
    return LibraryError("sign the certificate of the job's authority");
  }
  auto text = CertificateText(drafted);
  if (!text.ok()) return text.status();
  auto job_key = RandomBytes(kJobKeyBytes);
  if (!job_key.ok()) return job_key.status();
  keys->certificate = std::move(*certificate);
  keys->certificate_pem = std::move(*text);
  keys->job_key = std::move(*job_key);
  JobAuthority authority;
  authority.keys_ = std::move(keys);
  return authority;
}

absl::StatusOr<Credentials> JobAuthority::Issue(const std::string& identity) const {
  if (!IsIdentity(identity)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CEscape(identity), "' is no identity: a-z, 0-9, '-' and '.', at most 253"));
  }
  KeyPointer key(EVP_EC_gen("P-256"));
  if (key == nullptr) return LibraryError("make a key");
  auto certificate = Draft(key.get(), identity);
  if (!certificate.ok()) return certificate.status();
  X509* drafted = certificate->get();
  X509* issuer = keys_->certificate.get();
  // A worker's certificate is not valid for a server, so no worker can pose as the coordinator to
  // another worker.
  const char* use = absl::StartsWith(identity, kCoordinatorPrefix) ? "serverAuth" : "clientAuth";
  if (X509_set_issuer_name(drafted, X509_get_subject_name(issuer)) != 1 ||
      !AddExtension(drafted, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(drafted, issuer, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(drafted, issuer, NID_ext_key_usage, use) ||
      !AddExtension(drafted, issuer, NID_subject_key_identifier, "hash") ||
      !AddExtension(drafted, issuer, NID_authority_key_identifier, "keyid:always") ||
      !AddExtension(drafted, issuer, NID_subject_alt_name, absl::StrCat("DNS:", identity)) ||
      X509_sign(drafted, keys_->key.get(), EVP_sha256()) == 0) {
    return LibraryError("sign a certificate");
  }
  Credentials credentials;
  credentials.authority_pem = keys_->certificate_pem;
  credentials.job_key = keys_->job_key;
  auto text = CertificateText(drafted);
  if (!text.ok()) return text.status();
  credentials.certificate_pem = std::move(*text);
  auto key_text = KeyText(key.get());
  if (!key_text.ok()) return key_text.status();
  credentials.key_pem = std::move(*key_text);
  return credentials;
}

std::string MakeJobId() {
  // The id tells jobs apart and is no secret, so the system's random numbers suffice.
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

std::string Authenticate(const std::string& key, const std::string& message) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  // The call fails for lack of memory only; in that case no code is authentic.
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), code,
           &size) == nullptr) {
    return "";
  }
  return std::string(reinterpret_cast<char*>(code), size);
}

bool IsAuthentic(const std::string& key, const std::string& message, const std::string& code) {
  const std::string expected = Authenticate(key, message);
  return !expected.empty() && code.size() == expected.size() &&
         CRYPTO_memcmp(code.data(), expected.data(), expected.size()) == 0;
}

}  // namespace weir::control
