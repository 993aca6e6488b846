// An Outbox holds the messages that wait to be written to one stream of the control plane; an Inbox
// joins pieces to messages again. A message is cut into pieces, so that a frame that must be on
// time (a heartbeat, a ping) waits behind one piece at most.
//
// The order is: urgent frames, then messages in the order pushed, then the last frame. An outbox is
// bounded in messages and bytes: a caller that cannot push any more ends the stream. An outbox does
// no input or output.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace weir::control {

inline constexpr size_t kPieceBytes = 256 << 10;
// A frame is a piece, a heartbeat with its activity, or a farewell with last words; gRPC accepts no
// larger frame.
inline constexpr int kFrameBytesMax = (256 << 10) + (16 << 10);
// The room around the payload of a message: names, numbers, a status.
inline constexpr int64_t kMessageOverheadBytes = 16 << 10;

template <typename Frame>
class Outbox {
 public:
  using Message = std::shared_ptr<const std::string>;

  Outbox(size_t messages_max, int64_t bytes_max)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  // kResourceExhausted if the bounds leave no room; nothing is dropped, and the caller ends the
  // stream.
  absl::Status Push(Message message);
  void PushUrgent(Frame frame) {
    if (!closed_) urgent_.push_back(std::move(frame));
  }
  // Frames and messages that are pushed later are not sent.
  void PushLast(Frame frame) {
    if (!closed_) last_ = std::move(frame);
    closed_ = true;
  }
  // Drops everything that is not yet sent, also a last frame. A message that is sent in part stays
  // in part: only a last frame may follow it.
  void Clear();

  // Returns the next frame to write, if any.
  std::optional<Frame> Next();
  bool empty() const { return urgent_.empty() && messages_.empty() && !last_.has_value(); }
  bool has_urgent() const { return !urgent_.empty(); }

 private:
  const size_t messages_max_;
  const int64_t bytes_max_;
  std::deque<Frame> urgent_;
  std::deque<Message> messages_;
  int64_t bytes_ = 0;  // of messages_
  size_t sent_ = 0;    // bytes of messages_.front()
  std::optional<Frame> last_;
  bool closed_ = false;  // nothing more is taken
};

// An Inbox joins pieces to messages of at most `bytes_max` each.
class Inbox {
 public:
  explicit Inbox(int64_t bytes_max) : bytes_max_(bytes_max) {}
  // Returns the message that `piece` completes, if `piece` is a last piece. kResourceExhausted
  // beyond the limit.
  absl::StatusOr<std::optional<std::string>> Add(const proto::Piece& piece);

 private:
  const int64_t bytes_max_;
  std::string message_;
};

template <typename Frame>
absl::Status Outbox<Frame>::Push(Message message) {
  if (closed_) return absl::OkStatus();
  if (messages_.size() >= messages_max_)
    return absl::ResourceExhaustedError("too many messages wait to be sent");
  const int64_t bytes = static_cast<int64_t>(message->size());
  if (bytes > bytes_max_ - bytes_)
    return absl::ResourceExhaustedError("too many bytes wait to be sent");
  bytes_ += bytes;
  messages_.push_back(std::move(message));
  return absl::OkStatus();
}

template <typename Frame>
void Outbox<Frame>::Clear() {
  urgent_.clear();
  messages_.clear();
  last_.reset();
  bytes_ = 0;
  sent_ = 0;
  closed_ = false;
}

template <typename Frame>
std::optional<Frame> Outbox<Frame>::Next() {
  std::optional<Frame> frame;
  if (!urgent_.empty()) {
    frame = std::move(urgent_.front());
    urgent_.pop_front();
  } else if (!messages_.empty()) {
    const std::string& message = *messages_.front();
    const size_t count = std::min(kPieceBytes, message.size() - sent_);
    frame.emplace();
    frame->mutable_piece()->set_part(message.data() + sent_, count);
    sent_ += count;
    if (sent_ == message.size()) {
      frame->mutable_piece()->set_last(true);
      bytes_ -= static_cast<int64_t>(message.size());
      sent_ = 0;
      messages_.pop_front();
    }
  } else if (last_.has_value()) {
    frame = std::move(*last_);
    last_.reset();
  }
  return frame;
}

}  // namespace weir::control
