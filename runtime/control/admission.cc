#include "runtime/control/admission.h"

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/credentials.h"

namespace weir::control {
namespace {

constexpr int kWorkersMax = 1 << 16;

std::string NameOf(const proto::Hello& hello) { return absl::StrCat("worker ", hello.worker()); }

absl::Status OfAnother(const char* code, const proto::Hello& hello, const std::string& expected,
                       const std::string& found) {
  return ErrorOf(absl::StatusCode::kFailedPrecondition,
                 {.code = code, .where = NameOf(hello), .expected = expected, .found = found});
}

}  // namespace

absl::Status ReadHello(const grpc::ServerContext& context, proto::Hello* hello) {
  const auto& metadata = context.client_metadata();
  const auto range = metadata.equal_range(kHelloKey);
  if (range.first == range.second || std::next(range.first) != range.second ||
      !hello->ParseFromArray(range.first->second.data(),
                             static_cast<int>(range.first->second.size()))) {
    return ErrorOf(absl::StatusCode::kPermissionDenied,
                   {"W0606", "the coordinator", "one hello", "none that parses", ""});
  }
  const std::string identity =
      WorkerIdentity(hello->job_id(), WorkerId(hello->worker()), hello->epoch());
  const auto proof = context.auth_context();
  const auto names = proof->GetPeerIdentity();
  if (!proof->IsPeerAuthenticated() ||
      proof->GetPeerIdentityPropertyName() != "x509_subject_alternative_name" ||
      names.size() != 1 || names[0] != identity) {
    const std::string found =
        names.empty() ? "none"
                      : absl::StrCat("one for ", std::string(names[0].data(), names[0].size()));
    return ErrorOf(
        absl::StatusCode::kPermissionDenied,
        {"W0606", NameOf(*hello), absl::StrCat("a certificate for ", identity), found, ""});
  }
  return absl::OkStatus();
}

absl::Status CheckJob(const proto::Hello& hello, const CoordinatorOptions& options) {
  if (hello.job_id() != options.job_id) {
    return OfAnother("W0605", hello, absl::StrCat("job ", options.job_id),
                     absl::StrCat("job ", hello.job_id()));
  }
  return absl::OkStatus();
}

absl::Status OfAnotherEpoch(const proto::Hello& hello, uint32_t epoch) {
  return OfAnother("W0605", hello, absl::StrCat("epoch ", epoch),
                   absl::StrCat("epoch ", hello.epoch()));
}

absl::Status CheckBuild(const proto::Hello& hello, const CoordinatorOptions& options) {
  if (hello.build_id() == options.build_id) return absl::OkStatus();
  return OfAnother("W0604", hello, absl::StrCat("build ", options.build_id),
                   absl::StrCat("build ", hello.build_id()));
}

absl::Status CheckOptions(const CoordinatorOptions& options) {
  const auto refuse = [](const std::string& expected, const std::string& found) {
    return Rejected({.code = "W0615",
                     .where = "the coordinator's options",
                     .expected = expected,
                     .found = found});
  };
  if (options.num_workers < 1 || options.num_workers > kWorkersMax) {
    return refuse(absl::StrCat("1 to ", kWorkersMax, " workers"),
                  absl::StrCat(options.num_workers));
  }
  if (options.heartbeat_ms < 1 || options.dead_after_ms <= options.heartbeat_ms) {
    return refuse("a heartbeat of 1 ms or more, and dead after longer than that",
                  absl::StrCat(options.heartbeat_ms, " ms and ", options.dead_after_ms, " ms"));
  }
  if (!IsKeyPair(options.credentials)) return refuse("a certificate and its key", "something else");
  if (options.message_bytes_max < 1)
    return refuse("messages of a byte or more", absl::StrCat(options.message_bytes_max));
  return absl::OkStatus();
}

}  // namespace weir::control
