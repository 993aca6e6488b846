#include "runtime/transport/exchange.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace weir {

absl::Status LocalExchange::Publish(const std::string& key, const std::string& value) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!values_.emplace(key, value).second)
    return absl::AlreadyExistsError(absl::StrCat("'", key, "' is published already"));
  published_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalExchange::Fetch(const std::string& key) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool found = published_.wait_for(lock, std::chrono::milliseconds(limit_ms_),
                                         [&] { return values_.count(key) != 0; });
  if (!found)
    return absl::DeadlineExceededError(
        absl::StrCat("nobody published '", key, "' within ", limit_ms_, " ms"));
  return values_[key];
}

}  // namespace weir
