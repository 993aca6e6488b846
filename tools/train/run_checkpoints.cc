#include "tools/train/run_checkpoints.h"

#include <unistd.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/job/check_training.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/pending_file.h"
#include "tools/train/checkpoint_header.h"
#include "tools/train/earlier_run.h"
#include "tools/train/job_data.h"
#include "tools/train/prepare_training.h"

namespace weir::train {
namespace {

// A shorter wait is reported with its checkpoint only.
constexpr double kStallSecondsMin = 1e-3;
// Back-pressure shorter than this is not worth a line.
constexpr double kWaitSecondsMin = 0.05;

}  // namespace

RunCheckpoints::RunCheckpoints(const proto::Job& job, const TrainOptions& options,
                               RunFolder* folder, const Clock* clock, Progress* progress)
    : job_(job), options_(options), folder_(folder), clock_(clock), progress_(progress) {}

absl::Status RunCheckpoints::Claim() {
  SayRenaming();
  if (folder_->has_begun()) return absl::OkStatus();
  folder_->NoteStart(options_.resume);
  return folder_->Claim();
}

void RunCheckpoints::Open(JobRunner* runner, const PreparedTraining& prepared) {
  runner_ = runner;
  TakePlan(prepared);
  data_ = runner->facts().data;
  samples_per_step_ = SamplesPerStep(job_);
  sample_offset_ = prepared.sample_offset;
  first_step_ = prepared.first_step;
  last_begun_ns_ = clock_->NowNs();
}

void RunCheckpoints::TakePlan(const PreparedTraining& prepared) {
  plan_id_ = prepared.plans.training->plan_id;
}

absl::Status RunCheckpoints::Prepare() {
  const bool has_some = options_.checkpoint_every > 0 || options_.checkpoint_every_seconds > 0;
  return folder_->is_folder() && has_some ? runner_->PrepareCheckpoints() : absl::OkStatus();
}

double RunCheckpoints::SecondsSince(int64_t ns) const {
  return static_cast<double>(clock_->NowNs() - ns) * 1e-9;
}

bool RunCheckpoints::IsDueByTime() const {
  return is_wanted() && options_.checkpoint_every_seconds > 0 &&
         SecondsSince(last_begun_ns_) >= options_.checkpoint_every_seconds;
}

std::optional<RunFolder::Written> RunCheckpoints::Last() const {
  return OfThisAttempt({folder_->Last(), {}});
}

std::optional<RunFolder::Written> RunCheckpoints::OfThisAttempt(
    const RunFolder::Found& found) const {
  const bool is_of_this = found.written.has_value() && found.written->step >= first_step_;
  return is_of_this ? found.written : std::nullopt;
}

absl::Status RunCheckpoints::GoBackTo(const RunFolder::Found& found) {
  // The folder knows that one only until it goes back.
  const absl::Status resume = CheckResume();
  for (const std::string& warning : found.warnings)
    progress_->Say(absl::StrCat("WARNING: ", warning));
  folder_->GoBackTo(found);
  return OfThisAttempt(found).has_value() ? absl::OkStatus() : resume;
}

bool RunCheckpoints::IsLast(int64_t step) const {
  const std::optional<RunFolder::Written> last = Last();
  return last.has_value() && last->step == step;
}

std::string RunCheckpoints::LastText() const {
  if (const std::optional<RunFolder::Written> last = folder_->Last(); last.has_value()) {
    return folder_->is_folder() ? absl::StrCat("the last good one is ", last->path)
                                : absl::StrCat("that of step ", last->step, " is kept");
  }
  const std::string resumed = ResumePath();
  return !resumed.empty() && ::access(resumed.c_str(), F_OK) == 0
             ? absl::StrCat("the last good one is ", resumed)
             : "there is none of this run";
}

void RunCheckpoints::AddStall(int64_t since_ns) {
  const double seconds = SecondsSince(since_ns);
  stall_seconds_ += seconds;
  if (!is_ending_) totals_.stall_seconds += seconds;
}

RunCheckpoints::Costs RunCheckpoints::TakeCosts(int64_t step) {
  Costs costs;
  const bool is_of_checkpoint = step == cost_step_;
  if (folder_->is_folder() || is_of_checkpoint)
    costs.write_seconds = std::exchange(write_seconds_, std::nullopt);
  const bool is_long = folder_->is_folder() && cost_step_ < 0 && stall_seconds_ >= kStallSecondsMin;
  if (is_of_checkpoint || is_long) costs.stall_seconds = std::exchange(stall_seconds_, 0.0);
  if (is_of_checkpoint) cost_step_ = -1;
  return costs;
}

absl::StatusOr<uint32_t> RunCheckpoints::SaveFile(int64_t step, const std::string& path) {
  const int64_t before = clock_->NowNs();
  if (!folder_->Last().has_value()) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> kept, KeepEarlierRun(path, step));
    if (kept.has_value()) {
      progress_->Say(absl::StrCat("checkpoint of a longer run at ", path, " kept as ", *kept));
    }
  }
  const absl::StatusOr<uint32_t> saved =
      runner_->Save({StateSet::kAll, CheckpointMetadata(job_, step, SamplesAt(step)), path,
                     NonfiniteInFiles(options_.on_nonfinite)});
  AddStall(before);
  cost_step_ = step;
  write_seconds_ = SecondsSince(before);
  return saved;
}

