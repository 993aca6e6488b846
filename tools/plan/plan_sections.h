// The detail of `weir plan`, section by section; what it begins with is the screen (plan_screen.h).
// Stable: the same plan gives the same text. Lines have at most kSectionColumns characters, but for
// names that are longer by themselves. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"

namespace weir {

inline constexpr int kSectionColumns = 100;

// Every tensor with its layout, and why. `function` is a function of the job's graph; empty: all,
// and those that the compiler adds (gradients, updates). kInvalidArgument (W0941) if there is no
// such function.
absl::StatusOr<std::string> LayoutsSection(const LogicalPlan& plan, const std::string& function);
// Every boxing: method, layouts, bytes over all links and on the busiest, and the rule behind it.
absl::StatusOr<std::string> BoxingsSection(const LogicalPlan& plan);
// Stages with their calls, the chart of a pipeline, and the times that are planned; `costs` are
// those of the plan.
absl::StatusOr<std::string> ScheduleSection(const LogicalPlan& plan,
                                            const compiler::CostModel& costs);
// Actors, registers and what the memory of each rank is made of.
absl::StatusOr<std::string> ActorsSection(const LogicalPlan& plan);

// All of the above, below a line about the job. `costs` null: the compiler's defaults.
absl::StatusOr<std::string> ExplainPlan(const LogicalPlan& plan,
                                        const compiler::CostModel* costs = nullptr);

// "job gpt · mesh dp=2,tp=2 · 4 devices · 1 stage · 1 micro-batch · ZeRO 0", and a line on weights.
std::string JobHead(const LogicalPlan& plan);

// Calls of a part of the pipeline, "layers.0 to layers.11, main.1".
std::string CallsText(const LogicalPlan& plan, int64_t part);
// "0 to 3, 6" of ranks 0, 1, 2, 3, 6.
std::string RangesText(const std::vector<int64_t>& numbers);

}  // namespace weir
