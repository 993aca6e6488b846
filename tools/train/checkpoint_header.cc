#include "tools/train/checkpoint_header.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/job/check_training.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/batch_position.h"
#include "runtime/store/checkpoint_metadata.h"

namespace weir::train {

std::map<std::string, std::string> CheckpointMetadata(const proto::Job& job, int64_t step,
                                                      int64_t samples) {
  store::CheckpointFacts facts;
  facts.job = job.name();
  facts.step = step;
  facts.optimizer_step = compiler::UpdateRateOf(job.training()).OptimizerStep(step);
  facts.schedule = ScheduleText(job);
  facts.cursor = store::DataCursor{samples, 0, job.training().seed(), ""};
  return store::CheckpointMetadataOf(facts);
}

absl::StatusOr<CheckpointHeader> ReadCheckpointHeader(const store::SafetensorsReader& file) {
  CheckpointHeader header;
  const std::map<std::string, std::string>& metadata = file.metadata();
  const auto step = metadata.find(store::kStepKey);
  if (step == metadata.end() || !absl::SimpleAtoi(step->second, &header.step) || header.step < 0) {
    return Rejected({"W0076", file.path(), "a checkpoint, whose metadata has the step",
                     step == metadata.end() ? "none" : "\"" + step->second + "\"",
                     "files written by --save are for --init"});
  }
  const auto optimizer_step = metadata.find(store::kOptimizerStepKey);
  header.optimizer_step = header.step;  // the only possible value before checkpoints recorded it
  if (optimizer_step != metadata.end() &&
      !absl::SimpleAtoi(optimizer_step->second, &header.optimizer_step))
    header.optimizer_step = -1;
  if (const auto samples = metadata.find(store::kSamplesKey); samples != metadata.end()) {
    int64_t count = 0;
    if (!absl::SimpleAtoi(samples->second, &count) || count < 0) {
      return Rejected({"W0740", file.path(), "a data cursor: a count of samples",
                       "\"" + samples->second + "\"", "an earlier checkpoint of the run"});
    }
    header.samples = count;
  }
  uint64_t seed_value = 0;
  if (const auto seed = metadata.find(store::kSeedKey);
      seed != metadata.end() && absl::SimpleAtoi(seed->second, &seed_value))
    header.seed = seed_value;
  if (const auto schedule = metadata.find(store::kScheduleKey); schedule != metadata.end())
    header.schedule = schedule->second;
  return header;
}

absl::Status CheckResume(const proto::Job& job, const std::string& path,
                         const CheckpointHeader& header) {
  const UpdateRate updates = compiler::UpdateRateOf(job.training());
  const int64_t step = header.step;
  if (!updates.IsBetweenUpdates(step) || updates.OptimizerStep(step) != header.optimizer_step) {
    const int64_t expected = std::max<int64_t>(0, updates.OptimizerStep(step));
    return Rejected(
        {"W0548", path,
         absl::StrCat("a checkpoint of a run with training.update_every ", updates.every,
                      ", update_phase ", updates.phase, " and gradient_delay ", updates.delay,
                      ": after step ", step, " with ",
                      updates.IsBetweenUpdates(step) ? Plural(expected, "step")
                                                     : absl::StrCat(expected, " and more steps"),
                      " of the optimiser"),
         Plural(std::max<int64_t>(0, header.optimizer_step), "step") + " of the optimiser",
         "go on with the numbers that the run had, or start a new one with --init from its "
         "weights"});
  }
  if (step > job.training().steps()) {
    return Rejected(
        {"W0923", path,
         absl::StrCat("a checkpoint of at most ", Plural(job.training().steps(), "step"),
                      ", the length of this run"),
         Plural(step, "step") + " done",
         absl::StrCat("--steps with a number above ", step,
                      ", or --init to start a new run from its weights")});
  }
  return absl::OkStatus();
}

int64_t SampleOffset(const CheckpointHeader& header, int64_t samples_per_step) {
  if (!header.samples.has_value()) return 0;
  return store::SampleOffsetBehind(*header.samples, header.step, samples_per_step);
}

std::string SeedChange(const proto::Job& job, const CheckpointHeader& header) {
  const uint64_t now = job.training().seed();
  if (!header.seed.has_value() || *header.seed == now) return "";
  return absl::StrCat("the checkpoint is of a run with seed ", *header.seed, ", and this run has ",
                      now,
                      ": the order of the samples is another, so that the run may see samples "
                      "again and others never");
}

std::string ScheduleText(const proto::Job& job) {
  const LearningRateSchedule schedule = compiler::LearningRatesOf(job.training());
  std::string text = absl::StrCat(schedule.learning_rate);
  if (schedule.warmup_steps > 0)
    absl::StrAppend(&text, " after ", schedule.warmup_steps,
                    schedule.warmup_steps == 1 ? " update" : " updates", " of warm-up");
  if (schedule.decay == "constant") return absl::StrCat(text, ", constant");
  return absl::StrCat(text, ", ", proto::Schedule::Decay_Name(job.training().schedule().decay()),
                      " to ", schedule.min_learning_rate, " at update ", schedule.decay_steps);
}

std::string ScheduleChange(const proto::Job& job, const CheckpointHeader& header) {
  const std::string now = ScheduleText(job);
  if (header.schedule.empty() || header.schedule == now) return "";
  return absl::StrCat("the checkpoint is of a run with another schedule of learning rates: ",
                      header.schedule, "; this run follows: ", now);
}

}  // namespace weir::train