absl::Status RunCheckpoints::WriteStopped(int64_t step, const std::string& path) {
  return SaveFile(step, path).status();
}

void RunCheckpoints::SayRenaming() {
  const std::string renaming = folder_->NoteRenaming();
  if (!renaming.empty()) progress_->Say(absl::StrCat("WARNING: ", renaming));
}

absl::Status RunCheckpoints::BeginFolder(int64_t step) {
  const int64_t before = clock_->NowNs();
  last_begun_ns_ = before;  // also an attempt that fails is one
  SayRenaming();
  WEIR_RETURN_IF_ERROR(folder_->Claim());
  CheckpointOrder order;
  order.directory = base_path();
  order.facts.job = job_.name();
  order.facts.job_id = folder_->run_id();
  order.facts.plan_id = plan_id_;
  order.facts.step = step;
  order.facts.optimizer_step = compiler::UpdateRateOf(job_.training()).OptimizerStep(step);
  order.facts.schedule = ScheduleText(job_);
  order.facts.cursor = store::DataCursor{SamplesAt(step), 0, job_.training().seed(), data_};
  order.facts.keys = {{"training", job_.training().seed()}};
  order.bytes_per_second = options_.checkpoint_bandwidth;
  order.retention = {options_.keep, options_.keep_every, folder_->own()};
  order.nonfinite = NonfiniteInFiles(options_.on_nonfinite);
  const absl::Status begun = runner_->BeginCheckpoint(order);
  if (begun.ok()) begun_step_ = step;
  AddStall(before);
  cost_step_ = step;
  return begun;
}

absl::Status RunCheckpoints::EndFolder(JobRunner::Wait wait) {
  const int64_t before = clock_->NowNs();
  absl::StatusOr<std::optional<CheckpointWritten>> ended = runner_->EndCheckpoint(wait);
  AddStall(before);
  if (ended.ok() && !ended->has_value()) return absl::OkStatus();
  const int64_t step = std::exchange(begun_step_, -1);
  if (!ended.ok()) return WarnOf(step, ended.status());
  NoteWritten(step, **ended);
  return absl::OkStatus();
}

void RunCheckpoints::NoteWritten(int64_t step, const CheckpointWritten& written) {
  folder_->NoteWritten(step, written.index_sum);
  write_seconds_ = SecondsSince(last_begun_ns_);
  totals_.write_seconds += *write_seconds_;
  totals_.bytes += written.bytes;
  ++totals_.written;
  progress_->Say(absl::StrCat(
      "checkpoint of step ", step, " written to ", written.path, fails_ ? " again" : "", ": ",
      BytesText(static_cast<double>(written.bytes)),
      written.num_files > 1
          ? absl::StrCat(" of ", written.num_files, " ranks, at most ",
                         BytesText(static_cast<double>(written.bytes_of_rank_most)), " of one")
          : "",
      " in ", DurationText(*write_seconds_)));
  fails_ = false;
  if (!written.warning.empty()) progress_->Say("WARNING: " + written.warning);
}

absl::Status RunCheckpoints::WarnOf(int64_t step, const absl::Status& status) {
  if (!store::IsCannotWrite(status) && !store::FolderClaim::IsOfAnotherRun(status)) return status;
  fails_ = true;
  progress_->Say(absl::StrCat("WARNING: no checkpoint of step ", step, ": ", status.message(),
                              " The run goes on; ", LastText()));
  return absl::OkStatus();
}

absl::Status RunCheckpoints::Look() {
  return begun_step_ >= 0 ? EndFolder(JobRunner::Wait::kNo) : absl::OkStatus();
}

