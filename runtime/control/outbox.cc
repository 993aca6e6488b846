#include "runtime/control/outbox.h"

#include "absl/strings/str_cat.h"

namespace weir::control {

absl::StatusOr<std::optional<std::string>> Inbox::Add(const proto::Piece& piece) {
  if (static_cast<int64_t>(message_.size() + piece.part().size()) > bytes_max_) {
    message_ = std::string();
    return absl::ResourceExhaustedError(
        absl::StrCat("a message of more than ", bytes_max_, " bytes"));
  }
  message_ += piece.part();
  if (!piece.last()) return std::optional<std::string>();
  return std::optional<std::string>(std::exchange(message_, std::string()));
}

}  // namespace weir::control
