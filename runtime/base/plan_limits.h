// The limits of a plan. The compiler refuses a job whose plan would exceed a limit, and the runtime
// trusts no number of a plan before it has compared the number with its limit. Sums and products of
// numbers within these limits do not overflow.
#pragma once

#include <cstdint>

namespace weir::plan_limits {

inline constexpr int64_t kBytesMax = int64_t{1} << 46;
inline constexpr int64_t kElementsMax = int64_t{1} << 46;
inline constexpr int kActorsMax = 1 << 20;
inline constexpr int kRegistersMax = 1 << 20;
inline constexpr int kStatesMax = 1 << 20;
inline constexpr int kProgramsMax = 1 << 20;
inline constexpr int kPortsMax = 1 << 16;
inline constexpr int kTensorRankMax = 16;
inline constexpr int kQueuesMax = 64;
inline constexpr int kDepthMax = 1 << 16;
inline constexpr int kRanksMax = 1 << 20;
inline constexpr int64_t kSlotsMax = 1 << 16;
inline constexpr int64_t kSlotsTotalMax = 1 << 24;
inline constexpr int64_t kActsPerStepMax = 1 << 24;
// Small enough that the precedence of no micro-batch overflows.
inline constexpr int64_t kPrecedenceMax = int64_t{1} << 32;
inline constexpr int64_t kPrecedencesMax = int64_t{1} << 22;  // of all actors together
inline constexpr int64_t kActsPerIterationMax = 1 << 26;
inline constexpr int64_t kStepsPerIterationMax = 1 << 10;
inline constexpr int64_t kTimeMax = int64_t{1} << 46;  // ns, 19 hours
inline constexpr int64_t kActTimesMax = 1 << 24;       // of all actors, one by one
inline constexpr int64_t kStreamActsMax = 1 << 24;

// The limits of a plan that a trace records. A replay multiplies a step, acts per step and tokens,
// and the product stays within 63 bits. So some of these limits are below those of a plan that
// runs; a larger number in a trace is damage.
inline constexpr int64_t kRecordedNumberMax = int64_t{1} << 31;  // exclusive; of any count or step
inline constexpr int64_t kRecordedActsPerStepMax = 1 << 20;
inline constexpr int64_t kRecordedTokensMax = 1 << 10;  // of a span

}  // namespace weir::plan_limits
