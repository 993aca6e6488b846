#include "tools/hosts/relayed_stream.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

namespace weir::hosts {

void RelayedStream::Take(const proto::RelayReport& report) {
  if (report.has_end()) End();
  if (!report.bytes().empty() && is_input_open_) received_ += report.bytes();
  const size_t taken = static_cast<size_t>(std::max<int64_t>(report.taken(), 0));
  num_on_their_way_ -= std::min(taken, num_on_their_way_);
}

ssize_t RelayedStream::Read(char* bytes, size_t count) {
  const size_t num_read = std::min(count, received_.size());
  if (num_read == 0 && !has_ended_) {
    errno = EAGAIN;
    return -1;
  }
  ::memcpy(bytes, received_.data(), num_read);
  received_.erase(0, num_read);
  return static_cast<ssize_t>(num_read);
}

ssize_t RelayedStream::Write(const char* bytes, size_t count) {
  if (has_ended_) {
    errno = EPIPE;
    return -1;
  }
  const size_t room = kRelayWindowBytes - std::min(num_on_their_way_, kRelayWindowBytes);
  const size_t written = std::min(count, room);
  if (written == 0) {
    errno = EAGAIN;
    return -1;
  }
  proto::AgentOrder order;
  order.mutable_relay()->set_command(command_);
  order.mutable_relay()->mutable_bytes()->assign(bytes, written);
  send_(order);
  num_on_their_way_ += written;
  return static_cast<ssize_t>(written);
}

void RelayedStream::CloseOutput() {
  if (!is_output_open_) return;
  is_output_open_ = false;
  if (has_ended_) return;
  proto::AgentOrder order;
  order.mutable_relay()->set_command(command_);
  order.mutable_relay()->mutable_close();
  send_(order);
}

void RelayedStream::Close() {
  CloseOutput();
  is_input_open_ = false;
}

}  // namespace weir::hosts
