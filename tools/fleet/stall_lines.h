// Of a long account of what every actor of some ranks waits for: the few lines that point at ranks
// of other processes. A worker prints them last; the starter finds them again among its last lines,
// so that the report of a stuck job says whom each process waits for. And of the accounts of all
// workers together: what they come to. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

namespace weir {

// `stall`: as Session::DescribeStall. Whole lines, or empty if nobody outside is waited for.
std::string WaitsForOthers(const std::string& stall);

// Those among the last lines of a worker that printed WaitsForOthers.
std::vector<std::string> FindWaitsForOthers(const std::vector<std::string>& last_lines);

// The ring of actors that wait for each other, or the actor that all wait for in the end, over all
// ranks whose accounts stand in these logs.
std::vector<std::string> ExplainLogs(const std::vector<std::string>& logs);

}  // namespace weir
