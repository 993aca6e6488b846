#include "tools/view/growing_run.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace weir::view {

void GrowingRun::Tell(const std::string& doing) {
  MutexLock lock(&mutex_);
  doing_ = doing;
}

void GrowingRun::GiveRun(std::string bundle) {
  MutexLock lock(&mutex_);
  run_ = std::move(bundle);
  has_run_ = true;
  changed_.NotifyAll();
}

void GrowingRun::GiveAnalysis(std::string bundle) {
  MutexLock lock(&mutex_);
  analysis_ = std::move(bundle);
  has_analysis_ = true;
  changed_.NotifyAll();
}

void GrowingRun::Fail(const absl::Status& status) {
  MutexLock lock(&mutex_);
  status_ = status;
  changed_.NotifyAll();
}

const std::string* GrowingRun::WaitForRun(int64_t limit_ms) const {
  MutexLock lock(&mutex_);
  changed_.WaitFor(&mutex_, limit_ms, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_run_ || !status_.ok();
  });
  return has_run_ ? &run_ : nullptr;
}

const std::string* GrowingRun::analysis() const {
  MutexLock lock(&mutex_);
  return has_analysis_ ? &analysis_ : nullptr;
}

bool GrowingRun::is_over() const {
  MutexLock lock(&mutex_);
  return IsOver();
}

bool GrowingRun::WaitUntilOver(int64_t limit_ms) const {
  MutexLock lock(&mutex_);
  return changed_.WaitFor(&mutex_, limit_ms,
                          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return IsOver(); });
}

absl::Status GrowingRun::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

std::string GrowingRun::ProgressJson() const {
  MutexLock lock(&mutex_);
  nlohmann::ordered_json json = {{"ready", has_analysis_}, {"doing", doing_}};
  if (!status_.ok()) json["failed"] = std::string(status_.message());
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weir::view
