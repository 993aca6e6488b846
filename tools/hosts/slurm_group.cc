// TaskGroup of a step of Slurm that srun has started without PMIx. The first task tells the others
// by a file in the working folder, which only the job's user may read. The file is gone once the
// group is.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/hosts/task_group.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {
namespace {

constexpr int64_t kLookMs = 50;

class SlurmGroup final : public TaskGroup {
 public:
  SlurmGroup(TaskId task, int num_tasks, bool is_on_one_host, std::string file)
      : task_(task),
        num_tasks_(num_tasks),
        is_on_one_host_(is_on_one_host),
        file_(std::move(file)) {}
  ~SlurmGroup() override {
    if (has_written_) ::unlink(file_.c_str());
  }

  TaskId task() const override { return task_; }
  int num_tasks() const override { return num_tasks_; }
  bool is_on_one_host() const override { return is_on_one_host_; }

  // Tasks of a step begin together, but a shared folder may show a new file late.
  absl::StatusOr<std::string> Share(const std::string& text, int64_t limit_ms,
                                    const std::function<absl::Status()>& check) override {
    if (task_ != kFirstTask) return AwaitFile(limit_ms, check);
    WEIR_RETURN_IF_ERROR(WriteFile(text));
    return text;
  }

  // A first task that was killed has left its file, and Slurm may give a number again. Then the
  // first task of this job replaces the file, perhaps later than this task reads it.
  std::optional<std::string> Again() override {
    absl::StatusOr<std::optional<std::string>> text = ReadFile();
    return text.ok() ? *std::move(text) : std::nullopt;
  }

 private:
  absl::Status Failed(const char* call) const {
    return absl::UnavailableError(absl::StrCat(call, " ", file_, ": ", ::strerror(errno)));
  }

  // The file appears with its whole text.
  absl::Status WriteFile(const std::string& text) {
    const std::string draft = file_ + ".draft";
    ::unlink(draft.c_str());
    const launch::OwnedDescriptor file(
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.open()) return Failed("open");
    const bool is_whole =
        ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!is_whole || ::rename(draft.c_str(), file_.c_str()) != 0) {
      const absl::Status status = Failed(is_whole ? "rename" : "write");
      ::unlink(draft.c_str());
      return status;
    }
    has_written_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::string>> ReadFile() const {
    const launch::OwnedDescriptor file(
        ::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts = {};
    if (!file.open() || ::fstat(file.get(), &facts) != 0) return std::nullopt;
    if (facts.st_uid != ::geteuid() || !S_ISREG(facts.st_mode))
      return absl::UnavailableError(
          absl::StrCat(file_, " is no file of this user, so somebody else has made it"));
    std::string text(kSharedBytesMax, '\0');
    const ssize_t size = ::read(file.get(), text.data(), text.size());
    if (size <= 0) return std::nullopt;
    return text.substr(0, static_cast<size_t>(size));
  }

  absl::StatusOr<std::string> AwaitFile(int64_t limit_ms,
                                        const std::function<absl::Status()>& check) const {
    const MonotonicClock clock;
    const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
    while (true) {
      WEIR_ASSIGN_OR_RETURN(std::optional<std::string> text, ReadFile());
      if (text.has_value()) return *std::move(text);
      WEIR_RETURN_IF_ERROR(check());
      if (clock.NowNs() >= end_ns)
        return absl::UnavailableError(absl::StrCat(
            "no file ", file_, " in the working folder within ", limit_ms / 1000,
            " s; the first task writes it there, so the tasks may not share the folder"));
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }

  const TaskId task_;
  const int num_tasks_;
  const bool is_on_one_host_;
  const std::string file_;
  bool has_written_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TaskGroup>> TaskGroup::JoinSlurmStep(const GetVariable& get) {
  int task = -1, num_tasks = 0;
  if (!absl::SimpleAtoi(get("SLURM_PROCID"), &task) ||
      !absl::SimpleAtoi(get("SLURM_STEP_NUM_TASKS"), &num_tasks) || task < 0 || task >= num_tasks)
    return absl::UnavailableError("SLURM_PROCID and SLURM_STEP_NUM_TASKS do not name a task");
  // A job that Slurm starts anew keeps its number.
  std::string file = absl::StrCat(".weir-meeting-", get("SLURM_JOB_ID"), ".", get("SLURM_STEP_ID"),
                                  ".", get("SLURM_RESTART_COUNT"));
  return std::make_unique<SlurmGroup>(TaskId(task), num_tasks, get("SLURM_STEP_NUM_NODES") == "1",
                                      std::move(file));
}

}  // namespace weir::hosts
