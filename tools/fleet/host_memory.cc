#include "tools/fleet/host_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"

namespace weir::fleet {
namespace {

std::string Text(int64_t bytes) { return BytesText(static_cast<double>(bytes)); }

}  // namespace

absl::Status CheckHostMemory(const std::vector<HostShare>& shares, int64_t largest_rank_bytes) {
  std::vector<HostShare> machines;  // in the order of their first hosts
  for (const HostShare& share : shares) {
    const auto known = std::find_if(machines.begin(), machines.end(), [&](const HostShare& other) {
      return other.machine == share.machine;
    });
    if (known == machines.end()) {
      machines.push_back(share);
      continue;
    }
    absl::StrAppend(&known->host, "', '", share.host);
    known->memory_bytes = std::min(known->memory_bytes, share.memory_bytes);
    known->num_ranks += share.num_ranks;
    known->rank_bytes += share.rank_bytes;
  }
  std::vector<Problem> problems;
  for (const HostShare& machine : machines) {
    if (machine.memory_bytes <= 0 || machine.rank_bytes <= machine.memory_bytes) continue;
    problems.push_back(
        {"W0884", absl::StrCat("memory of host '", machine.host, "'"),
         absl::StrCat("at most ", Text(machine.memory_bytes)),
         absl::StrCat(Text(machine.rank_bytes), " planned for ", machine.num_ranks,
                      machine.num_ranks == 1 ? " rank" : " ranks", "; one rank takes up to ",
                      Text(largest_rank_bytes)),
         "fewer slots on that host, more hosts, or a plan that needs less (`weir explain W0487`)"});
  }
  return problems.empty() ? absl::OkStatus()
                          : ErrorOfAll(absl::StatusCode::kInvalidArgument, problems);
}

}  // namespace weir::fleet
