// The examination of a job's hosts before the job: what each host has, how its clock goes, and
// which host reaches which. Thread rule: as hosts_supervisor.h; the rest are pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

// Traces of several hosts are laid over each other by clocks that the job measures itself, but
// certificates and files carry the time of day.
inline constexpr int64_t kClockOffsetNsMax = 10'000'000'000;
// Ranks of one host exchange tensors in /dev/shm.
inline constexpr int64_t kSharedMemoryBytesMin = int64_t{64} << 20;

// The way from one host to another, or to the starter.
struct HostWay {
  std::string address;              // the quickest that was reached; empty: none
  int64_t round_trip_us = 0;        // to that address
  std::vector<std::string> errors;  // otherwise: "10.0.0.7:4000 Connection refused", by address
  std::optional<LinkSpeed> speed;   // if the way was measured
};

struct Examination {
  IdVector<HostId, std::string> hosts;  // their names in the job
  IdVector<HostId, HostFacts> facts;
  IdVector<HostId, std::optional<int64_t>> clock_offset_ns;
  // ways[from][to] leads from a host to another; the last `to` is the starter. The way from a host
  // to itself is empty.
  IdVector<HostId, IdVector<HostId, HostWay>> ways;
  std::string interface;  // to which the ways between hosts lead; empty: any
};

// Takes at most `limit_ms` for each address that a host does not reach, and 0.4 s for each way that
// is measured: all ways of up to four hosts, otherwise that of each host to the next, up to 16.
// `starter_addresses`: with ports that are open, of this machine. Ways between hosts lead to the
// addresses of `interface` alone, unless it is empty.
Examination Examine(HostsSupervisor* supervisor, const IdVector<HostId, std::string>& hosts,
                    const std::vector<std::string>& starter_addresses, int64_t limit_ms,
                    const std::string& interface = "");

// Returns the medians of round trip and speed over the ways between hosts that were measured;
// nullopt if none was.
std::optional<LinkSpeed> MedianSpeed(const Examination& examination);

// Returns what must be mended before a job may run on the hosts, a sentence each; empty: nothing.
// `build_id`: of this program.
std::vector<std::string> Complaints(const Examination& examination, const std::string& build_id);

// Returns the command that leads to the agent of each host, as a shell takes it; empty if no host
// is reached by a command.
std::string CommandsText(const IdVector<HostId, HostAgent>& agents);

// Returns tables of what was found, for people.
std::string ExaminationText(const Examination& examination);

}  // namespace weir::hosts
