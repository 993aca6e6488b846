#include "tools/launch/signal_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace weir::launch {
namespace {

// All data that a handler touches is lock-free. No other data depends on these atomics, so their
// order does not matter; the signals themselves go through a pipe.
std::atomic<bool> signal_came{false};
std::atomic<bool> second_ends{false};
std::atomic<bool> was_asked_elsewhere{false};  // and no signal has come since
std::atomic<bool> notes_checkpoints{false};
std::atomic<int> num_checkpoints_asked{0};
// The pipe is opened once and never closed, because a handler on another thread may still write
// when a watch ends.
std::atomic<int> read_end{-1};
std::atomic<int> write_end{-1};
// The message of the first signal before it ends the process. The message is written while end_code
// is -1, and handlers read it when end_code is not -1: release and acquire of end_code order the
// two.
constexpr size_t kMessageMax = 256;
char end_message[kMessageMax];
std::atomic<size_t> end_message_size{0};
std::atomic<int> end_code{-1};
// A folder that goes away with that end if it is empty. It is written while has_end_folder is
// false, and handlers read it when has_end_folder is true: release and acquire order the two.
char end_folder[PATH_MAX];
std::atomic<bool> has_end_folder{false};
// The monotonic times of the last SIGINT, SIGTERM and SIGHUP that count; kNever: there was none.
constexpr int64_t kNever = -1;
std::atomic<int64_t> last_interrupt_ns{kNever}, last_terminate_ns{kNever}, last_hangup_ns{kNever};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

void EndIfAsked() {
  const int code = end_code.load(std::memory_order_acquire);
  if (code < 0) return;
  if (has_end_folder.load(std::memory_order_acquire)) ::rmdir(end_folder);
  // The result does not matter, because the process ends anyway.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, end_message, end_message_size.load());
  ::_exit(code);
}

// Returns whether the signal belongs to the request of the one before. If not, it begins a request.
bool IsOfLastRequest(int signal) {
  std::atomic<int64_t>& last_ns = signal == SIGINT    ? last_interrupt_ns
                                  : signal == SIGTERM ? last_terminate_ns
                                                      : last_hangup_ns;
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now_ns = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  int64_t before_ns = last_ns.load();
  if (before_ns != kNever && now_ns - before_ns < kOneRequestNs) return true;
  // If this fails, then a handler on another thread has just begun the request.
  return !last_ns.compare_exchange_strong(before_ns, now_ns);
}

void OnSignal(int signal) {
  EndIfAsked();
  const int error = errno;
  if (IsOfLastRequest(signal)) {
    errno = error;
    return;
  }
  const bool is_same_request = was_asked_elsewhere.exchange(false);
  const bool second = signal_came.exchange(true) && !is_same_request;
  const char byte = static_cast<char>(signal);
  // A full pipe already holds thousands of signals, so one more adds nothing.
  if (::write(write_end.load(), &byte, 1) < 0) errno = error;
  if (second && second_ends.load()) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // delivered when this handler returns
  }
  errno = error;
}

void OnUserSignal(int signal) {
  const int error = errno;
  if (signal == SIGUSR1) num_checkpoints_asked.fetch_add(1);
  const char byte = static_cast<char>(signal);
  // As above: a full pipe holds signals enough.
  if (::write(write_end.load(), &byte, 1) < 0) errno = error;
}

void OpenPipeOnce() {
  int ends[2];
  if (read_end.load() >= 0 || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  write_end.store(ends[1]);
  read_end.store(ends[0]);
}

}  // namespace

void AskToEnd() {
  EndIfAsked();
  if (signal_came.exchange(true)) return;
  was_asked_elsewhere.store(true);
  const char byte = SIGTERM;
  // As in a handler: a full pipe holds signals enough.
  if (::write(write_end.load(), &byte, 1) < 0) return;
}

void AskForCheckpoint() {
  if (notes_checkpoints.load()) OnUserSignal(SIGUSR1);
}

SignalWatch::SignalWatch(SecondSignal second) {
  OpenPipeOnce();
  while (Take().has_value()) {
  }
  signal_came.store(false);
  was_asked_elsewhere.store(false);
  for (std::atomic<int64_t>* last_ns : {&last_interrupt_ns, &last_terminate_ns, &last_hangup_ns})
    last_ns->store(kNever);
  second_ends.store(second == SecondSignal::kEndsTheProcess);
  ::sigaction(SIGINT, nullptr, &old_interrupt_);
  ::sigaction(SIGTERM, nullptr, &old_terminate_);
  ::sigaction(SIGHUP, nullptr, &old_hangup_);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  if (descriptor() < 0) return;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  if (old_interrupt_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  if (old_hangup_.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

SignalWatch::~SignalWatch() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
  ::sigaction(SIGHUP, &old_hangup_, nullptr);
  if (notes_user_signals_) {
    notes_checkpoints.store(false);
    ::sigaction(SIGUSR1, &old_user1_, nullptr);
    ::sigaction(SIGUSR2, &old_user2_, nullptr);
  }
  KeepGoing();
}

void SignalWatch::NoteUserSignals() {
  if (notes_user_signals_ || descriptor() < 0) return;
  notes_user_signals_ = true;
  num_checkpoints_asked.store(0);
  notes_checkpoints.store(true);
  struct sigaction action = {};
  action.sa_handler = OnUserSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGUSR1, &action, &old_user1_);
  ::sigaction(SIGUSR2, &action, &old_user2_);
}

std::atomic<int>& SignalWatch::checkpoints_asked() const { return num_checkpoints_asked; }

void SignalWatch::EndAtOnce(const std::string& message, int code) {
  KeepGoing();
  const size_t size = std::min(message.size(), kMessageMax);
  std::memcpy(end_message, message.data(), size);
  end_message_size.store(size);
  end_code.store(code, std::memory_order_release);
  if (signal_came.load()) EndIfAsked();
}

void SignalWatch::RemoveAtThatEnd(const std::string& folder) {
  has_end_folder.store(false);
  if (folder.size() >= sizeof(end_folder)) return;
  std::memcpy(end_folder, folder.c_str(), folder.size() + 1);
  has_end_folder.store(true, std::memory_order_release);
}

void SignalWatch::KeepGoing() {
  end_code.store(-1);
  has_end_folder.store(false);
}

const std::atomic<bool>& SignalWatch::interrupted() const { return signal_came; }

int SignalWatch::descriptor() const { return read_end.load(); }

std::optional<int> SignalWatch::Take() {
  char byte = 0;
  if (::read(read_end.load(), &byte, 1) != 1) return std::nullopt;
  return byte;
}

}  // namespace weir::launch
