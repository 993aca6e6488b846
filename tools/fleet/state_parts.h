// StateParts joins the parts of states that come over the control plane, and gives out each state
// when it is whole, so that no rank ever has a half of a state.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace weir::fleet {

class StateParts {
 public:
  // Adds bytes of a state of `rank` that has `whole` bytes; `begin` is the place of the first one.
  // Returns the state if it is whole now. The parts of one state come in order: kInternal for
  // others, and for bytes beyond the end.
  absl::StatusOr<std::optional<std::string>> Add(RankId rank, const std::string& name,
                                                 int64_t begin, const std::string& bytes,
                                                 int64_t whole);
  // Forgets what is not whole: an epoch ends, and the next one sends all parts again.
  void Clear() { parts_.clear(); }

 private:
  std::map<std::pair<RankId, std::string>, std::string> parts_;
};

}  // namespace weir::fleet
