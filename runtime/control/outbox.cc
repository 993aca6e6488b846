#include "runtime/control/outbox.h"

#include "absl/strings/str_cat.h"

namespace weir {

absl::StatusOr<std::optional<std::string>> Inbox::Add(const control::Piece& piece) {
  if (static_cast<int64_t>(message_.size() + piece.part().size()) > bytes_max_) {
    message_ = std::string();
    return absl::ResourceExhaustedError(
        absl::StrCat("a message of more than ", bytes_max_, " bytes"));
  }
  message_ += piece.part();
  if (!piece.last()) return std::optional<std::string>();
  return std::optional<std::string>(std::exchange(message_, std::string()));
}

control::Outcome ToOutcome(const absl::Status& status) {
  control::Outcome outcome;
  outcome.set_code(static_cast<int32_t>(status.code()));
  outcome.set_message(std::string(status.message().substr(0, kOutcomeBytesMax)));
  return outcome;
}

absl::Status FromOutcome(const control::Outcome& outcome) {
  const bool known = outcome.code() >= 0 &&
                     outcome.code() <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  const auto code =
      known ? static_cast<absl::StatusCode>(outcome.code()) : absl::StatusCode::kUnknown;
  return absl::Status(code, outcome.message());
}

}  // namespace weir
