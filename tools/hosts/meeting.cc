#include "tools/hosts/meeting.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/hosts/address_probe.h"
#include "tools/hosts/host_name.h"

namespace weir::hosts {
namespace {

using control::SocketAddress;
using launch::OwnedDescriptor;

constexpr char kInvitationStart[] = "weir-meeting 1";
constexpr size_t kAddressesMax = 64;
constexpr int64_t kServeMs = 100;
// A connection that has not proved itself in this time makes room for others.
constexpr int64_t kProveMs = 5'000;
constexpr size_t kGuestsMax = 1'024;
constexpr int64_t kDialMs = 2'000;
constexpr int64_t kAgainMs = 200;  // between two rounds of dialling

// An agent's name in the handshake is "<task> <host> <machine>".
bool ParseName(const std::string& text, Visitor* visitor) {
  const size_t space = text.find(' ');
  int32_t task = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &task)) return false;
  visitor->task = TaskId(task);
  visitor->name = text.substr(space + 1);
  if (const size_t end = visitor->name.find(' '); end != std::string::npos) {
    visitor->machine = visitor->name.substr(end + 1);
    visitor->name.resize(end);
  }
  return !visitor->name.empty();
}

// Finishes the handshake of the side that dials.
absl::Status ShakeWithin(SealedStream* stream, int64_t limit_ms) {
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
  while (true) {
    WEIR_ASSIGN_OR_RETURN(const SealedStream::Shaken shaken, stream->Shake());
    if (shaken == SealedStream::Shaken::kDone) return absl::OkStatus();
    const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
    if (left_ms <= 0) return absl::UnavailableError("the other side says nothing");
    const bool reads = shaken == SealedStream::Shaken::kToRead;
    pollfd ready = {stream->input(), static_cast<short>(reads ? POLLIN : POLLOUT), 0};
    ::poll(&ready, 1, static_cast<int>(left_ms));
  }
}

// Returns the addresses that an entry of an invitation means. A name is looked up at each call,
// because the name of a host that has just started may not be known yet.
std::vector<SocketAddress> Lookup(const std::string& text) {
  if (std::optional<SocketAddress> address = SocketAddress::ParseWithPort(text)) return {*address};
  std::vector<SocketAddress> addresses;
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > UINT16_MAX)
    return addresses;
  for (const std::string& host : AddressesOf(text.substr(0, colon))) {
    if (auto address = SocketAddress::Parse(host, static_cast<uint16_t>(port)))
      addresses.push_back(*address);
  }
  return addresses;
}

absl::StatusOr<std::shared_ptr<ByteStream>> Dial(const SocketAddress& address,
                                                 const std::string& secret,
                                                 const std::string& name) {
  OwnedDescriptor socket;
  if (const int error = Connect(address, kDialMs, &socket); error != 0)
    return absl::UnavailableError(::strerror(error));
  WEIR_ASSIGN_OR_RETURN(
      std::unique_ptr<SealedStream> stream,
      SealedStream::Make(std::move(socket), SealedStream::Side::kDials, secret, name));
  WEIR_RETURN_IF_ERROR(ShakeWithin(stream.get(), kProveMs));
  return std::shared_ptr<ByteStream>(std::move(stream));
}

}  // namespace

std::string InvitationText(const Invitation& invitation) {
  return absl::StrCat(kInvitationStart, " ", absl::BytesToHexString(invitation.secret), " ",
                      absl::StrJoin(invitation.addresses, " "), "\n");
}

absl::StatusOr<Invitation> ParseInvitation(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  Invitation invitation;
  const bool is_whole = text.size() <= kInvitationBytesMax && words.size() >= 4 &&
                        words.size() <= 3 + kAddressesMax &&
                        absl::StrCat(words[0], " ", words[1]) == kInvitationStart &&
                        words[2].size() == 2 * kSecretBytes &&
                        std::all_of(words[2].begin(), words[2].end(), absl::ascii_isxdigit);
  if (!is_whole) return absl::InvalidArgumentError("the text is no invitation of a starter");
  invitation.secret = absl::HexStringToBytes(words[2]);
  invitation.addresses.assign(words.begin() + 3, words.end());
  return invitation;
}

struct Meeting::Guest {
  std::unique_ptr<SealedStream> stream;
  int64_t end_ns = 0;  // by which it has proved itself
  short waits_for = POLLIN;
};

Meeting::Meeting(std::vector<OwnedDescriptor> listeners, Invitation invitation)
    : listeners_(std::move(listeners)), invitation_(std::move(invitation)) {}
Meeting::~Meeting() = default;

absl::StatusOr<std::unique_ptr<Meeting>> Meeting::Open(const std::vector<std::string>& addresses,
                                                       uint16_t port, const std::string& secret) {
  std::vector<OwnedDescriptor> listeners;
  Invitation invitation;
  invitation.secret = secret;
  std::vector<std::string> refused;
  std::set<std::string> seen;
  for (const std::string& address : addresses) {
    if (!seen.insert(address).second) continue;
    absl::StatusOr<OwnedDescriptor> listener = ListenAt(address, port);
    if (absl::IsAlreadyExists(listener.status())) return listener.status();
    if (!listener.ok()) {
      refused.push_back(std::string(listener.status().message()));
      continue;
    }
    invitation.addresses.push_back(SocketAddress::LocalOf(listener->get())->text());
    listeners.push_back(*std::move(listener));
    if (listeners.size() == kAddressesMax) break;
  }
  if (listeners.empty())
    return absl::UnavailableError(refused.empty() ? "this machine has no address"
                                                  : absl::StrJoin(refused, "; "));
  return std::unique_ptr<Meeting>(new Meeting(std::move(listeners), std::move(invitation)));
}

