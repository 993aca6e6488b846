#include "runtime/transport/wake_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"

namespace weir::transport {
namespace {

constexpr uint64_t kStop = ~uint64_t{0};

}  // namespace

absl::StatusOr<std::unique_ptr<WakeThread>> WakeThread::Start(std::vector<int> fds,
                                                              std::vector<OnNews> on_news) {
  std::unique_ptr<WakeThread> wake(new WakeThread(std::move(fds), std::move(on_news)));
  wake->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake->stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStop;
  bool ok = wake->epoll_ >= 0 && wake->stop_ >= 0 &&
            ::epoll_ctl(wake->epoll_, EPOLL_CTL_ADD, wake->stop_, &event) == 0;
  for (size_t i = 0; ok && i < wake->fds_.size(); ++i) {
    event.events = 0;
    event.data.u64 = uint64_t{i} << 32;
    ok = ::epoll_ctl(wake->epoll_, EPOLL_CTL_ADD, wake->fds_[i], &event) == 0;
  }
  if (!ok)
    return CodedError(absl::StatusCode::kUnavailable, "W0525",
                      absl::StrCat("cannot wait for file descriptors: ", std::strerror(errno)));
  // Signals belong to other threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  wake->thread_ = std::thread([w = wake.get()] { w->Run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return wake;
}

WakeThread::~WakeThread() {
  if (thread_.joinable()) {
    ::eventfd_write(stop_, 1);
    thread_.join();
  }
  if (stop_ >= 0) ::close(stop_);
  if (epoll_ >= 0) ::close(epoll_);
}

void WakeThread::Watch(int index, uint32_t ticket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = static_cast<uint64_t>(index) << 32 | ticket;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fds_[index], &event);
}

void WakeThread::Run() {
  ::pthread_setname_np(::pthread_self(), "weir-wake");
  constexpr int kEventsMax = 16;
  epoll_event events[kEventsMax];
  for (;;) {
    const int n = ::epoll_wait(epoll_, events, kEventsMax, -1);
    if (n < 0 && errno != EINTR)
      return;  // the descriptor is gone: impossible, it is closed after the thread
    for (int i = 0; i < n; ++i) {
      const uint64_t data = events[i].data.u64;
      if (data == kStop) return;
      on_news_[data >> 32](static_cast<uint32_t>(data));
    }
  }
}

}  // namespace weir::transport
