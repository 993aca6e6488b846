// The meetings of ranks in virtual time: an operation moves nothing, and ends when all ranks of its
// group have begun it. A run may have some ranks of a group only, which stand for the others; no
// rank waits for a rank that the run does not have. Thread rule: one thread for all ranks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/collective/local_collective.h"

namespace weir::collective {

class VirtualCollectives final : public PolledCollectives {
 public:
  // `ranks` are those of the run.
  explicit VirtualCollectives(const std::vector<RankId>& ranks)
      : ranks_(ranks.begin(), ranks.end()) {}

  // The operations of the communicator need no addresses.
  absl::StatusOr<std::unique_ptr<PolledCommunicator>> CreatePolled(
      const CommunicatorSpec& spec, std::function<void()> wake) override;

  struct Group;

 private:
  const std::set<RankId> ranks_;
  std::map<std::string, std::shared_ptr<Group>> groups_;  // by id
};

}  // namespace weir::collective
