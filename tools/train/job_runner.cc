#include "tools/train/job_runner.h"

#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/whole_file.h"

namespace weir::train {
namespace {

constexpr int64_t kLookMs = 200;  // the length of one wait for a checkpoint

}  // namespace

absl::Status WriteTraceFile(const std::string& path, const std::string& trace) {
  return store::WriteWholeText(path, trace);
}

bool RanksAreGone(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

absl::StatusOr<Recovery> JobRunner::Recover(const RecoveryOrder& /*order*/) {
  return absl::UnimplementedError("ranks of one process do not come back");
}

absl::Status JobRunner::PrepareToGrow() {
  return absl::UnimplementedError("ranks of one process stay as they are");
}

absl::Status JobRunner::Replace(RankId rank, const std::string& /*evidence*/) {
  return absl::UnimplementedError(absl::StrCat("rank ", rank, " has no process of its own"));
}

absl::StatusOr<std::unique_ptr<JobRunner>> LocalRunner::Open(const proto::Job& job,
                                                             const RunnerOptions& options) {
  std::unique_ptr<LocalRunner> runner(new LocalRunner());
  RankGroupOptions group_options;
  group_options.threads_per_device = options.threads_per_device;
  group_options.first_step = options.first_step;
  group_options.sample_offset = options.sample_offset;
  group_options.on_nonfinite = options.on_nonfinite;
  group_options.prepared = options.prepared;
  group_options.tell = options.tell;
  WEIR_ASSIGN_OR_RETURN(runner->group_, RankGroup::Open(job, group_options));
  const RankGroup& group = *runner->group_;
  RunnerFacts& facts = runner->facts_;
  facts.data = group.dataset().Describe();
  facts.num_ranks = group.plan().places.num_ranks();
  facts.mesh = group.plan().mesh_text;
  facts.threads_per_device = group.threads_per_device();
  facts.bytes_per_device = group.bytes_per_device();
  facts.states = group.States(StateSet::kAll);
  facts.evaluation_batches = group.evaluation_batches();
  return runner;
}

absl::StatusOr<uint32_t> LocalRunner::Save(const SaveOrder& order) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::SafetensorsWriter> writer,
                        BeginSave(facts_.states, order.set, order.metadata, order.path));
  WEIR_ASSIGN_OR_RETURN(auto parts,
                        group_->SaveShards(order.set, writer->temporary_path(), order.path));
  WEIR_RETURN_IF_ERROR(NoteParts(parts, order, writer.get()));
  WEIR_RETURN_IF_ERROR(writer->Commit());
  return writer->header_sum();
}

absl::Status LocalRunner::BeginCheckpoint(const CheckpointOrder& order) {
  WEIR_RETURN_IF_ERROR(commit_.Begin(order, facts_.states));
  const absl::Status begun =
      group_->BeginShards({order.directory, order.facts.step, commit_.token(),
                           order.bytes_per_second, order.facts.job_id});
  if (!begun.ok()) commit_.GiveUp();
  return begun;
}

absl::StatusOr<std::optional<CheckpointWritten>> LocalRunner::EndCheckpoint(Wait wait) {
  ShardSave& shards = group_->shards();
  if (wait == Wait::kYes) shards.LiftPace();
  const int64_t limit_ms = wait == Wait::kNo ? 0 : kLookMs;
  do {
    if (!commit_.is_committing()) {
      std::optional<absl::StatusOr<SavedShards>> saved = shards.Take(limit_ms);
      if (!saved.has_value()) continue;
      absl::Status status = saved->status();
      if (status.ok()) status = commit_.Add(**std::move(saved));
      if (!status.ok()) {
        commit_.GiveUp();
        return status;
      }
      commit_.Commit();
    }
    if (auto written = commit_.Take(limit_ms); written.has_value()) {
      WEIR_RETURN_IF_ERROR(written->status());
      return **std::move(written);
    }
  } while (wait == Wait::kYes);
  return std::nullopt;
}

absl::Status LocalRunner::WriteTrace(const std::string& path) {
  const actors::Session& session = group_->session();
  std::ostringstream trace;
  WEIR_RETURN_IF_ERROR(session.WriteTrace(trace, {}));
  return WriteTraceFile(path, std::move(trace).str());
}

}  // namespace weir::train
