#include "tools/hosts/fan_out.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/launch/supervisor.h"

namespace weir::hosts {
namespace {

constexpr int64_t kEndMs = 2'000;
constexpr size_t kReadBytes = 16 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<FanOut>> FanOut::Start(const std::vector<std::string>& arguments,
                                                      const std::string& input,
                                                      const std::string& label,
                                                      std::ostream* console) {
  launch::KeepExits();
  WEIR_ASSIGN_OR_RETURN(launch::OwnedDescriptor wake, launch::WakeEvent::Open());
  auto fan_out = std::unique_ptr<FanOut>(new FanOut(std::move(wake), label, console));
  std::promise<absl::Status> started;
  fan_out->thread_ = std::thread([&started, &arguments, &input, self = fan_out.get()] {
    const absl::Status status = self->StartCommand(arguments, input);
    started.set_value(status);
    if (status.ok()) self->Run();
  });
  WEIR_RETURN_IF_ERROR(started.get_future().get());
  return fan_out;
}

// The command dies with the thread that starts it.
absl::Status FanOut::StartCommand(const std::vector<std::string>& arguments,
                                  const std::string& input) {
  launch::StartOptions options;
  options.environment = launch::StartOptions::Environment::kWhole;
  WEIR_ASSIGN_OR_RETURN(command_, launch::StartProcess(arguments, options));
  // An invitation is much smaller than a pipe.
  launch::WriteToPipe(command_.input.get(), input.data(), input.size());
  command_.input.Close();
  return absl::OkStatus();
}

FanOut::~FanOut() {
  wake_.Wake();
  if (thread_.joinable()) thread_.join();
}

absl::Status FanOut::Check() const {
  MutexLock lock(&mutex_);
  if (how_ended_.empty()) return absl::OkStatus();
  const std::vector<std::string> lines = output_.last_lines();
  return absl::UnavailableError(
      absl::StrCat(how_ended_, lines.empty() ? "" : "; it printed: ", absl::StrJoin(lines, " | ")));
}

void FanOut::ReadOutput() {
  char bytes[kReadBytes];
  const ssize_t count = ::read(command_.output.get(), bytes, sizeof(bytes));
  MutexLock lock(&mutex_);
  if (count > 0) {
    output_.Append(bytes, static_cast<size_t>(count));
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    command_.output.Close();
  }
}

void FanOut::Run() {
  const MonotonicClock clock;
  int64_t end_ns = -1;  // once woken
  while (true) {
    pollfd polled[] = {{end_ns < 0 ? wake_.descriptor() : -1, POLLIN, 0},
                       {command_.output.get(), POLLIN, 0},
                       {command_.process.get(), POLLIN, 0}};
    const int64_t left_ns = end_ns < 0 ? -1 : std::max<int64_t>(end_ns - clock.NowNs(), 0);
    if (::poll(polled, 3, launch::PollMs(left_ns)) < 0 && errno != EINTR) break;
    if (polled[0].revents != 0) end_ns = clock.NowNs() + kEndMs * 1'000'000;
    if (polled[1].revents != 0) ReadOutput();
    if (polled[2].revents != 0) break;
    if (left_ns == 0) {
      launch::KillGroup(command_);
      break;
    }
  }
  const launch::EndOfProcess end = launch::Collect(command_);
  while (command_.output.open()) {
    pollfd more = {command_.output.get(), POLLIN, 0};
    if (::poll(&more, 1, 0) <= 0) break;
    ReadOutput();
  }
  launch::WorkerExit exit;
  exit.code = end.code;
  exit.signal = end.signal;
  MutexLock lock(&mutex_);
  output_.Finish();
  how_ended_ = launch::ExitText(exit);
}

}  // namespace weir::hosts
