#include "tools/live/live_run.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/checksum.h"
#include "runtime/base/mutex.h"
#include "runtime/limits/resident_memory.h"

namespace weir::live {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kWorkersEveryNs = 1'000'000'000;
constexpr int64_t kResidentEveryNs = 1'000'000'000;
constexpr double kSharesPerUnit = 1e4;  // shares are written with four digits

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kStarting: return "starting";
    case Phase::kTraining: return "training";
    case Phase::kEvaluating: return "evaluating";
    case Phase::kSaving: return "saving";
    case Phase::kEnded: return "ended";
  }
  return "";
}

const char* NameOf(LiveWorker::State state) {
  switch (state) {
    case LiveWorker::State::kConnecting: return "connecting";
    case LiveWorker::State::kConnected: return "connected";
    case LiveWorker::State::kEnded: return "ended";
  }
  return "";
}

Json NumberOrNull(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

// JSON has no text that is not UTF-8, and names of files may be any bytes.
std::string TextOf(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json SharesOf(const std::vector<double>& parts) {
  Json shares = Json::array();
  for (const double part : parts)
    shares.push_back(std::isfinite(part) ? std::round(part * kSharesPerUnit) / kSharesPerUnit : 0);
  return shares;
}

Json JsonOf(const LiveStep& step) {
  Json json = {{"step", step.step},
               {"loss", NumberOrNull(step.loss)},
               {"grad_norm", NumberOrNull(step.gradient_norm)},
               {"lr", NumberOrNull(step.learning_rate)},
               {"items_per_second", NumberOrNull(step.items_per_second)},
               {"step_seconds", NumberOrNull(step.step_seconds)},
               {"seconds_left", NumberOrNull(step.seconds_left)},
               {"mfu", NumberOrNull(step.mfu)}};
  if (!step.parts.empty()) json["parts"] = SharesOf(step.parts);
  return json;
}

std::vector<int> NumbersOf(const std::vector<RankId>& ranks) {
  std::vector<int> numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value());
  return numbers;
}

}  // namespace

std::string TextOf(const Doing& doing) {
  if (doing.of == 0) return doing.what;
  return absl::StrCat(doing.what, ": ", doing.done, " of ", doing.of, " done");
}

