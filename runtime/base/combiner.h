// A Combiner says how partial values are merged.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

// Only kSum is linear.
enum class Combiner : uint8_t { kSum, kMax };
std::string Name(Combiner combiner);  // "sum", "max"
constexpr bool IsLinear(Combiner combiner) { return combiner == Combiner::kSum; }

}  // namespace weir