void Meeting::AcceptGuests(const OwnedDescriptor& listener) {
  const MonotonicClock clock;
  while (guests_.size() < kGuestsMax) {
    OwnedDescriptor socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) return;
    absl::StatusOr<std::unique_ptr<SealedStream>> stream =
        SealedStream::Make(std::move(socket), SealedStream::Side::kListens, invitation_.secret, "");
    if (!stream.ok()) return;
    guests_.push_back({*std::move(stream), clock.NowNs() + kProveMs * 1'000'000});
  }
}

bool Meeting::ServeGuest(Guest* guest, const std::vector<TaskId>& tasks) {
  const MonotonicClock clock;
  absl::StatusOr<SealedStream::Shaken> shaken = guest->stream->Shake();
  if (shaken.ok() && *shaken != SealedStream::Shaken::kDone) {
    guest->waits_for = *shaken == SealedStream::Shaken::kToRead ? POLLIN : POLLOUT;
    if (clock.NowNs() < guest->end_ns) return true;
    turned_away_ = "a connection that said nothing";
    return false;
  }
  if (!shaken.ok()) {
    turned_away_ = std::string(shaken.status().message());
    return false;
  }
  Visitor visitor;
  const std::string& text = guest->stream->peer_name();
  const bool is_named = ParseName(text, &visitor);
  const bool is_known =
      is_named && std::find(tasks.begin(), tasks.end(), visitor.task) != tasks.end();
  const bool is_new = std::none_of(visitors_.begin(), visitors_.end(), [&](const Visitor& other) {
    return other.task == visitor.task;
  });
  if (!is_known || !is_new) {
    const std::string who = is_named ? absl::StrCat(visitor.task, " ", visitor.name) : text;
    turned_away_ = absl::StrCat("task '", absl::CEscape(who), "', which is ",
                                is_known ? "here already" : "not one of the job's");
    return false;
  }
  visitor.stream = std::move(guest->stream);
  visitors_.push_back(std::move(visitor));
  return false;
}

void Meeting::Poll(int64_t limit_ms, const std::vector<TaskId>& tasks) {
  std::vector<pollfd> polled;
  for (const OwnedDescriptor& listener : listeners_)
    polled.push_back({guests_.size() < kGuestsMax ? listener.get() : -1, POLLIN, 0});
  for (const Guest& guest : guests_) polled.push_back({guest.stream->input(), guest.waits_for, 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(limit_ms));
  std::erase_if(guests_, [&](Guest& guest) { return !ServeGuest(&guest, tasks); });
  for (const OwnedDescriptor& listener : listeners_) AcceptGuests(listener);
}

absl::StatusOr<std::vector<Visitor>> Meeting::Await(const std::vector<TaskId>& tasks,
                                                    int64_t limit_ms,
                                                    const std::function<absl::Status()>& serve) {
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
  while (visitors_.size() < tasks.size()) {
    const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
    if (left_ms <= 0) {
      std::vector<TaskId> missing;
      for (const TaskId task : tasks) {
        if (std::none_of(visitors_.begin(), visitors_.end(),
                         [task](const Visitor& visitor) { return visitor.task == task; }))
          missing.push_back(task);
      }
      return absl::DeadlineExceededError(absl::StrCat(
          "no word of ", missing.size() == 1 ? "task " : "tasks ", absl::StrJoin(missing, ", "),
          " within ", limit_ms / 1000, " s at ", absl::StrJoin(invitation_.addresses, " or "),
          turned_away_.empty() ? "" : "; turned away: ", turned_away_));
    }
    Poll(std::min(left_ms, kServeMs), tasks);
    WEIR_RETURN_IF_ERROR(serve());
  }
  listeners_.clear();
  guests_.clear();
  std::vector<Visitor> in_order;
  for (const TaskId task : tasks) {
    in_order.push_back(
        std::move(*std::find_if(visitors_.begin(), visitors_.end(),
                                [task](const Visitor& visitor) { return visitor.task == task; })));
  }
  visitors_.clear();
  return in_order;
}

absl::StatusOr<Joined> Join(const InvitationSource& source, TaskId task, const std::string& name,
                            int64_t limit_ms) {
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
  Invitation invitation;
  std::string denied;  // by a starter that was reached, which says more than a later silence
  while (true) {
    if (Invitation now = source(); now.secret != invitation.secret) {
      invitation = std::move(now);
      denied.clear();
    }
    std::vector<std::string> met;
    for (const std::string& entry : invitation.addresses) {
      const std::vector<SocketAddress> addresses = Lookup(entry);
      if (addresses.empty()) met.push_back(absl::StrCat(entry, " is not known"));
      for (const SocketAddress& address : addresses) {
        if (source().secret != invitation.secret) break;  // the rest is of an earlier job
        absl::StatusOr<std::shared_ptr<ByteStream>> stream =
            Dial(address, invitation.secret, absl::StrCat(task, " ", name, " ", MachineId()));
        if (stream.ok()) return Joined{*std::move(stream), address.host()};
        met.push_back(absl::StrCat(address.text(), " ", stream.status().message()));
        if (absl::IsPermissionDenied(stream.status())) denied = met.back();
      }
    }
    if (clock.NowNs() >= end_ns)
      return absl::UnavailableError(denied.empty() ? absl::StrJoin(met, "; ") : denied);
    std::this_thread::sleep_for(std::chrono::milliseconds(kAgainMs));
  }
}

}  // namespace weir::hosts
