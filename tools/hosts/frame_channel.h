// A FrameChannel carries frames, which are strings of bytes, over two descriptors: the pipes or the
// socket that a launcher has made between the starter and the agent of a host. A frame travels as
// its length (4 bytes, little-endian) and its bytes. Nothing blocks: what a descriptor does not
// take waits here.
//
// A program on the way may print before the agent speaks (a greeting of the system, a shell's
// startup file). The agent therefore begins with a marker, and the starter's side skips what comes
// before the marker.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {

inline constexpr size_t kFrameBytesMax = 16 << 20;
inline constexpr size_t kNoiseBytesMax = 64 << 10;

class FrameChannel {
 public:
  // kAgent says the marker first; kStarter waits for it.
  enum class Side : uint8_t { kStarter, kAgent };
  FrameChannel(launch::OwnedDescriptor input, launch::OwnedDescriptor output, Side side);
  ~FrameChannel();
  FrameChannel(FrameChannel&&) = default;
  FrameChannel& operator=(FrameChannel&&) = default;

  // Reads what is there and appends the complete frames to `frames`. kUnavailable once the other
  // side has closed the channel; kDataLoss if the bytes are no frames, or no marker comes among the
  // first kNoiseBytesMax bytes. After an error the channel is closed.
  absl::Status Receive(std::vector<std::string>* frames);

  // Queues a frame, and writes what the descriptor takes. Precondition: at most kFrameBytesMax
  // bytes. Frames to a closed channel are dropped.
  void Send(const std::string& frame);
  // Writes what the descriptor takes.
  void Flush();
  // Returns how many bytes wait to be written.
  size_t num_waiting() const { return to_write_.size() - written_; }

  // The descriptors, for poll; -1 once closed.
  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  bool open() const { return input_.open(); }
  void Close();
  // Returns the text that came before the marker.
  const std::string& noise() const { return noise_; }

 private:
  absl::Status SkipNoise();
  absl::Status TakeFrames(std::vector<std::string>* frames);

  launch::OwnedDescriptor input_, output_;
  bool expects_marker_ = false;
  std::string noise_;
  std::string read_;      // bytes of frames that are not complete
  std::string to_write_;  // frames may contain secrets: wiped once written
  size_t written_ = 0;    // of to_write_
};

}  // namespace weir::hosts
