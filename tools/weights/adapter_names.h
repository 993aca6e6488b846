// The names by which files and graphs tell low-rank adapters: the two matrices that change weight
// "layers.3.wq" are the weights "layers.3.wq.lora_a" and "layers.3.wq.lora_b". A file of weights
// may lack all adapters of a job. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weir::weights {

inline constexpr char kAdapterA[] = ".lora_a", kAdapterB[] = ".lora_b";

// Returns the weight that an adapter with this name changes, or nothing if the name is not that of
// an adapter.
inline std::optional<std::string> AdaptedWeight(absl::string_view name) {
  const size_t length = name.size();
  if (!absl::ConsumeSuffix(&name, kAdapterA)) absl::ConsumeSuffix(&name, kAdapterB);
  if (name.size() == length || name.empty()) return std::nullopt;
  return std::string(name);
}

// Returns whether `name` is an adapter among `weights`, a map or set of names: the weight that it
// changes and the other matrix are there, too.
template <typename Names>
bool IsAdapter(const std::string& name, const Names& weights) {
  const std::optional<std::string> weight = AdaptedWeight(name);
  return weight.has_value() && weights.count(*weight) > 0 &&
         weights.count(absl::StrCat(*weight, kAdapterA)) > 0 &&
         weights.count(absl::StrCat(*weight, kAdapterB)) > 0;
}

}  // namespace weir::weights
