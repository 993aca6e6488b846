#include "runtime/control/call_errors.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"

namespace weir::control {
namespace {

constexpr size_t kKeyShownBytes = 64;

}  // namespace

absl::Status TooLarge(const std::string& what, int64_t bytes_max, size_t bytes) {
  return Rejected({.code = "W0613",
                   .where = what,
                   .expected = absl::StrCat("at most ", bytes_max, " bytes"),
                   .found = absl::StrCat(bytes)});
}

absl::Status NoAnswerFrom(const std::string& silent, int64_t limit_ms) {
  return ErrorOf(absl::StatusCode::kDeadlineExceeded,
                 {.code = "W0611",
                  .where = silent,
                  .expected = absl::StrCat("an answer within ", limit_ms, " ms"),
                  .found = "none"});
}

absl::Status NotAllCame(const std::string& job_id, int num_workers, int64_t limit_ms,
                        const std::string& absent) {
  return ErrorOf(absl::StatusCode::kDeadlineExceeded,
                 {.code = "W0601",
                  .where = absl::StrCat("job ", job_id),
                  .expected = absl::StrCat(num_workers, " workers within ", limit_ms, " ms"),
                  .found = absl::StrCat("no word from ", absent),
                  .hint = "what they printed"});
}

absl::Status NotItsKey(const std::string& worker, const std::string& key) {
  return ErrorOf(absl::StatusCode::kPermissionDenied,
                 {.code = "W0810",
                  .where = worker,
                  .expected = "a key of one of its own ranks",
                  .found = absl::StrCat("key '", key.substr(0, kKeyShownBytes), "'")});
}

Problem NoHeartbeat(int64_t dead_after_ms, int64_t silent_ms) {
  return {.code = "W0602",
          .expected = absl::StrCat("a heartbeat within ", dead_after_ms, " ms"),
          .found = absl::StrCat("none for ", silent_ms, " ms"),
          .hint = "whether its process is stopped or starved of CPU"};
}

}  // namespace weir::control
