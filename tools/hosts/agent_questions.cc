// The questions that a supervisor asks of agents, and the files that travel between them.
#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/outcome.h"
#include "tools/hosts/agents_supervisor.h"

namespace weir::hosts {
namespace {

constexpr int64_t kLookMs = 500;
constexpr int64_t kMeasureMs = 4000;  // of a way that is slow
constexpr int64_t kPieceMs = 20'000;  // for the next piece of a file to travel
constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kWaitingBytesMax = 4 << 20;  // in the channel to an agent

}  // namespace

IdVector<HostId, std::vector<AddressProbe>> AgentsSupervisor::Probe(
    const std::vector<std::string>& addresses, int64_t limit_ms) {
  proto::AgentOrder order;
  for (const std::string& address : addresses) order.mutable_probe()->add_address(address);
  order.mutable_probe()->set_limit_ms(limit_ms);
  for (Agent& agent : agents_) agent.probe.reset();
  SendToAll(order);
  AwaitAll(limit_ms * static_cast<int64_t>(addresses.size()) + kAnswerMs,
           [](const Agent& agent) { return agent.probe.has_value(); });
  IdVector<HostId, std::vector<AddressProbe>> results;
  for (const Agent& agent : agents_) {
    std::vector<AddressProbe> of_host(addresses.size());
    for (AddressProbe& probe : of_host) probe.error = "the host gave no answer";
    const int answered = agent.probe.has_value() ? agent.probe->probe_size() : 0;
    for (int i = 0; i < std::min<int>(answered, static_cast<int>(addresses.size())); ++i) {
      const proto::ProbeReport::Probe& probe = agent.probe->probe(i);
      of_host[static_cast<size_t>(i)] = {probe.error(), probe.local_address(), probe.interface(),
                                         probe.round_trip_us()};
    }
    results.push_back(std::move(of_host));
  }
  return results;
}

IdVector<HostId, std::vector<std::string>> AgentsSupervisor::ListenForProbes() {
  proto::AgentOrder order;
  order.mutable_listen();
  SendToAll(order);
  AwaitAll(kAnswerMs, [](const Agent& agent) { return agent.listen.has_value(); });
  IdVector<HostId, std::vector<std::string>> addresses;
  for (const Agent& agent : agents_) {
    addresses.emplace_back();
    if (!agent.listen.has_value()) continue;
    addresses.back().assign(agent.listen->address().begin(), agent.listen->address().end());
  }
  return addresses;
}

LinkSpeed AgentsSupervisor::Measure(HostId host, const std::string& address) {
  Agent& agent = agents_[host];
  agent.measure.reset();
  proto::AgentOrder order;
  order.mutable_measure()->set_request(++num_requests_);
  order.mutable_measure()->set_address(address);
  order.mutable_measure()->set_limit_ms(kMeasureMs);
  SendTo(&agent, order);
  const auto has_answer = [&] {
    return agent.measure.has_value() && agent.measure->request() == num_requests_;
  };
  ServeUntil(kMeasureMs + kAnswerMs, Listen::kToAgentsOnly,
             [&] { return has_answer() || !agent.lost.empty(); });
  if (!has_answer()) return {"the host gave no answer"};
  return {agent.measure->error(), agent.measure->round_trip_ns(),
          agent.measure->bytes_per_second()};
}

// Asks a host for its time. Returns whether it has answered.
bool AgentsSupervisor::AskTime(HostId host) {
  Agent& agent = agents_[host];
  proto::AgentOrder order;
  order.mutable_clock()->set_request(++num_requests_);
  SendTo(&agent, order);
  const auto has_answered = [&] {
    return agent.clock.has_value() && agent.clock->request() == num_requests_;
  };
  ServeUntil(kAnswerMs, Listen::kToAgentsOnly,
             [&] { return !agent.lost.empty() || has_answered(); });
  return has_answered();
}

IdVector<HostId, std::optional<int64_t>> AgentsSupervisor::ClockOffsetsNs() {
  constexpr int kQuestions = 5;
  IdVector<HostId, std::optional<int64_t>> offsets;
  for (const HostId host : agents_.ids()) {
    const Agent& agent = agents_[host];
    offsets.emplace_back();
    int64_t quickest_ns = std::numeric_limits<int64_t>::max();
    for (int question = 0; question < kQuestions && agent.lost.empty(); ++question) {
      const int64_t asked_ns = RealTimeNs();
      if (!AskTime(host)) break;
      const int64_t round_ns = RealTimeNs() - asked_ns;
      if (round_ns >= quickest_ns) continue;
      quickest_ns = round_ns;
      offsets.back() = agent.clock->real_ns() - (asked_ns + round_ns / 2);
    }
  }
  return offsets;
}

// Finds why a host gives no answer: it is lost, or the first agent on the way to it that does not
// tell the time keeps the others from answering.
AgentsSupervisor::SilentHost AgentsSupervisor::FindSilent(HostId host) {
  if (!agents_[host].lost.empty()) return {host, agents_[host].lost};
  std::vector<HostId> way;  // to the host, from the last agent on it to the first
  for (HostId place = host; agents_[place].relayed != nullptr; way.push_back(place))
    place = hosts_[place].through;
  for (auto relay = way.rbegin(); relay != way.rend(); ++relay) {
    if (AskTime(*relay)) continue;
    return {*relay, absl::StrCat("no answer of its agent, through which host '", hosts_[host].host,
                                 "' is reached")};
  }
  return {host, "no answer of its agent"};
}

// An agent answers its orders in turn, so further looks behind one that takes long would keep it
// from starting a process in time, and it would count as lost.
std::vector<launch::WorkerLook> AgentsSupervisor::AskForLooks(const std::vector<WorkerId>& workers,
                                                              LookKind kind) {
  const int64_t request = ++num_requests_;
  IdVector<HostId, proto::AgentOrder> orders(agents_.size());
  std::vector<std::pair<HostId, int>> places;  // by look: the host, and the place in its answer
  for (const WorkerId index : workers) {
    MutexLock lock(&mutex_);
    const Worker& worker = workers_[index];
    proto::LookOrder* const order = orders[worker.host].mutable_look();
    places.emplace_back(worker.host, order->process_size());
    order->set_request(request);
    order->set_is_glance(kind == LookKind::kGlance);
    order->add_process(worker.process.value());
  }
  const auto send_where_none_is_owed = [&] {
    for (const HostId host : agents_.ids()) {
      if (!orders[host].has_look() || agents_[host].owes_look) continue;
      agents_[host].look.reset();
      agents_[host].owes_look = true;
      SendTo(&agents_[host], orders[host]);
      orders[host].clear_look();
    }
  };
  const auto has_answer = [&](HostId host) {
    return agents_[host].look.has_value() && agents_[host].look->request() == request;
  };
  ServeUntil(kLookMs, Listen::kToAgentsOnly, [&] {
    send_where_none_is_owed();
    return std::all_of(places.begin(), places.end(), [&](const std::pair<HostId, int>& place) {
      return has_answer(place.first) || !agents_[place.first].lost.empty();
    });
  });
  std::vector<launch::WorkerLook> looks;
  for (size_t i = 0; i < workers.size(); ++i) {
    launch::WorkerLook look;
    const auto [host, place] = places[i];
    look.is_seen = has_answer(host) && place < agents_[host].look->look_size();
    if (look.is_seen) {
      const proto::LookReport::Look& answer = agents_[host].look->look(place);
      look.kind = static_cast<launch::ProcessState::Kind>(answer.kind());
      for (const proto::LookReport::Stalled& stalled : answer.stalled()) {
        look.stalled.push_back({static_cast<pid_t>(pid(workers[i])), stalled.local(),
                                stalled.remote(), stalled.bytes_waiting(),
                                stalled.times_repeated()});
      }
    }
    looks.push_back(std::move(look));
  }
  return looks;
}

absl::StatusOr<std::string> AgentsSupervisor::FetchFile(HostId host, const std::string& path,
                                                        int64_t bytes_max) {
  proto::FetchOrder fetch;
  fetch.set_path(path);
  fetch.set_bytes_max(bytes_max);
  return Fetch(host, fetch, path);
}

absl::StatusOr<std::string> AgentsSupervisor::ReadMemory(WorkerId worker, int64_t bytes_max) {
  proto::FetchOrder fetch;
  fetch.set_is_memory(true);
  fetch.set_bytes_max(bytes_max);
  HostId host;
  {
    MutexLock lock(&mutex_);
    host = workers_[worker].host;
    fetch.set_process(workers_[worker].process.value());
  }
  return Fetch(host, fetch, absl::StrCat("the memory of worker ", worker));
}

absl::StatusOr<std::string> AgentsSupervisor::Fetch(HostId host, const proto::FetchOrder& fetch,
                                                    const std::string& what) {
  Agent& agent = agents_[host];
  if (!agent.lost.empty()) return absl::UnavailableError(absl::StrCat(what, ": ", agent.lost));
  agent.fetched.clear();
  agent.fetch_status.reset();
  proto::AgentOrder order;
  *order.mutable_fetch() = fetch;
  order.mutable_fetch()->set_request(++num_requests_);
  SendTo(&agent, order);
  size_t before = 0;
  do {  // as long as bytes come
    before = agent.fetched.size();
    ServeUntil(kPieceMs, Listen::kToAgentsOnly, [&agent, before] {
      return agent.fetch_status.has_value() || !agent.lost.empty() || agent.fetched.size() > before;
    });
  } while (!agent.fetch_status.has_value() && agent.lost.empty() && agent.fetched.size() > before);
  if (!agent.fetch_status.has_value()) {
    return absl::UnavailableError(
        absl::StrCat(what, " of host '", hosts_[host].host, "': ",
                     agent.lost.empty() ? absl::StrCat("nothing came for ", kPieceMs / 1000, " s")
                                        : agent.lost));
  }
  WEIR_RETURN_IF_ERROR(*agent.fetch_status);
  return std::move(agent.fetched);
}

void AgentsSupervisor::TakeFetch(Agent* agent, const proto::FetchReport& report) {
  if (report.request() != num_requests_) return;  // of a request that was given up
  agent->fetched += report.bytes();
  if (report.is_last()) agent->fetch_status = control::FromOutcome(report.outcome());
}

void AgentsSupervisor::RemoveFiles(
    const IdVector<HostId, std::vector<std::string>>& paths_of_hosts) {
  const int64_t request = ++num_requests_;
  for (const HostId host : agents_.ids()) {
    proto::AgentOrder order;
    order.mutable_remove()->set_request(request);
    for (const std::string& path : paths_of_hosts[host]) order.mutable_remove()->add_path(path);
    agents_[host].has_removed = paths_of_hosts[host].empty();
    if (!agents_[host].has_removed) SendTo(&agents_[host], order);
  }
  AwaitAll(kAnswerMs, [](const Agent& agent) { return agent.has_removed; });
}

absl::Status AgentsSupervisor::ShipFile(const std::string& from,
                                        const IdVector<HostId, std::string>& to) {
  proto::ShipOrder piece;
  piece.set_request(++num_requests_);
  for (Agent& agent : agents_) agent.ship_status.reset();
  std::ifstream file(from, std::ios::binary);
  std::string bytes(kPieceBytes, '\0');
  for (int64_t offset = 0; !piece.is_last(); offset += static_cast<int64_t>(bytes.size())) {
    bytes.resize(kPieceBytes);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    if (file.bad() || (file.fail() && !file.eof()))
      return absl::UnavailableError(absl::StrCat("cannot read ", from));
    piece.set_offset(offset);
    piece.set_bytes(bytes);
    piece.set_is_last(file.eof());
    if (!ShipPiece(piece, to)) break;
  }
  if (piece.is_last()) {
    ServeUntil(kPieceMs, Listen::kToAgentsOnly, [this, &to] {
      return AreAllHosts([this, &to](HostId host) {
        const Agent& agent = agents_[host];
        return to[host].empty() || !agent.lost.empty() || agent.ship_status.has_value();
      });
    });
  }
  // After a host has failed, the others have not been sent everything.
  std::optional<HostId> silent;
  for (const HostId host : agents_.ids()) {
    const Agent& agent = agents_[host];
    if (to[host].empty() || (agent.ship_status.has_value() && agent.ship_status->ok())) continue;
    const std::string where = absl::StrCat(to[host], " on host '", hosts_[host].host, "'");
    if (agent.ship_status.has_value() && ProblemOf(*agent.ship_status).has_value())
      return CausedBy(*agent.ship_status, "W0881", where);
    if (agent.ship_status.has_value())
      return ErrorOf(absl::StatusCode::kUnavailable,
                     {"W0881", where, absl::StrCat("a copy of ", from),
                      std::string(agent.ship_status->message()),
                      "make room on that host, or --logs names another folder for the copies"});
    if (!agent.lost.empty())
      return ErrorOf(absl::StatusCode::kUnavailable,
                     {"W0881", where, absl::StrCat("a copy of ", from), agent.lost, ""});
    if (!silent.has_value()) silent = host;
  }
  if (!silent.has_value()) return absl::OkStatus();
  const SilentHost found = FindSilent(*silent);
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0881", absl::StrCat(to[found.host], " on host '", hosts_[found.host].host, "'"),
                  absl::StrCat("a copy of ", from), found.found,
                  "look at that host: is it overloaded, or is its agent stopped?"});
}

// Sends a piece to all hosts and waits while a channel holds much. Returns whether every host goes
// on to take pieces.
bool AgentsSupervisor::ShipPiece(const proto::ShipOrder& piece,
                                 const IdVector<HostId, std::string>& to) {
  for (const HostId host : agents_.ids()) {
    if (to[host].empty()) continue;
    proto::AgentOrder order;
    *order.mutable_ship() = piece;
    order.mutable_ship()->set_path(to[host]);
    SendTo(&agents_[host], order);
  }
  const auto is_free = [this] {
    MutexLock lock(&mutex_);
    return std::all_of(agents_.begin(), agents_.end(), [](const Agent& agent) {
      return !agent.lost.empty() || agent.channel.num_waiting() < kWaitingBytesMax;
    });
  };
  ServeUntil(kPieceMs, Listen::kToAgentsOnly, is_free);
  return is_free() && AreAllHosts([this, &to](HostId host) {
           const Agent& agent = agents_[host];
           return to[host].empty() || (agent.lost.empty() && !agent.ship_status.has_value());
         });
}

}  // namespace weir::hosts
