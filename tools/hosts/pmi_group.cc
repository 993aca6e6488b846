// TaskGroup over PMI 1.1, the interface of MPICH's mpiexec: lines of text over a descriptor that
// the task inherits. The task asks with "cmd=<name> <key>=<value>...", and the starter answers in
// the same form.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/hosts/task_group.h"
#include "tools/launch/owned_descriptor.h"
#include "tools/launch/worker_process.h"

namespace weir::hosts {
namespace {

constexpr size_t kLineBytesMax = 4096;
constexpr int64_t kAnswerMs = 10'000;  // of the starter, to what needs no other task
constexpr char kKey[] = "weir-meeting";

using Answer = std::map<std::string, std::string>;

Answer ParseAnswer(const std::string& line) {
  Answer answer;
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
    answer[pair.first] = pair.second;
  }
  return answer;
}

// A value of PMI has no spaces, which stand between the words of an invitation.
std::string WithoutSpaces(std::string text) {
  for (char& c : text) c = c == ' ' ? ',' : c;
  return text;
}
std::string WithSpaces(std::string text) {
  for (char& c : text) c = c == ',' ? ' ' : c;
  return text;
}

class PmiGroup final : public TaskGroup {
 public:
  PmiGroup(launch::OwnedDescriptor socket, TaskId task, int num_tasks, bool is_on_one_host)
      : socket_(std::move(socket)),
        task_(task),
        num_tasks_(num_tasks),
        is_on_one_host_(is_on_one_host) {}
  // A task that leaves without this counts as failed.
  ~PmiGroup() override { Leave(); }

  absl::Status Join() {
    WEIR_RETURN_IF_ERROR(
        Ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", kAnswerMs).status());
    is_joined_ = true;
    WEIR_ASSIGN_OR_RETURN(Answer name, Ask("cmd=get_my_kvsname", "my_kvsname", kAnswerMs));
    space_ = name["kvsname"];
    return absl::OkStatus();
  }

  TaskId task() const override { return task_; }
  int num_tasks() const override { return num_tasks_; }
  bool is_on_one_host() const override { return is_on_one_host_; }

  absl::StatusOr<std::string> Share(const std::string& text, int64_t limit_ms,
                                    const std::function<absl::Status()>& check) override {
    if (task_ == kFirstTask) {
      WEIR_RETURN_IF_ERROR(Ask(absl::StrCat("cmd=put kvsname=", space_, " key=", kKey,
                                            " value=", WithoutSpaces(text)),
                               "put_result", kAnswerMs)
                               .status());
    }
    absl::Status met = Ask("cmd=barrier_in", "barrier_out", limit_ms, check).status();
    if (!met.ok()) Abandon();
    if (absl::IsDeadlineExceeded(met))
      met = absl::DeadlineExceededError(NotAllText("PMI", limit_ms));
    WEIR_RETURN_IF_ERROR(met);
    std::string shared = text;
    if (task_ != kFirstTask) {
      WEIR_ASSIGN_OR_RETURN(
          Answer value,
          Ask(absl::StrCat("cmd=get kvsname=", space_, " key=", kKey), "get_result", kAnswerMs));
      shared = WithSpaces(value["value"]);
    }
    Leave();
    return shared;
  }

 private:
  // Leaves a group whose starter waits for others and answers nothing. The starter kills all tasks
  // once the descriptor is closed, so a copy stays open until this process has said why it ends.
  void Abandon() {
    is_joined_ = false;
    static_cast<void>(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  }

  void Leave() {
    if (!is_joined_) return;
    is_joined_ = false;
    Ask("cmd=finalize", "finalize_ack", kAnswerMs).IgnoreError();
    socket_.Close();
  }

  absl::StatusOr<Answer> Ask(
      const std::string& order, const std::string& expected, int64_t limit_ms,
      const std::function<absl::Status()>& check = [] { return absl::OkStatus(); }) {
    const std::string line = order + "\n";
    for (size_t done = 0; done < line.size();) {
      const ssize_t count =
          launch::WriteToPipe(socket_.get(), line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return absl::UnavailableError(absl::StrCat("PMI_FD: ", ::strerror(errno)));
      done += static_cast<size_t>(count);
    }
    WEIR_ASSIGN_OR_RETURN(const std::string text, ReadLine(limit_ms, check));
    Answer answer = ParseAnswer(text);
    const bool is_good = answer["cmd"] == expected && (answer["rc"].empty() || answer["rc"] == "0");
    if (is_good) return answer;
    return absl::UnavailableError(absl::StrCat("the starter answered '", text.substr(0, 80),
                                               "' to '", order.substr(0, order.find(' ')), "'"));
  }

  absl::StatusOr<std::string> ReadLine(int64_t limit_ms,
                                       const std::function<absl::Status()>& check) {
    const MonotonicClock clock;
    const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
    std::string line;
    while (line.size() < kLineBytesMax) {
      const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
      pollfd ready = {socket_.get(), POLLIN, 0};
      const int64_t wait_ms = std::clamp<int64_t>(left_ms, 0, kCheckEveryMs);
      if (::poll(&ready, 1, static_cast<int>(wait_ms)) <= 0) {
        WEIR_RETURN_IF_ERROR(check());
        if (left_ms > 0) continue;
        return absl::DeadlineExceededError(
            absl::StrCat("PMI_FD: no answer within ", limit_ms / 1000, " s"));
      }
      char byte;
      const ssize_t count = ::read(socket_.get(), &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        return absl::UnavailableError(
            absl::StrCat("PMI_FD: ", count == 0 ? "the starter is gone" : ::strerror(errno)));
      }
      if (byte == '\n') return line;
      line += byte;
    }
    return absl::UnavailableError("PMI_FD: a line without an end");
  }

  launch::OwnedDescriptor socket_;
  const TaskId task_;
  const int num_tasks_;
  const bool is_on_one_host_;
  bool is_joined_ = false;
  std::string space_;  // the name of the job's keys
};

}  // namespace

absl::StatusOr<std::unique_ptr<TaskGroup>> TaskGroup::JoinPmi(const GetVariable& get) {
  int descriptor = -1, task = -1, num_tasks = 0;
  if (!absl::SimpleAtoi(get("PMI_FD"), &descriptor) || !absl::SimpleAtoi(get("PMI_RANK"), &task) ||
      !absl::SimpleAtoi(get("PMI_SIZE"), &num_tasks) || descriptor < 0 || task < 0 ||
      task >= num_tasks)
    return absl::UnavailableError("PMI_FD, PMI_RANK and PMI_SIZE do not name a task");
  auto group = std::make_unique<PmiGroup>(launch::OwnedDescriptor(descriptor), TaskId(task),
                                          num_tasks, get("MPI_LOCALNRANKS") == get("PMI_SIZE"));
  WEIR_RETURN_IF_ERROR(group->Join());
  return group;
}

}  // namespace weir::hosts
