#include "tools/hosts/doctor.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/unit_text.h"
#include "runtime/control/socket_address.h"
#include "tools/hosts/host_ways.h"
#include "tools/hosts/ssh_command.h"

namespace weir::hosts {
namespace {

constexpr char kStarter[] = "the starter";
constexpr int kHostsMeasuredWhole = 4;
constexpr int kWaysMeasuredMax = 16;

// Returns the best of the probes from one host to the addresses of another.
HostWay WayOf(const std::vector<AddressProbe>& probes, const std::vector<std::string>& addresses,
              size_t begin, size_t end) {
  HostWay way;
  for (size_t i = begin; i < end; ++i) {
    if (!probes[i].error.empty()) {
      way.errors.push_back(absl::StrCat(addresses[i], " ", probes[i].error));
    } else if (way.address.empty() || probes[i].round_trip_us < way.round_trip_us) {
      way.address = addresses[i];
      way.round_trip_us = probes[i].round_trip_us;
    }
  }
  return way;
}

// Keeps those of the addresses, with ports, that the interface has; none if there is no interface.
void KeepThoseOf(const NetworkInterface* interface, std::vector<std::string>* addresses) {
  std::erase_if(*addresses, [interface](const std::string& address) {
    const auto parsed = control::SocketAddress::ParseWithPort(address);
    return interface == nullptr || !parsed.has_value() ||
           std::find(interface->addresses.begin(), interface->addresses.end(), parsed->host()) ==
               interface->addresses.end();
  });
}

void MeasureWays(HostsSupervisor* supervisor, Examination* found) {
  const int num_hosts = found->hosts.next_id().value();
  int left = kWaysMeasuredMax;
  for (const HostId from : found->hosts.ids()) {
    const HostId next((from.value() + 1) % num_hosts);
    for (const HostId to : found->ways[from].ids()) {
      HostWay& way = found->ways[from][to];
      const bool is_wanted = num_hosts <= kHostsMeasuredWhole || to == next;
      if (way.address.empty() || !is_wanted || left-- <= 0) continue;
      way.speed = supervisor->Measure(from, way.address);
    }
  }
}

// Returns "10.0.0.2 0.1 ms, 1.1 GiB/s": as measured, or the time to connect alone.
std::string WayText(const HostWay& way) {
  const bool is_measured = way.speed.has_value() && way.speed->error.empty();
  const double ms = is_measured ? static_cast<double>(way.speed->round_trip_ns) * 1e-6
                                : static_cast<double>(way.round_trip_us) * 1e-3;
  return absl::StrCat(
      way.address.substr(0, way.address.rfind(':')),
      absl::StrFormat(ms < 0.1 ? " %.3f ms" : " %.1f ms", ms),
      is_measured ? absl::StrCat(", ", BytesText(way.speed->bytes_per_second), "/s") : "");
}

std::string ClockText(const std::optional<int64_t>& offset_ns) {
  if (!offset_ns.has_value()) return "no answer";
  const double ms = static_cast<double>(*offset_ns) * 1e-6;
  return std::fabs(ms) < 1000 ? absl::StrFormat("%+.1f ms", ms)
                              : absl::StrFormat("%+.1f s", ms * 1e-3);
}

// Returns rows as columns that stand below each other.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      absl::StrAppend(&line, " ", row[i], std::string(widths[i] - row[i].size() + 1, ' '));
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace

Examination Examine(HostsSupervisor* supervisor, const IdVector<HostId, std::string>& hosts,
                    const std::vector<std::string>& starter_addresses, int64_t limit_ms,
                    const std::string& interface) {
  Examination found;
  found.interface = interface;
  found.hosts = hosts;
  found.facts = supervisor->facts();
  found.clock_offset_ns = supervisor->ClockOffsetsNs();
  IdVector<HostId, std::vector<std::string>> by_host = supervisor->ListenForProbes();
  if (!interface.empty()) {
    for (const HostId host : by_host.ids())
      KeepThoseOf(InterfaceNamed(found.facts[host], interface), &by_host[host]);
  }
  by_host.push_back(starter_addresses);
  std::vector<std::string> addresses;
  for (const std::vector<std::string>& of_host : by_host)
    addresses.insert(addresses.end(), of_host.begin(), of_host.end());
  const IdVector<HostId, std::vector<AddressProbe>> probes = supervisor->Probe(addresses, limit_ms);
  for (const HostId from : hosts.ids()) {
    found.ways.emplace_back();
    size_t begin = 0;
    for (const HostId to : by_host.ids()) {
      const size_t end = begin + by_host[to].size();
      found.ways.back().push_back(from == to ? HostWay()
                                             : WayOf(probes[from], addresses, begin, end));
      begin = end;
    }
  }
  MeasureWays(supervisor, &found);
  return found;
}

std::optional<LinkSpeed> MedianSpeed(const Examination& examination) {
  std::vector<int64_t> round_trips;
  std::vector<double> rates;
  for (const IdVector<HostId, HostWay>& ways : examination.ways) {
    for (const HostId to : examination.hosts.ids()) {
      if (!ways[to].speed.has_value() || !ways[to].speed->error.empty()) continue;
      round_trips.push_back(ways[to].speed->round_trip_ns);
      rates.push_back(ways[to].speed->bytes_per_second);
    }
  }
  if (rates.empty()) return std::nullopt;
  std::sort(round_trips.begin(), round_trips.end());
  std::sort(rates.begin(), rates.end());
  return LinkSpeed{"", round_trips[round_trips.size() / 2], rates[rates.size() / 2]};
}

std::vector<std::string> Complaints(const Examination& examination, const std::string& build_id) {
  std::vector<std::string> complaints;
  for (const HostId host : examination.hosts.ids()) {
    const HostFacts& facts = examination.facts[host];
    const std::string& name = examination.hosts[host];
    if (facts.build_id != build_id)
      complaints.push_back(absl::StrCat(name, " runs another build of Weir (", facts.build_id,
                                        ", here ", build_id,
                                        "): install the same one, or name it with --weir PATH"));
    const std::optional<int64_t>& offset_ns = examination.clock_offset_ns[host];
    if (!offset_ns.has_value() || std::llabs(*offset_ns) > kClockOffsetNsMax)
      complaints.push_back(absl::StrCat(name, "'s clock is off (", ClockText(offset_ns),
                                        "): let NTP set it, such as with systemd-timesyncd"));
    if (facts.shared_memory_bytes < kSharedMemoryBytesMin)
      complaints.push_back(absl::StrCat(
          name, " has ",
          facts.shared_memory_bytes < 0
              ? std::string("no /dev/shm")
              : absl::StrCat("only ", BytesText(static_cast<double>(facts.shared_memory_bytes)),
                             " free in /dev/shm"),
          ": mount it, or make it larger (docker run --shm-size)"));
    const auto lacks_interface = [&](HostId of) {
      return !examination.interface.empty() &&
             InterfaceNamed(examination.facts[of], examination.interface) == nullptr;
    };
    if (lacks_interface(host))
      complaints.push_back(absl::StrCat(name, " has no interface ", examination.interface,
                                        " that is up (it has ", InterfaceNames(facts),
                                        "): name one that every host has with --iface"));
    for (const HostId to : examination.ways[host].ids()) {
      const HostWay& way = examination.ways[host][to];
      if (to == host || !way.address.empty()) continue;
      const bool is_starter = to == examination.hosts.next_id();
      if (!is_starter && lacks_interface(to)) continue;
      complaints.push_back(absl::StrCat(
          name, " does not reach ", is_starter ? kStarter : examination.hosts[to].c_str(), " (",
          way.errors.empty() ? "it has no address" : absl::StrJoin(way.errors, "; "),
          "): open the ports between them (a firewall drops or refuses)",
          is_starter ? ", or name another address with --addr" : ""));
    }
  }
  return complaints;
}

std::string CommandsText(const IdVector<HostId, HostAgent>& agents) {
  std::vector<std::vector<std::string>> rows;
  for (const HostAgent& agent : agents) {
    std::vector<std::string> words;
    for (const std::string& argument : agent.arguments) words.push_back(Quoted(argument));
    if (words.empty()) continue;
    rows.push_back({agent.host, absl::StrJoin(words, " ")});
    if (agent.through.has_value())
      rows.back().push_back(absl::StrCat("run by ", agents[agent.through].host));
  }
  return rows.empty() ? "" : absl::StrCat("Commands to the agents:\n", Table(rows));
}

std::string ExaminationText(const Examination& examination) {
  std::vector<std::vector<std::string>> rows = {
      {"host", "its own name", "cores", "memory", "free /dev/shm", "clock", "build"}};
  for (const HostId host : examination.hosts.ids()) {
    const HostFacts& facts = examination.facts[host];
    rows.push_back({examination.hosts[host], facts.name, absl::StrCat(facts.cores.size()),
                    BytesText(static_cast<double>(facts.memory_bytes)),
                    facts.shared_memory_bytes < 0
                        ? "none"
                        : BytesText(static_cast<double>(facts.shared_memory_bytes)),
                    ClockText(examination.clock_offset_ns[host]), facts.build_id.substr(0, 12)});
  }
  std::string text = absl::StrCat("Hosts; clocks beside this machine's:\n", Table(rows));
  std::set<std::string> machines;
  for (const HostFacts& facts : examination.facts) machines.insert(facts.machine);
  if (machines.size() < examination.hosts.size())
    absl::StrAppend(&text, "  These hosts are parts of ", machines.size(),
                    machines.size() == 1 ? " machine" : " machines", ".\n");
  rows.clear();
  for (const HostId host : examination.hosts.ids())
    rows.push_back({examination.hosts[host], examination.facts[host].gpus});
  absl::StrAppend(&text, "GPUs:\n", Table(rows));
  rows = {{"from \\ to"}};
  rows[0].insert(rows[0].end(), examination.hosts.begin(), examination.hosts.end());
  rows[0].emplace_back(kStarter);
  for (const HostId from : examination.hosts.ids()) {
    rows.push_back({examination.hosts[from]});
    for (const HostId to : examination.ways[from].ids()) {
      const HostWay& way = examination.ways[from][to];
      rows.back().push_back(from == to ? "-" : way.address.empty() ? "NOT REACHED" : WayText(way));
    }
  }
  absl::StrAppend(&text, "Ways over TCP; the time there and back, and the speed of one stream:\n",
                  Table(rows));
  return text;
}

}  // namespace weir::hosts
