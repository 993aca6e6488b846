// A CommandQueue holds the commands that wait at a worker. A command belongs to the epoch in which
// it came, and so does its answer. When an epoch begins, the commands of the old one are forgotten:
// nobody waits for their answers, and they would act on the states of the new one.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace weir::control {

template <typename Content>
class CommandQueue {
 public:
  struct Command {
    int64_t call = 0;    // its number, for the answer
    uint32_t epoch = 0;  // of the job when the command came
    Content content;
  };

  explicit CommandQueue(uint32_t epoch) : epoch_(epoch) {}

  uint32_t epoch() const { return epoch_; }
  bool empty() const { return commands_.empty(); }
  size_t size() const { return commands_.size(); }
  void Push(int64_t call, Content content) {
    commands_.push_back({call, epoch_, std::move(content)});
  }
  // Returns the command that came first; nullopt: none waits.
  std::optional<Command> Pop() {
    if (commands_.empty()) return std::nullopt;
    Command command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }
  void BeginEpoch(uint32_t epoch) {
    epoch_ = epoch;
    commands_.clear();
  }

 private:
  uint32_t epoch_;
  std::deque<Command> commands_;
};

}  // namespace weir::control
