// Picks lines from the long accounts of what every actor of some ranks waits for. WaitsForOthers
// picks the few lines that point at ranks of other processes. A worker prints these lines last, and
// the starter finds them among the worker's last lines, so the report of a stuck job names the
// ranks that each process waits for. ExplainLogs sums up the accounts of all workers. Thread rule:
// pure functions.
#pragma once

#include <string>
#include <vector>

namespace weir {

// `stall` is the text of Session::DescribeStall. Returns whole lines, or nothing if no rank of
// another process is waited for.
std::string WaitsForOthers(const std::string& stall);

// Returns the lines of WaitsForOthers among the last lines of a worker.
std::vector<std::string> FindWaitsForOthers(const std::vector<std::string>& last_lines);

// Returns the ring of actors that wait for each other, or the actor that all wait for in the end,
// over all ranks whose accounts stand in these logs.
std::vector<std::string> ExplainLogs(const std::vector<std::string>& logs);

}  // namespace weir
