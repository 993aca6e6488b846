#include "tools/train/run_facts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/base/unit_text.h"

namespace weir::train {
namespace {

int64_t NumParameters(const RunnerFacts& facts) {
  int64_t parameters = 0;
  for (const auto& [name, type] : facts.states) {
    if (type.state_class == actors::StateClass::kWeight) parameters += NumElements(type.shape);
  }
  return parameters;
}

}  // namespace

live::RunFacts RunFactsOf(const RunnerFacts& facts, const PreparedTraining& prepared) {
  live::RunFacts told;
  told.parameters = NumParameters(facts);
  told.mesh = facts.mesh;
  told.where = facts.where;
  told.ranks = facts.num_ranks;
  told.threads_per_rank = facts.threads_per_device;
  told.bytes_per_rank = facts.bytes_per_device;
  told.bytes_of_rank.assign(prepared.bytes_of_rank.begin(), prepared.bytes_of_rank.end());
  return told;
}

std::string WhatRunsText(const std::string& job, const RunnerFacts& facts, int64_t driver_bytes) {
  return absl::StrFormat(
      "%s: %s parameters, %d device%s%s%s, %d thread%s each, %s per device%s",
      job.empty() ? "the job" : job, ShortCount(static_cast<double>(NumParameters(facts))),
      facts.num_ranks, facts.num_ranks == 1 ? "" : "s",
      facts.mesh.empty() ? "" : " (" + facts.mesh + ")",
      facts.where.empty() ? "" : " " + facts.where, facts.threads_per_device,
      facts.threads_per_device == 1 ? "" : "s",
      BytesText(static_cast<double>(facts.bytes_per_device)),
      driver_bytes == 0
          ? ""
          : absl::StrCat(" and ", BytesText(static_cast<double>(driver_bytes)), " for its driver"));
}

std::string StatesReadText(const RunnerFacts& facts, const std::string& path, int64_t took_ns) {
  double bytes = 0;
  for (const auto& [name, type] : facts.states)
    bytes += static_cast<double>(TensorSlice::Whole(type.dtype, type.shape).bytes());
  return absl::StrCat("states read from ", path, ": ", BytesText(bytes), " in ",
                      DurationText(static_cast<double>(took_ns) * 1e-9));
}

void AddCopyCosts(const CopyCosts& costs, EventFile::Scalars* values) {
  if (costs.seconds.has_value()) values->emplace_back("buddy_seconds", *costs.seconds);
  if (costs.stall_seconds.has_value())
    values->emplace_back("buddy_stall_seconds", *costs.stall_seconds);
  if (costs.bytes.has_value())
    values->emplace_back("buddy_bytes", static_cast<double>(*costs.bytes));
}

std::string GoesOnText(const Recovery& recovery, const std::string& checkpoint,
                       int64_t steps_lost) {
  std::string text;
  if (!recovery.has_states) {
    text = checkpoint.empty() ? "; the job goes on from its beginning"
                              : absl::StrCat("; all states come from ", checkpoint);
  }
  if (steps_lost < 0) {
    absl::StrAppend(&text, "; the last ", Plural(-steps_lost, "step"),
                    " had been done everywhere else, and count");
  }
  return text;
}

}  // namespace weir::train
