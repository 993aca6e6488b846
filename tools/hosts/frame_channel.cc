#include "tools/hosts/frame_channel.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::hosts {
namespace {

constexpr char kMarker[] = "\nweir agent, version 1\n";
constexpr size_t kMarkerBytes = sizeof(kMarker) - 1;
constexpr size_t kLengthBytes = 4;
constexpr size_t kReadBytes = 64 << 10;
// One call of Receive reads at most this, so that one channel does not keep the others waiting.
constexpr size_t kReceiveBytesMax = 1 << 20;

}  // namespace

FrameChannel::FrameChannel(std::shared_ptr<ByteStream> stream, Side side)
    : stream_(std::move(stream)) {
  if (side == Side::kStarter) {
    expects_marker_ = true;
  } else {
    to_write_ = kMarker;
    Flush();
  }
}

FrameChannel::~FrameChannel() { ::explicit_bzero(to_write_.data(), to_write_.size()); }

absl::Status FrameChannel::Receive(std::vector<std::string>* frames) {
  size_t received = 0;
  while (open() && (received < kReceiveBytesMax || stream_->has_pending())) {
    char bytes[kReadBytes];
    const ssize_t count = stream_->Read(bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (count <= 0) {
      const std::string reason = count == 0 ? "the other side closed it" : ::strerror(errno);
      has_ended_ = true;
      return absl::UnavailableError(reason);
    }
    received += static_cast<size_t>(count);
    read_.append(bytes, static_cast<size_t>(count));
    absl::Status status = SkipNoise();
    if (status.ok() && !expects_marker_) status = TakeFrames(frames);
    if (!status.ok()) {
      has_ended_ = true;
      return status;
    }
  }
  return open() ? absl::OkStatus() : absl::UnavailableError("it is closed");
}

absl::Status FrameChannel::SkipNoise() {
  if (!expects_marker_) return absl::OkStatus();
  const size_t found = read_.find(kMarker);
  if (found == std::string::npos) {
    if (read_.size() <= kNoiseBytesMax) {
      noise_ = read_;
      return absl::OkStatus();
    }
    return absl::DataLossError("something other than an agent speaks");
  }
  noise_ = read_.substr(0, found);
  read_.erase(0, found + kMarkerBytes);
  expects_marker_ = false;
  return absl::OkStatus();
}

absl::Status FrameChannel::TakeFrames(std::vector<std::string>* frames) {
  size_t begin = 0;
  while (read_.size() - begin >= kLengthBytes) {
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i)
      length |= size_t{static_cast<unsigned char>(read_[begin + i])} << (8 * i);
    if (length > kFrameBytesMax)
      return absl::DataLossError(absl::StrCat("a frame of ", length, " bytes"));
    if (read_.size() - begin - kLengthBytes < length) break;
    frames->push_back(read_.substr(begin + kLengthBytes, length));
    begin += kLengthBytes + length;
  }
  ::explicit_bzero(read_.data(), begin);
  read_.erase(0, begin);
  return absl::OkStatus();
}

void FrameChannel::Send(const std::string& frame) {
  if (!takes_frames()) return;
  for (size_t i = 0; i < kLengthBytes; ++i)
    to_write_ += static_cast<char>((frame.size() >> (8 * i)) & 0xff);
  to_write_ += frame;
  Flush();
}

void FrameChannel::Flush() {
  while (takes_frames() && num_waiting() > 0) {
    const ssize_t count = stream_->Write(to_write_.data() + written_, num_waiting());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0) {
      stream_->CloseOutput();  // the end shows at the input, too
      break;
    }
    written_ += static_cast<size_t>(count);
  }
  if (num_waiting() > 0 && takes_frames() && written_ < to_write_.size() / 2) return;
  ::explicit_bzero(to_write_.data(), std::min(written_, to_write_.size()));
  to_write_.erase(0, takes_frames() ? written_ : to_write_.size());
  written_ = 0;
}

}  // namespace weir::hosts
