#include "tools/hosts/relay.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/launch/program_path.h"
#include "tools/launch/supervisor.h"

namespace weir::hosts {
namespace {

constexpr int64_t kEndMs = 5'000;  // for the agents behind the commands to end
constexpr size_t kReadBytes = 64 << 10;
constexpr int kEventsMax = 64;

// The parts of a command that are watched.
constexpr int kProcess = 0, kOutput = 1, kErrors = 2, kInput = 3, kNumWatched = 4;
constexpr uint64_t kOfCaller = ~uint64_t{0};

const launch::OwnedDescriptor& DescriptorOf(const launch::WorkerProcess& process, int what) {
  switch (what) {
    case kOutput: return process.output;
    case kErrors: return process.errors;
    case kInput: return process.input;
    default: return process.process;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Relay>> Relay::Open(int also_watched, Report report) {
  launch::KeepExits();
  launch::OwnedDescriptor watched(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kOfCaller;
  if (!watched.open() || ::epoll_ctl(watched.get(), EPOLL_CTL_ADD, also_watched, &event) != 0) {
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {"W0093", "the agent", "a descriptor of epoll", ::strerror(errno),
                    "a higher limit of open files (`ulimit -n`)"});
  }
  return std::unique_ptr<Relay>(new Relay(std::move(watched), std::move(report)));
}

Relay::~Relay() {
  for (auto& [number, command] : commands_) {
    command.is_closing = true;
    Write(number, &command);
  }
  Hold(Flow::kFree);
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + kEndMs * 1'000'000;
  while (!commands_.empty() && clock.NowNs() < end_ns) {
    // The caller's descriptor may be readable for ever, so each command is waited for by itself.
    pollfd first = {commands_.begin()->second.process.process.get(), POLLIN, 0};
    ::poll(&first, 1, 10);
    Serve(Flow::kFree);
  }
  for (auto& [number, command] : commands_) {
    launch::KillGroup(command.process);
    launch::Collect(command.process);
  }
}

// Watches a descriptor of a command, or watches it no more.
void Relay::Watch(int32_t number, int what, bool is_watched) const {
  const launch::OwnedDescriptor& descriptor = DescriptorOf(commands_.at(number).process, what);
  if (!descriptor.open()) return;
  epoll_event event = {};
  event.events = what == kInput ? EPOLLOUT : EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(number) * kNumWatched + static_cast<uint64_t>(what);
  ::epoll_ctl(watched_.get(), is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, descriptor.get(), &event);
}

// A pipe that has hung up wakes a poll whatever is asked of it, so a pipe that is not to be read is
// not watched at all.
void Relay::Hold(Flow flow) {
  if (flow == flow_) return;
  flow_ = flow;
  for (const auto& [number, command] : commands_) {
    for (int what : {kOutput, kErrors}) Watch(number, what, flow == Flow::kFree);
  }
}

bool Relay::Obey(const proto::RelayOrder& order) {
  const int32_t number = order.command();
  if (order.kind_case() == proto::RelayOrder::kStart) {
    if (number < 0 || commands_.count(number) > 0 || order.start().argument().empty()) return false;
    Start(number, order.start());
    return true;
  }
  const auto found = commands_.find(number);
  if (found == commands_.end()) return number >= 0;  // it has ended, which is reported
  Command& command = found->second;
  switch (order.kind_case()) {
    case proto::RelayOrder::kBytes: command.waiting += order.bytes(); break;
    case proto::RelayOrder::kClose: command.is_closing = true; break;
    case proto::RelayOrder::kKill: launch::KillGroup(command.process); return true;
    default: return false;
  }
  Write(number, &command);
  return true;
}

void Relay::Start(int32_t number, const proto::RelayOrder::Start& start) {
  std::vector<std::string> arguments(start.argument().begin(), start.argument().end());
  const std::string path = launch::FindInOwnPath(arguments[0]);
  launch::StartOptions options;
  options.streams = launch::StartOptions::Streams::kApart;
  options.environment = launch::StartOptions::Environment::kWhole;
  absl::StatusOr<launch::WorkerProcess> process =
      absl::UnavailableError(absl::StrCat("no program '", arguments[0], "'"));
  if (!path.empty()) {
    arguments[0] = path;
    process = launch::StartProcess(arguments, options);
  }
  if (!process.ok()) {
    proto::RelayReport report;
    report.set_command(number);
    report.mutable_end()->set_error(std::string(process.status().message()));
    report_(report);
    return;
  }
  commands_[number].process = *std::move(process);
  Watch(number, kProcess, true);
  for (int what : {kOutput, kErrors}) Watch(number, what, flow_ == Flow::kFree);
}

void Relay::Serve(Flow flow) {
  Hold(flow);
  epoll_event events[kEventsMax];
  const int count = ::epoll_wait(watched_.get(), events, kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kOfCaller) continue;
    ServeOne(static_cast<int32_t>(events[i].data.u64 / kNumWatched),
             static_cast<int>(events[i].data.u64 % kNumWatched));
  }
}

void Relay::ServeOne(int32_t number, int what) {
  const auto found = commands_.find(number);
  if (found == commands_.end()) return;  // it ended with an event before this one
  Command& command = found->second;
  switch (what) {
    case kOutput:
      ReadSome(number, &command.process.output, what);
      // A command that says no more is no way to an agent: the agent behind it shall end, too.
      if (!command.process.output.open()) command.process.input.Close();
      break;
    case kErrors: ReadSome(number, &command.process.errors, what); break;
    case kInput: Write(number, &command); break;
    default: End(number, &command); break;
  }
}

// Writes what the command takes, and closes its input once nothing more is to come.
void Relay::Write(int32_t number, Command* command) {
  size_t written = 0;
  launch::OwnedDescriptor& input = command->process.input;
  while (input.open() && written < command->waiting.size()) {
    const ssize_t count = launch::WriteToPipe(input.get(), command->waiting.data() + written,
                                              command->waiting.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) input.Close();  // its end is reported when the process has ended
    if (count > 0) written += static_cast<size_t>(count);
  }
  ::explicit_bzero(command->waiting.data(), written);  // it may contain keys
  command->waiting.erase(0, input.open() ? written : command->waiting.size());
  if (command->waiting.empty() && command->is_closing) input.Close();
  const bool awaits_room = input.open() && !command->waiting.empty();
  if (awaits_room != command->awaits_room) Watch(number, kInput, awaits_room);
  command->awaits_room = awaits_room;
  if (written == 0) return;
  proto::RelayReport report;
  report.set_command(number);
  report.set_taken(static_cast<int64_t>(written));
  report_(report);
}

// Reads once. Returns whether there were bytes.
bool Relay::ReadSome(int32_t number, launch::OwnedDescriptor* from, int what) const {
  if (!from->open()) return false;
  char bytes[kReadBytes];
  const ssize_t count = ::read(from->get(), bytes, sizeof(bytes));
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (count <= 0) {
    from->Close();
    return false;
  }
  proto::RelayReport report;
  report.set_command(number);
  (what == kOutput ? report.mutable_bytes() : report.mutable_errors())
      ->assign(bytes, static_cast<size_t>(count));
  report_(report);
  return true;
}

// Collects a command that has ended and reports its end, after all that it wrote.
void Relay::End(int32_t number, Command* command) {
  while (ReadSome(number, &command->process.output, kOutput)) {
  }
  while (ReadSome(number, &command->process.errors, kErrors)) {
  }
  const launch::EndOfProcess end = launch::Collect(command->process);
  proto::RelayReport report;
  report.set_command(number);
  report.mutable_end()->set_code(end.code);
  report.mutable_end()->set_signal(end.signal);
  ::explicit_bzero(command->waiting.data(), command->waiting.size());
  commands_.erase(number);
  report_(report);
}

}  // namespace weir::hosts
