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
#include "absl/strings/string_view.h"
#include "runtime/base/ids.h"
#include "runtime/base/tensor_slice.h"

namespace weir::fleet {

class StateParts {
 public:
  // Adds bytes of a state of `rank` that has `whole` bytes; `begin` is the place of the first one.
  // Returns the state if it is whole now. The parts of one state come in order: kInternal for
  // others, and for bytes beyond the end.
  absl::StatusOr<std::optional<std::string>> Add(RankId rank, const std::string& name,
                                                 int64_t begin, const std::string& bytes,
                                                 int64_t whole);
  // Adds a part of a shard of a rank. The parts of a shard come in any order, each element once.
  // Returns the shard if it is whole now. kInternal: the shard has no such part.
  absl::StatusOr<std::optional<std::string>> AddPart(RankId rank, const std::string& name,
                                                     const TensorSlice& part,
                                                     const TensorSlice& shard,
                                                     absl::string_view bytes);
  // Forgets what is not whole: an epoch ends, and the next one sends all parts again.
  void Clear() {
    parts_.clear();
    shards_.clear();
  }

 private:
  struct Shard {
    std::string bytes;
    int64_t filled = 0;
  };

  std::map<std::pair<RankId, std::string>, std::string> parts_;
  std::map<std::pair<RankId, std::string>, Shard> shards_;
};

}  // namespace weir::fleet