class LiveRun::Record {
 public:
  Record(const std::string& title, const Clock* clock)
      : clock_(clock),
        started_ns_(clock->NowNs()),
        now_(::memfd_create(kNowName, MFD_CLOEXEC)),
        history_(::memfd_create(kHistoryName, MFD_CLOEXEC)) {
    state_ = {{"version", kLiveVersion},  {"pid", static_cast<int64_t>(::getpid())},
              {"title", title},           {"started_unix_ms", RealTimeNs() / kNsPerMs},
              {"updated_unix_ms", 0},     {"phase", ""},
              {"phase_since_unix_ms", 0}, {"warnings", 0},
              {"part_names", kStepParts}};
    EnterLocked(Phase::kStarting);
  }
  ~Record() {
    if (now_ >= 0) ::close(now_);
    if (history_ >= 0) ::close(history_);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  void Set(const char* field, Json value) {
    MutexLock lock(&mutex_);
    state_[field] = std::move(value);
    WriteState();
  }
  void Enter(Phase phase) {
    MutexLock lock(&mutex_);
    EnterLocked(phase);
  }
  void ReportStep(const LiveStep& step) {
    MutexLock lock(&mutex_);
    const int64_t now_ns = clock_->NowNs();
    state_["step"] = JsonOf(step);
    state_["stepped_unix_ms"] = RealTimeNs() / kNsPerMs;
    if (now_ns >= next_step_ns_) {
      Add("step", state_["step"]);
      next_step_ns_ = now_ns + (now_ns - started_ns_) / kStepsPerRun;
    }
    WriteState();
  }
  void ReportEvaluation(Json evaluation) {
    MutexLock lock(&mutex_);
    Add("evaluation", evaluation);
    state_["evaluation"] = std::move(evaluation);
    WriteState();
  }
  void ReportRestart(Json restart) {
    MutexLock lock(&mutex_);
    Add("restart", restart);
    state_["restart"] = std::move(restart);
    EnterLocked(Phase::kStarting);
  }
  // Steps wait for processes.
  void BeginRecovery(Json doing) {
    MutexLock lock(&mutex_);
    state_["doing"] = std::move(doing);
    EnterLocked(Phase::kStarting);
  }
  void ReportRecovery(Json recovery) {
    MutexLock lock(&mutex_);
    Add("recovery", recovery);
    state_["recovery"] = std::move(recovery);
    EnterLocked(Phase::kTraining);
  }
  void ReportGrowth(Json growth) {
    MutexLock lock(&mutex_);
    Add("growth", growth);
    state_["growth"] = std::move(growth);
    EnterLocked(Phase::kTraining);
  }
  bool WantsWorkers() const {
    MutexLock lock(&mutex_);
    return clock_->NowNs() - workers_ns_ >= kWorkersEveryNs;
  }
  void SetWorkers(Json workers, int64_t epoch) {
    MutexLock lock(&mutex_);
    workers_ns_ = clock_->NowNs();
    state_["epoch"] = epoch;
    state_["workers"] = std::move(workers);
    WriteState();
  }
  void Say(absl::string_view line) {
    MutexLock lock(&mutex_);
    const std::string text(line);
    Add("said", text);
    state_["said"] = text;
    if (absl::StartsWith(line, "WARNING") || absl::StartsWith(line, "ERROR"))
      state_["warnings"] = state_["warnings"].get<int64_t>() + 1;
    WriteState();
  }
  void End(Json end) {
    MutexLock lock(&mutex_);
    Add("end", end);
    state_["end"] = std::move(end);
    EnterLocked(Phase::kEnded);
  }

 private:
  void EnterLocked(Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    state_["phase"] = NameOf(phase);
    state_["phase_since_unix_ms"] = RealTimeNs() / kNsPerMs;
    if (phase != Phase::kStarting) state_.erase("doing");
    Add("phase", NameOf(phase));
    WriteState();
  }
  void Add(const char* what, const Json& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (history_ < 0) return;
    const Json line = {{"at_ms", (clock_->NowNs() - started_ns_) / kNsPerMs}, {what, value}};
    const std::string text = TextOf(line) + "\n";
    (void)!::write(history_, text.data(), text.size());  // a full memory costs lines of the record
  }
  void WriteState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (now_ < 0) return;
    state_["updated_unix_ms"] = RealTimeNs() / kNsPerMs;
    if (const int64_t now_ns = clock_->NowNs(); now_ns >= next_resident_ns_) {
      state_["resident_bytes"] = limits::OwnResidentBytes();
      next_resident_ns_ = now_ns + kResidentEveryNs;
    }
    const std::string text = TextOf(state_);
    const uint32_t head[2] = {static_cast<uint32_t>(text.size()), Crc32c(text.data(), text.size())};
    std::string bytes(sizeof(head), '\0');
    std::memcpy(bytes.data(), head, sizeof(head));
    bytes += text;
    (void)!::pwrite(now_, bytes.data(), bytes.size(), 0);
  }

  const Clock* const clock_;
  const int64_t started_ns_;
  mutable Mutex mutex_;
  const int now_, history_;  // descriptors; -1: the system refuses them
  Json state_ ABSL_GUARDED_BY(mutex_);
  int64_t next_step_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_resident_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t workers_ns_ ABSL_GUARDED_BY(mutex_) = -kWorkersEveryNs;
};

LiveRun::LiveRun(const std::string& title, const Clock* clock)
    : record_(std::make_unique<Record>(title, clock)) {}
LiveRun::~LiveRun() = default;

