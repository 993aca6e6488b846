// A Relay is the part of an agent through which the starter reaches the agents of further hosts: it
// starts commands such as ssh, as the starter orders, and carries bytes between the channel of its
// own agent and the standard streams of those commands (proto/agent.proto, RelayOrder). A relay
// does not look into the bytes. They contain the keys of workers, so a relay's host must be one
// that may know them: whoever can start a command on the further host can read them there, too.
//
// At most kRelayWindowBytes of a command's input wait here, because the starter sends no more
// before the command has taken some (relayed_stream.h).
// Thread rule: one thread, which lives at least as long as the commands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/agent.pb.h"
#include "tools/launch/owned_descriptor.h"
#include "tools/launch/worker_process.h"

namespace weir::hosts {

class Relay {
 public:
  using Report = std::function<void(const proto::RelayReport&)>;

  // `report` takes what the starter shall hear. `also_watched` is a descriptor of the caller's,
  // whose bytes make descriptor() readable, too. kUnavailable (W0093) if the system gives no
  // descriptor.
  static absl::StatusOr<std::unique_ptr<Relay>> Open(int also_watched, Report report);
  // Closes the inputs of all commands, so that the agents behind them end, and waits for that for
  // 5 s at most. Kills the commands that are left.
  ~Relay();

  // Returns whether the order makes sense.
  bool Obey(const proto::RelayOrder& order);

  // Readable when Serve, or the caller's descriptor, has something to do.
  int descriptor() const { return watched_.get(); }

  // kHeld: nothing is read from the commands, because the starter does not take what is reported.
  enum class Flow : uint8_t { kFree, kHeld };
  // Carries what can be carried without waiting.
  void Serve(Flow flow);

 private:
  struct Command {
    launch::WorkerProcess process;
    std::string waiting;  // for its standard input
    bool is_closing = false;
    bool awaits_room = false;  // in its standard input: watched
  };

  Relay(launch::OwnedDescriptor watched, Report report)
      : report_(std::move(report)), watched_(std::move(watched)) {}
  void Start(int32_t number, const proto::RelayOrder::Start& start);
  void Watch(int32_t number, int what, bool is_watched) const;
  void Hold(Flow flow);
  void ServeOne(int32_t number, int what);
  void Write(int32_t number, Command* command);
  bool ReadSome(int32_t number, launch::OwnedDescriptor* from, int what) const;
  void End(int32_t number, Command* command);

  const Report report_;
  const launch::OwnedDescriptor watched_;  // of epoll
  Flow flow_ = Flow::kFree;
  std::map<int32_t, Command> commands_;  // by the starter's number
};

}  // namespace weir::hosts
