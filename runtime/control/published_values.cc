#include "runtime/control/published_values.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::control {
namespace {

absl::Status CheckKey(const std::string& key) {
  if (key.size() <= kKeyBytesMax) return absl::OkStatus();
  return Rejected({.code = "W0613",
                   .where = absl::StrCat("key '", key.substr(0, 64), "…'"),
                   .expected = absl::StrCat("a key of at most ", kKeyBytesMax, " bytes"),
                   .found = absl::StrCat(key.size())});
}

absl::Status TooMuch(const std::string& key, const std::string& expected,
                     const std::string& found) {
  return ErrorOf(absl::StatusCode::kResourceExhausted, {.code = "W0613",
                                                        .where = absl::StrCat("key '", key, "'"),
                                                        .expected = expected,
                                                        .found = found});
}

}  // namespace

absl::StatusOr<std::vector<PublishedValues::Waiter>> PublishedValues::Publish(
    WorkerId worker, const std::string& key, std::string value) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  if (values_.count(key) != 0) {
    return ErrorOf(absl::StatusCode::kAlreadyExists, {.code = "W0612",
                                                      .where = absl::StrCat("key '", key, "'"),
                                                      .expected = "each key to be published once",
                                                      .found = "a second value for it"});
  }
  if (values_.size() >= kPublishedKeysMax)
    return TooMuch(key, absl::StrCat("at most ", kPublishedKeysMax, " keys"), "one more");
  const int64_t bytes = static_cast<int64_t>(key.size() + value.size());
  if (bytes > kPublishedBytesMax - bytes_) {
    return TooMuch(key, absl::StrCat("at most ", kPublishedBytesMax, " bytes published in all"),
                   absl::StrCat(bytes_ + bytes));
  }
  if (const int64_t of_worker = bytes_of_[worker] + bytes; of_worker > kPublishedBytesOfWorkerMax) {
    return TooMuch(
        key, absl::StrCat("at most ", kPublishedBytesOfWorkerMax, " bytes published by one worker"),
        absl::StrCat(of_worker));
  }
  bytes_ += bytes;
  bytes_of_[worker] += bytes;
  values_.emplace(key, std::move(value));
  std::vector<Waiter> waiters;
  if (auto found = waiting_.find(key); found != waiting_.end()) {
    waiters = std::move(found->second);
    num_waiting_ -= waiters.size();
    waiting_.erase(found);
  }
  return waiters;
}

absl::StatusOr<const std::string*> PublishedValues::Fetch(const std::string& key, Waiter waiter) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  if (auto found = values_.find(key); found != values_.end()) return &found->second;
  if (num_waiting_ >= kWaitingMax)
    return TooMuch(key, absl::StrCat("at most ", kWaitingMax, " fetches to wait"), "one more");
  ++num_waiting_;
  waiting_[key].push_back(waiter);
  return nullptr;
}

}  // namespace weir::control
