// A RelayedStream is the starter's end of the stream to an agent that it reaches through the agent
// of another host, the relay. What is written here travels in orders to that agent; what its
// reports bring is read here. It has no descriptors: its owner serves it when the relay's reports
// come. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "proto/agent.pb.h"
#include "tools/hosts/byte_stream.h"

namespace weir::hosts {

// At most this many bytes are on their way to a command of a relay.
inline constexpr size_t kRelayWindowBytes = 1 << 20;

class RelayedStream final : public ByteStream {
 public:
  // `send` gives an order to the relay; it must live as long as this object is open.
  RelayedStream(int command, std::function<void(const proto::AgentOrder&)> send)
      : command_(command), send_(std::move(send)) {}

  // Takes a report of the relay about this command. The bytes of its standard error are the
  // owner's.
  void Take(const proto::RelayReport& report);
  // The relay is gone, or the command is: Read gives what is left, and then the end.
  void End() { has_ended_ = true; }

  ssize_t Read(char* bytes, size_t count) override;
  ssize_t Write(const char* bytes, size_t count) override;
  bool has_pending() const override { return !received_.empty(); }
  int input() const override { return -1; }
  int output() const override { return -1; }
  bool is_input_open() const override { return is_input_open_; }
  bool is_output_open() const override { return is_output_open_; }
  void CloseOutput() override;
  void Close() override;

 private:
  const int command_;  // its number at the relay
  const std::function<void(const proto::AgentOrder&)> send_;
  std::string received_;
  size_t num_on_their_way_ = 0;  // bytes
  bool has_ended_ = false;
  bool is_input_open_ = true, is_output_open_ = true;
};

}  // namespace weir::hosts
