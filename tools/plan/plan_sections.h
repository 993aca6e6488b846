// The detailed sections of `weir plan`, which follow the screen (plan_screen.h). The text is
// stable: the same plan gives the same text. Lines have at most kSectionColumns characters, except
// for longer names. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"

namespace weir::plan {

inline constexpr int kSectionColumns = 100;

// Lists every tensor with its layout and the reason. `function` is a function of the job's graph.
// Empty: all functions, including those that the compiler adds (gradients, updates).
// kInvalidArgument (W0941): there is no such function.
absl::StatusOr<std::string> LayoutsSection(const compiler::LogicalPlan& plan,
                                           const std::string& function);
// Lists every boxing: method, layouts, bytes over all links and on the busiest link, and the rule
// behind the boxing.
absl::StatusOr<std::string> BoxingsSection(const compiler::LogicalPlan& plan);
// Shows the stages with their calls, the chart of a pipeline, and the planned times. `costs` are
// the costs of the plan.
absl::StatusOr<std::string> ScheduleSection(const compiler::LogicalPlan& plan,
                                            const compiler::CostModel& costs);
// Lists actors, registers and the parts of the memory of each rank.
absl::StatusOr<std::string> ActorsSection(const compiler::LogicalPlan& plan);

// Returns all sections above, below a line about the job. `costs` null: the compiler's defaults.
absl::StatusOr<std::string> ExplainPlan(const compiler::LogicalPlan& plan,
                                        const compiler::CostModel* costs = nullptr);

// Returns "job gpt · mesh dp=2,tp=2 · 4 devices · 1 stage · 1 micro-batch · ZeRO 0", and a line on
// weights.
std::string JobHead(const compiler::LogicalPlan& plan);

// Returns the calls of a part of the pipeline: "layers.0 to layers.11, main.1".
std::string CallsText(const compiler::LogicalPlan& plan, int64_t part);
// Returns "0 to 3, 6" for the numbers 0, 1, 2, 3, 6 in any order.
std::string RangesText(std::vector<int64_t> numbers);

}  // namespace weir::plan
