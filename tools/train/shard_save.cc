#include "tools/train/shard_save.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "actors/engine/finite_watch.h"
#include "runtime/base/finite.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/pending_file.h"

namespace weir::train {
namespace {

// The bytes between two looks at the pace.
constexpr int64_t kPieceBytes = 4 << 20;
// Every element type has a size that divides this one.
constexpr int64_t kElementBytesMax = 8;

void NoteNonfinite(const StateCopy::Shard& shard, std::map<std::string, std::string>* nonfinite) {
  const int64_t count = shard.slice.num_elements();
  if (AllFinite(shard.slice.dtype, shard.data, count)) return;
  nonfinite->emplace(shard.name,
                     absl::StrCat(actors::NonfiniteText(shard.slice.dtype, shard.data, count),
                                  " on rank ", shard.rank));
}

std::map<RankId, std::vector<store::ShardEntry>> EntriesOf(const StateCopy& copy) {
  std::map<RankId, std::vector<store::ShardEntry>> entries;
  for (const StateCopy::Shard& shard : copy.shards())
    entries[shard.rank].push_back(store::ShardEntry::Of(shard.name, shard.slice));
  return entries;
}

}  // namespace

void ShardSave::Prepare(const actors::Session& session, const compiler::LogicalPlan& plan) {
  GiveUp();
  AwaitTouching();
  if (!copy_.Reserve(session, plan, StateSet::kAll).ok()) return;
  touching_.Begin([this] {
    copy_.Touch();
    return absl::OkStatus();
  });
}

void ShardSave::AwaitTouching() {
  while (touching_.is_begun() && !touching_.Take(1000).has_value()) {
  }
}

absl::Status ShardSave::Copy(const actors::Session& session, const compiler::LogicalPlan& plan,
                             const ShardSaveOrder& order) {
  GiveUp();
  AwaitTouching();
  const absl::Status copied = copy_.Take(session, plan, StateSet::kAll);
  if (!absl::IsResourceExhausted(copied)) return copied;
  return store::CannotWrite(order.directory, std::string(copied.message()), ENOMEM);
}

absl::Status ShardSave::Begin(const actors::Session& session, const compiler::LogicalPlan& plan,
                              const ShardSaveOrder& order) {
  WEIR_RETURN_IF_ERROR(Copy(session, plan, order));
  pace_ = std::make_unique<WritePace>(order.bytes_per_second, clock_);
  writing_.Begin([this, order] { return WriteAll(order); });
  return absl::OkStatus();
}

absl::StatusOr<std::map<RankId, std::vector<store::ShardEntry>>> ShardSave::BeginSending(
    const actors::Session& session, const compiler::LogicalPlan& plan,
    const ShardSaveOrder& order) {
  WEIR_RETURN_IF_ERROR(Copy(session, plan, order));
  return EntriesOf(copy_);
}

absl::StatusOr<SavedShards> ShardSave::WriteAll(const ShardSaveOrder& order) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::PendingCheckpoint> pending,
                        store::PendingCheckpoint::Open(order.directory, order.step, order.token,
                                                       store::PendingCheckpoint::Role::kJoin));
  SavedShards saved;
  const std::vector<StateCopy::Shard>& shards = copy_.shards();
  auto next = shards.begin();
  for (auto& [rank, entries] : EntriesOf(copy_)) {
    WEIR_ASSIGN_OR_RETURN(
        const std::unique_ptr<store::ShardWriter> writer,
        store::ShardWriter::Create({pending->folder(), store::ShardFileName(rank.value()), "",
                                    order.step, pending->final_path(), order.job_id},
                                   entries));
    for (size_t i = 0; next != shards.end() && next->rank == rank; ++next, ++i) {
      if (writer->entries()[i].tensor != next->name)
        return absl::InternalError(absl::StrCat("the file of rank ", rank, " has another order"));
      NoteNonfinite(*next, &saved.nonfinite);
      const int64_t size = next->slice.bytes();
      for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
        const int64_t bytes = std::min(kPieceBytes, size - begin);
        WEIR_RETURN_IF_ERROR(writer->Append(next->data + begin, bytes));
        if (!pace_->Spend(bytes)) return absl::CancelledError("the checkpoint is given up");
      }
    }
    WEIR_ASSIGN_OR_RETURN(store::ShardFileRecord record, writer->Finish());
    saved.files.push_back(std::move(record));
  }
  return saved;
}

std::optional<absl::StatusOr<SavedShards>> ShardSave::Take(int64_t limit_ms) {
  if (!writing_.is_begun())
    return absl::StatusOr<SavedShards>(absl::FailedPreconditionError("no checkpoint is begun"));
  return writing_.Take(limit_ms);
}

absl::StatusOr<SentBytes> ShardSave::NextBytes(int64_t begin, int64_t bytes_max) {
  if (begin < 0 || begin > copy_.bytes())
    return absl::InvalidArgumentError(absl::StrCat("no shard has the byte ", begin));
  SentBytes sent;
  sent.end = begin;
  int64_t position = 0;
  for (const StateCopy::Shard& shard : copy_.shards()) {
    const int64_t size = shard.slice.bytes(), room = bytes_max - (sent.end - begin);
    const int64_t from = std::max<int64_t>(0, sent.end - position);
    if (from < size && room > 0) {
      if (from == 0) NoteNonfinite(shard, &sent.nonfinite);
      int64_t bytes = size - from;
      // At least one element, and whole elements.
      if (bytes > room)
        bytes = std::max(kElementBytesMax, room / kElementBytesMax * kElementBytesMax);
      bytes = std::min(bytes, size - from);
      sent.bytes.append(shard.data + from, static_cast<size_t>(bytes));
      sent.end += bytes;
    }
    position += size;
    if (sent.end < position) break;
  }
  sent.is_last = sent.end == copy_.bytes();
  return sent;
}

void ShardSave::LiftPace() {
  if (pace_ != nullptr) pace_->Lift();
}

void ShardSave::GiveUp() {
  if (!writing_.is_begun()) return;
  pace_->Stop();
  while (!writing_.Take(1000).has_value()) {
  }
}

}  // namespace weir::train
