// A FrameChannel carries frames, which are strings of bytes, over the stream that a launcher has
// made between the starter and the agent of a host. A frame travels as its length (4 bytes,
// little-endian) and its bytes. Nothing blocks: bytes that the stream does not take wait here.
//
// A program on the way may print before the agent speaks (a greeting of the system, a shell's
// startup file). The agent therefore begins with a marker, and the starter's side skips what comes
// before the marker.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/hosts/byte_stream.h"

namespace weir::hosts {

inline constexpr size_t kFrameBytesMax = 16 << 20;
inline constexpr size_t kNoiseBytesMax = 64 << 10;

class FrameChannel {
 public:
  // kAgent says the marker first; kStarter waits for it.
  enum class Side : uint8_t { kStarter, kAgent };
  FrameChannel(std::shared_ptr<ByteStream> stream, Side side);
  ~FrameChannel();
  FrameChannel(FrameChannel&&) = default;
  FrameChannel& operator=(FrameChannel&&) = default;

  // Reads what is there and appends the complete frames to `frames`. kUnavailable once the other
  // side has closed the channel; kDataLoss if the bytes are no frames, or no marker comes among the
  // first kNoiseBytesMax bytes. After an error the channel has ended; its descriptors close with
  // Close or the channel itself.
  absl::Status Receive(std::vector<std::string>* frames);

  // Queues a frame, and writes the bytes that the stream takes. Precondition: at most
  // kFrameBytesMax bytes. Frames to a closed channel are dropped.
  void Send(const std::string& frame);
  // Writes the bytes that the stream takes.
  void Flush();
  // Returns how many bytes wait to be written.
  size_t num_waiting() const { return to_write_.size() - written_; }

  // The descriptors, for poll; -1 once closed, and over a stream without descriptors.
  int input() const { return has_ended_ ? -1 : stream_->input(); }
  int output() const { return has_ended_ ? -1 : stream_->output(); }
  bool open() const { return !has_ended_ && stream_->is_input_open(); }
  // Returns whether the machine at the other end counts as gone (ByteStream::is_silent).
  bool is_silent() const { return stream_->is_silent(); }
  // Tells the other side the end, while frames still come from there.
  void CloseOutput() { stream_->CloseOutput(); }
  void Close() { stream_->Close(); }
  // Returns the text that came before the marker.
  const std::string& noise() const { return noise_; }

 private:
  bool takes_frames() const { return !has_ended_ && stream_->is_output_open(); }
  absl::Status SkipNoise();
  absl::Status TakeFrames(std::vector<std::string>* frames);

  std::shared_ptr<ByteStream> stream_;
  bool has_ended_ = false;
  bool expects_marker_ = false;
  std::string noise_;
  std::string read_;      // bytes of frames that are not complete
  std::string to_write_;  // frames may contain secrets: wiped once written
  size_t written_ = 0;    // of to_write_
};

}  // namespace weir::hosts
