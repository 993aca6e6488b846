#include "tools/train/checkpoint_header.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/job/check_training.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/batch_position.h"
#include "runtime/store/checkpoint_metadata.h"
#include "tools/train/job_data.h"

namespace weir::train {
namespace {

// Leaves room for what a run reads ahead.
constexpr int64_t kSamplesMax = int64_t{1} << 62;

// A file without seals may have any number of samples. Precondition: the checkpoint has at most the
// steps of the job.
absl::Status CheckSamplesAhead(const proto::Job& job, const std::string& path,
                               const store::CheckpointFacts& facts) {
  if (!facts.cursor.has_value()) return absl::OkStatus();  // the transition gate refuses it
  const int64_t steps = job.training().steps() - facts.step;
  const int64_t samples_per_step = std::max<int64_t>(1, SamplesPerStep(job));
  const int64_t samples = facts.cursor->samples;
  if (samples <= kSamplesMax && steps <= (kSamplesMax - samples) / samples_per_step)
    return absl::OkStatus();
  return Damaged({"W0718", path + ", data cursor",
                  absl::StrCat("at most ", kSamplesMax, " samples at the end of the run"),
                  absl::StrCat(samples, " at step ", facts.step, ", with ", Plural(steps, "step"),
                               " ahead of ", Plural(samples_per_step, "sample")),
                  "another checkpoint of the run, or another copy of this one"});
}

}  // namespace

std::map<std::string, std::string> CheckpointMetadata(const proto::Job& job, int64_t step,
                                                      int64_t samples) {
  store::CheckpointFacts facts;
  facts.job = job.name();
  facts.step = step;
  facts.optimizer_step = compiler::UpdateRateOf(job.training()).OptimizerStep(step);
  facts.schedule = ScheduleText(job);
  facts.cursor = store::DataCursor{samples, 0, job.training().seed(), ""};
  facts.keys = {{"training", job.training().seed()}};
  store::SealFacts(&facts);
  return store::CheckpointMetadataOf(facts);
}

absl::Status CheckIsCheckpoint(const store::SafetensorsReader& file) {
  const store::Metadata& metadata = file.metadata();
  if (store::IsOfCheckpoint(metadata)) return absl::OkStatus();
  const auto step = metadata.find(store::kStepKey);
  return Rejected({"W0076", file.path(), "a checkpoint, whose metadata has the step",
                   step == metadata.end() ? "none" : "\"" + step->second + "\"",
                   "files written by --save are for --init"});
}

absl::Status CheckResume(const proto::Job& job, const std::string& path,
                         const store::CheckpointFacts& facts) {
  const UpdateRate updates = compiler::UpdateRateOf(job.training());
  const int64_t step = facts.step;
  if (!updates.IsBetweenUpdates(step) || updates.OptimizerStep(step) != facts.optimizer_step) {
    const int64_t expected = std::max<int64_t>(0, updates.OptimizerStep(step));
    return Rejected(
        {"W0548", path,
         absl::StrCat("a checkpoint of a run with training.update_every ", updates.every,
                      ", update_phase ", updates.phase, " and gradient_delay ", updates.delay,
                      ": after step ", step, " with ",
                      updates.IsBetweenUpdates(step) ? Plural(expected, "step")
                                                     : absl::StrCat(expected, " and more steps"),
                      " of the optimiser"),
         Plural(std::max<int64_t>(0, facts.optimizer_step), "step") + " of the optimiser",
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
  return CheckSamplesAhead(job, path, facts);
}

int64_t SampleOffset(const store::CheckpointFacts& facts, int64_t samples_per_step) {
  return store::SampleOffsetBehind(facts.cursor->samples, facts.step, samples_per_step);
}

std::string SeedChange(const proto::Job& job, const store::CheckpointFacts& facts) {
  const uint64_t now = job.training().seed();
  if (facts.cursor->seed == now) return "";
  return absl::StrCat("the checkpoint is of a run with seed ", facts.cursor->seed,
                      ", and this run has ", now,
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

std::string ScheduleChange(const proto::Job& job, const store::CheckpointFacts& facts) {
  const std::string now = ScheduleText(job);
  if (facts.schedule.empty() || facts.schedule == now) return "";
  return absl::StrCat("the checkpoint is of a run with another schedule of learning rates: ",
                      facts.schedule, "; this run follows: ", now);
}

}  // namespace weir::train
