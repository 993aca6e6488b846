#include "runtime/control/call_errors.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"

namespace weir::control {

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

}  // namespace weir::control