void LiveRun::SetFacts(const RunFacts& facts) {
  record_->Set("facts", {{"steps", facts.steps},
                         {"item", facts.item},
                         {"items_per_step", facts.items_per_step},
                         {"parameters", facts.parameters},
                         {"mesh", facts.mesh},
                         {"where", facts.where},
                         {"ranks", facts.ranks},
                         {"threads_per_rank", facts.threads_per_rank},
                         {"bytes_per_rank", facts.bytes_per_rank},
                         {"bytes_of_rank", facts.bytes_of_rank},
                         {"flops_per_step", NumberOrNull(facts.flops_per_step)},
                         {"peak_flops",
                          facts.peak_flops > 0 ? NumberOrNull(facts.peak_flops) : Json(nullptr)},
                         {"peak_from", facts.peak_from}});
}

void LiveRun::SetDoing(const Doing& doing) {
  record_->Set("doing", {{"what", doing.what}, {"done", doing.done}, {"of", doing.of}});
}

void LiveRun::Enter(Phase phase) { record_->Enter(phase); }
void LiveRun::ReportStep(const LiveStep& step) { record_->ReportStep(step); }

void LiveRun::ReportEvaluation(int64_t step, const std::string& text) {
  record_->ReportEvaluation({{"step", step}, {"text", text}});
}

void LiveRun::ReportRestart(const LiveRestart& restart) {
  record_->ReportRestart({{"count", restart.count},
                          {"after_step", restart.after_step},
                          {"report", restart.report},
                          {"earlier_reports", restart.earlier_reports}});
}

void LiveRun::BeginRecovery(const std::string& who) {
  record_->BeginRecovery({{"what", "recovery of " + who}, {"done", 0}, {"of", 0}});
}

void LiveRun::ReportRecovery(const LiveRecovery& recovery) {
  record_->ReportRecovery({{"count", recovery.count},
                           {"who", recovery.who},
                           {"after_step", recovery.after_step},
                           {"to_step", recovery.to_step},
                           {"seconds", NumberOrNull(recovery.seconds)},
                           {"report", recovery.report},
                           {"earlier_reports", recovery.earlier_reports}});
}

void LiveRun::BeginGrowth() {
  record_->BeginRecovery({{"what", "growth of the mesh"}, {"done", 0}, {"of", 0}});
}

void LiveRun::ReportGrowth(const LiveGrowth& growth) {
  record_->ReportGrowth({{"count", growth.count},
                         {"after_step", growth.after_step},
                         {"seconds", NumberOrNull(growth.seconds)},
                         {"how", growth.how}});
}

void LiveRun::SetWork(const std::vector<RankBusy>& work) {
  Json list = Json::array();
  for (const RankBusy& rank : work) {
    list.push_back({{"rank", rank.rank.value()},
                    {"stage", rank.stage},
                    {"busy", NumberOrNull(rank.busy)},
                    {"parts", SharesOf(rank.parts)}});
  }
  record_->Set("work", std::move(list));
}

bool LiveRun::WantsWorkers() const { return record_->WantsWorkers(); }

void LiveRun::SetWorkers(const std::vector<LiveWorker>& workers, int64_t epoch) {
  Json list = Json::array();
  for (const LiveWorker& worker : workers) {
    list.push_back({{"ranks", NumbersOf(worker.ranks)},
                    {"host", worker.host},
                    {"pid", worker.pid},
                    {"state", NameOf(worker.state)},
                    {"silent_ms", worker.silent_ms},
                    {"acts", worker.acts},
                    {"resident_bytes", worker.resident_bytes},
                    {"activity", worker.activity}});
  }
  record_->SetWorkers(std::move(list), epoch);
}

void LiveRun::Say(absl::string_view line) { record_->Say(line); }

void LiveRun::End(int code, absl::string_view report) {
  record_->End({{"code", code}, {"report", std::string(report)}});
}

}  // namespace weir::live