absl::Status RunCheckpoints::WriteOnTheWay(int64_t step) {
  if (!is_wanted()) return absl::OkStatus();
  if (folder_->is_folder()) {
    if (begun_step_ >= 0) {
      const int64_t earlier = begun_step_, before = clock_->NowNs();
      while (begun_step_ >= 0) {
        WEIR_RETURN_IF_ERROR(
            EndFolder(IsInterrupted() ? JobRunner::Wait::kYes : JobRunner::Wait::kPaced));
      }
      if (const double seconds = SecondsSince(before); seconds >= kWaitSecondsMin) {
        progress_->Say(absl::StrCat("the run waited ", DurationText(seconds),
                                    " for the checkpoint of step ", earlier,
                                    ", because that of step ", step, " is due"));
      }
    }
    const absl::Status begun = BeginFolder(step);
    ++totals_.num_stalls;
    return begun.ok() ? begun : WarnOf(step, begun);
  }
  progress_->Enter(live::Phase::kSaving);
  const absl::StatusOr<uint32_t> saved = SaveFile(step, options_.checkpoint);
  last_begun_ns_ = clock_->NowNs();
  progress_->Enter(live::Phase::kTraining);
  if (!saved.ok()) {
    cost_step_ = -1;
    return WarnOf(step, saved.status());
  }
  progress_->Say(absl::StrCat("checkpoint of step ", step, " written to ", options_.checkpoint,
                              fails_ ? " again" : ""));
  fails_ = false;
  folder_->NoteFile(step, *saved);
  return absl::OkStatus();
}

absl::Status RunCheckpoints::SaveNow(int64_t step) {
  if (!folder_->is_folder()) {
    WEIR_ASSIGN_OR_RETURN(const uint32_t header_sum, SaveFile(step, options_.checkpoint));
    folder_->NoteFile(step, header_sum);
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(BeginFolder(step));
  const int64_t before = clock_->NowNs();
  absl::StatusOr<std::optional<CheckpointWritten>> ended =
      runner_->EndCheckpoint(JobRunner::Wait::kYes);
  AddStall(before);
  begun_step_ = -1;
  WEIR_RETURN_IF_ERROR(ended.status());
  NoteWritten(step, **ended);
  return absl::OkStatus();
}

absl::Status RunCheckpoints::WriteLast(int64_t step, std::vector<absl::Status>* problems) {
  is_ending_ = true;
  // Steps follow if ranks are lost meanwhile and come back.
  const auto ended = absl::MakeCleanup([this] { is_ending_ = false; });
  if (begun_step_ >= 0) {
    const absl::Status status = EndFolder(JobRunner::Wait::kYes);
    if (RanksAreGone(status)) return status;
    if (!status.ok()) problems->push_back(status);
  }
  const bool is_there = folder_->is_folder() && IsLast(step);
  if (!is_there && problems->empty() &&
      compiler::UpdateRateOf(job_.training()).IsBetweenUpdates(step)) {
    absl::Status status = SaveNow(step);
    if (folder_->is_folder() && store::IsCannotWrite(status)) {
      progress_->Say(absl::StrCat("WARNING: no checkpoint of step ", step, ": ", status.message(),
                                  " It is tried again"));
      status = SaveNow(step);
    }
    if (RanksAreGone(status)) return status;
    if (!status.ok()) problems->push_back(status);
  }
  const std::optional<RunFolder::Written> last = folder_->Last();
  if (last.has_value() && problems->empty()) {
    progress_->Say(absl::StrCat(
        "checkpoint written to ", last->path,
        last->step == step ? ""
                           : absl::StrCat(", as of step ", last->step, ", the last that updates")));
  } else if (!problems->empty()) {
    progress_->Say(
        absl::StrCat("ERROR: no checkpoint of step ", step, "; ",
                     last.has_value() && !folder_->is_folder()
                         ? absl::StrCat(options_.checkpoint, " has that of step ", last->step)
                         : LastText()));
  }
  return absl::OkStatus();
}

void RunCheckpoints::Await() {
  if (begun_step_ >= 0) {
    const absl::Status status = EndFolder(JobRunner::Wait::kYes);
    if (!status.ok() && !RanksAreGone(status))
      progress_->Say(absl::StrCat("WARNING: ", status.message()));
  }
  SayRenaming();
}

std::string CheckpointsText(const TrainResult& result) {
  const CheckpointTotals& totals = result.checkpoints;
  if (totals.written == 0) return "";
  std::string text =
      absl::StrCat("; ", totals.written, totals.written == 1 ? " checkpoint" : " checkpoints");
  if (totals.num_stalls == 0) return text;
  const double all = result.seconds_here + totals.stall_seconds;
  return absl::StrCat(
      text, ", for each of which on the way the steps waited ",
      TimeText(totals.stall_seconds * 1e9 / static_cast<double>(totals.num_stalls)), ", ",
      absl::StrFormat("%.2f%% of the time", all > 0 ? 100 * totals.stall_seconds / all : 0.0));
}

}  // namespace weir::train
