#include "runtime/transport/exchange.h"

#include "absl/strings/str_cat.h"

namespace weir::transport {

absl::Status LocalExchange::Publish(const std::string& key, const std::string& value) {
  MutexLock lock(&mutex_);
  if (!values_.emplace(key, value).second)
    return absl::AlreadyExistsError(absl::StrCat("'", key, "' is published already"));
  published_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalExchange::Fetch(const std::string& key) {
  MutexLock lock(&mutex_);
  const bool found = published_.WaitFor(
      &mutex_, limit_ms_,
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return values_.count(key) != 0; });
  if (!found)
    return absl::DeadlineExceededError(
        absl::StrCat("nobody published '", key, "' within ", limit_ms_, " ms"));
  return values_[key];
}

}  // namespace weir::transport
