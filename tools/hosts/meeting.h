// A Meeting brings agents to the starter of a job when a scheduler has started them: the starter
// listens, tells the scheduler's processes where (an invitation), and each agent dials. Both sides
// prove that they know the invitation's secret (sealed_stream.h).
//
//   starter: Open -> invitation -> Await          agent: Join
//
// An invitation is a line of text: "weir-meeting 1 <secret> <address> <address>...". Whoever knows
// the line can be an agent of the job, so the line travels over channels of the scheduler that
// other users cannot read, and never in arguments or the environment. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/control/socket_address.h"
#include "tools/hosts/byte_stream.h"
#include "tools/hosts/sealed_stream.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {

inline constexpr size_t kInvitationBytesMax = 16 << 10;

struct Invitation {
  std::string secret;                  // kSecretBytes bytes
  std::vector<std::string> addresses;  // of the starter, or its names, with ports; best first
};
std::string InvitationText(const Invitation& invitation);
// kInvalidArgument if the text is no invitation. The message does not repeat the text.
absl::StatusOr<Invitation> ParseInvitation(const std::string& text);

// An agent that has come to the meeting.
struct Visitor {
  TaskId task;
  std::string name;     // that its host gives itself
  std::string machine;  // MachineId of its host (host_name.h); empty: not known
  std::shared_ptr<ByteStream> stream;
};

class Meeting {
 public:
  // Listens at each of the addresses of this machine that can be listened at. `port` 0: free ports.
  // kUnavailable with what each address met if there is none. kAlreadyExists if somebody has the
  // port at one of them: agents would dial that one.
  static absl::StatusOr<std::unique_ptr<Meeting>> Open(const std::vector<std::string>& addresses,
                                                       uint16_t port, const std::string& secret);
  ~Meeting();

  const Invitation& invitation() const { return invitation_; }
  int num_visitors() const { return static_cast<int>(visitors_.size()); }
  // Why the latest guest was turned away; empty: none was.
  const std::string& turned_away() const { return turned_away_; }

  // Waits until a visitor of each of `tasks` has come, and returns the visitors in the order of
  // `tasks`. Then nobody listens any more. Calls `serve` at least every 100 ms; an error of `serve`
  // ends the wait and is returned. kDeadlineExceeded names the tasks that have not come, and what
  // those who were turned away lacked.
  absl::StatusOr<std::vector<Visitor>> Await(const std::vector<TaskId>& tasks, int64_t limit_ms,
                                             const std::function<absl::Status()>& serve);

 private:
  struct Guest;  // a connection under way
  Meeting(std::vector<launch::OwnedDescriptor> listeners, Invitation invitation);
  void AcceptGuests(const launch::OwnedDescriptor& listener);
  // Returns whether the guest is still under way.
  bool ServeGuest(Guest* guest, const std::vector<TaskId>& tasks);
  void Poll(int64_t limit_ms, const std::vector<TaskId>& tasks);

  std::vector<launch::OwnedDescriptor> listeners_;
  const Invitation invitation_;
  std::vector<Guest> guests_;
  std::vector<Visitor> visitors_;
  std::string turned_away_;  // the latest reason
};

struct Joined {
  std::shared_ptr<ByteStream> stream;
  std::string starter_address;  // the one that was reached, without the port
};
// Returns the invitation as it is now: the starter may replace one that an earlier job has left.
using InvitationSource = std::function<Invitation()>;
// Comes to a meeting as task `task` under `name`, that of its host, and tells the machine: dials
// the addresses in turn until one is reached or the limit has passed. Asks for the invitation
// before each address. kUnavailable with what each address met.
absl::StatusOr<Joined> Join(const InvitationSource& source, TaskId task, const std::string& name,
                            int64_t limit_ms);

}  // namespace weir::hosts
