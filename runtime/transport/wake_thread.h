// A WakeThread is one thread that waits for many file descriptors and calls the function of the
// descriptor that has news. Each Watch is good for one call, so the thread never spins on news that
// nobody takes. The call names the Watch that it answers, because news may be late. The thread
// reads nothing from the descriptors. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::transport {

class WakeThread {
 public:
  using OnNews = std::function<void(uint32_t ticket)>;
  // `on_news[i]` belongs to `fds[i]`; the functions are called on the thread and must not block.
  static absl::StatusOr<std::unique_ptr<WakeThread>> Start(std::vector<int> fds,
                                                           std::vector<OnNews> on_news);
  // After the destructor no function is called.
  ~WakeThread();

  // Calls on_news[index](ticket) once, as soon as its descriptor is readable or if it already is,
  // unless another Watch of the descriptor comes before.
  void Watch(int index, uint32_t ticket);

 private:
  WakeThread(std::vector<int> fds, std::vector<OnNews> on_news)
      : fds_(std::move(fds)), on_news_(std::move(on_news)) {}
  void Run();

  const std::vector<int> fds_;
  const std::vector<OnNews> on_news_;
  int epoll_ = -1;
  int stop_ = -1;  // an eventfd
  std::thread thread_;
};

}  // namespace weir::transport
