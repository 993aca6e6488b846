#include "tools/fleet/worker_states.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/rect.h"
#include "runtime/base/status.h"
#include "runtime/limits/process_limits.h"
#include "tools/fleet/epoch_start.h"
#include "tools/fleet/piece_codec.h"

namespace weir::fleet {
namespace {

// The threads of a line to a buddy: its own, and that of its network.
constexpr int kThreadsOfLine = 2;

Charge ChargeOf(const proto::ChargeSpec& spec) {
  Charge charge{WorkerId(spec.worker()), {}};
  for (int i = 0; i < std::min({spec.rank_size(), spec.name_size(), spec.bytes_size()}); ++i)
    charge.shards.push_back({RankId(spec.rank(i)), spec.name(i), spec.bytes(i)});
  return charge;
}

}  // namespace

absl::Status WorkerStates::Leave(const proto::OpenCommand& command, const actors::Session* session,
                                 int64_t resting_step) {
  line_.reset();
  const int64_t step = command.first_step();
  if (copies_layout_ != command.states_layout()) {
    kept_.ForgetAllBut(-1);
    guarded_.ForgetAllBut(-1);
    copies_layout_ = command.states_layout();
  }
  const uint32_t old_layout = std::exchange(ranks_layout_, command.layout());
  const WorkerStanding standing =
      StandingOn(command.states_layout(), {.ranks = old_layout, .copies = copies_layout_},
                 {.kept_step = kept_.last_step(),
                  .resting_step = session == nullptr ? -1 : resting_step,
                  .older_kept_step = kept_.older_step(),
                  .guarded = {}});
  WEIR_ASSIGN_OR_RETURN(const Leaving leaving, ChooseLeaving(standing, command.goes_on(), step));
  if (leaving == Leaving::kCopiesRanks) WEIR_RETURN_IF_ERROR(kept_.Next(1)->Take(*session));
  kept_.ForgetAllBut(leaving == Leaving::kForgetsCopy ? -1 : step);
  guarded_.ForgetAllBut(step);
  taken_.Clear();
  return absl::OkStatus();
}

absl::Status WorkerStates::JoinBuddies(const proto::BuddyCommand& command, RankId rank,
                                       const train::NetworkFactory& network,
                                       proto::WorkerAnswer* answer) {
  line_.reset();
  lone_.clear();
  LeaveOldMesh();
  BuddyLineOptions options;
  options.epoch = command.epoch();
  options.rank = rank;
  if (command.has_own()) {
    Charge own = ChargeOf(command.own());
    options.to_buddy = {RankId(command.own().peer()), own.worker, own.bytes()};
    lone_ = std::move(own.shards);
  }
  std::vector<Charge> charges;
  for (const proto::ChargeSpec& spec : command.charge()) {
    charges.push_back(ChargeOf(spec));
    options.from_charges.push_back(
        {RankId(spec.peer()), charges.back().worker, charges.back().bytes()});
  }
  const absl::Status expected = guarded_.Expect(charges);
  // The other sides connect, so this one does, even if it keeps nothing.
  if (options.to_buddy.has_value() || !charges.empty())
    WEIR_RETURN_IF_ERROR(ConnectLine(options, command.num_ranks(), network));
  answer->set_buddy_fault(std::string(expected.message()));
  answer->set_guarded_bytes(guarded_.bytes());
  return absl::OkStatus();
}

absl::Status WorkerStates::ConnectLine(const BuddyLineOptions& options, int num_ranks,
                                       const train::NetworkFactory& network) {
  WEIR_RETURN_IF_ERROR(
      limits::CheckRoomForThreads(absl::StrCat("rank ", options.rank), kThreadsOfLine));
  WEIR_ASSIGN_OR_RETURN(auto made, network(num_ranks, {options.rank}));
  WEIR_ASSIGN_OR_RETURN(line_, BuddyLine::Connect(options, std::move(made), &guarded_));
  return absl::OkStatus();
}

absl::Status WorkerStates::Keep(const proto::RunCommand& command, const actors::Session& session,
                                proto::WorkerAnswer* answer) {
  const int64_t before_ns = clock_.NowNs();
  LeaveOldMesh();
  const absl::Status kept = kept_.Next(command.sends_copy() ? 2 : 1)->Take(session);
  if (!kept.ok() && !absl::IsResourceExhausted(kept)) return kept;
  if (kept.ok()) answer->set_keep_ns(clock_.NowNs() - before_ns);
  answer->set_kept_bytes(kept_.bytes());
  if (!kept.ok() || !command.sends_copy() || line_ == nullptr || lone_.empty())
    return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(auto pieces, kept_.last().Pieces(lone_));
  line_->Send(kept_.last_step(), std::move(pieces));
  return absl::OkStatus();
}

void WorkerStates::AddFacts(proto::WorkerAnswer* answer) const {
  answer->set_sent_step(-1);
  if (line_ == nullptr) return;
  const SentCopy sent = line_->Sent();
  answer->set_sent_step(sent.step);
  answer->set_sent_bytes(sent.bytes);
  answer->set_sent_ns(sent.took_ns);
  answer->set_buddy_fault(std::string(line_->Fault().message()));
}

void WorkerStates::AddStanding(proto::WorkerAnswer* answer) const {
  answer->set_kept_step(kept_.last_step());
  answer->set_older_kept_step(kept_.older_step());
  answer->set_copies_layout(copies_layout_);
  answer->set_ranks_layout(ranks_layout_);
  for (const WholeCopy& copy : guarded_.Whole()) {
    proto::WholeCopyFact* const fact = answer->add_whole_copy();
    fact->set_charge(copy.charge.value());
    fact->set_step(copy.step);
  }
}

void WorkerStates::LeaveOldMesh() {
  if (std::exchange(copies_layout_, ranks_layout_) == ranks_layout_) return;
  kept_.ForgetAllBut(-1);
  guarded_.ForgetAllBut(-1);
}

absl::StatusOr<absl::string_view> WorkerStates::ReadBytes(RankId rank, const std::string& name,
                                                          int64_t begin, int64_t bytes) const {
  absl::StatusOr<absl::string_view> found = absl::NotFoundError("no copy is kept");
  if (kept_.last_step() >= 0) found = kept_.last().Read(rank, name, begin, bytes);
  if (!found.ok()) found = guarded_.Read(rank, name, begin, bytes);
  return found;
}

absl::StatusOr<absl::string_view> WorkerStates::Read(const proto::ShardRange& range,
                                                     std::string* gathered) const {
  const RankId rank(range.rank());
  if (!range.has_part()) return ReadBytes(rank, range.name(), range.begin(), range.bytes());
  WEIR_ASSIGN_OR_RETURN(const TensorSlice shard, SliceFrom(range.name(), range.shard()));
  WEIR_ASSIGN_OR_RETURN(const TensorSlice part, SliceFrom(range.name(), range.part()));
  const int64_t size = part.bytes();
  if (!Covers(shard, part) || range.begin() < 0 || range.bytes() < 0 ||
      range.begin() > size - range.bytes()) {
    return absl::InternalError(absl::StrCat("the state ", range.name(), " has no such part as ",
                                            ToText(part), " of ", ToText(shard)));
  }
  WEIR_ASSIGN_OR_RETURN(const absl::string_view held,
                        ReadBytes(rank, range.name(), 0, shard.bytes()));
  gathered->resize(static_cast<size_t>(size));
  CopyPart(part, shard, held.data(), part, gathered->data());
  return absl::string_view(*gathered).substr(static_cast<size_t>(range.begin()),
                                             static_cast<size_t>(range.bytes()));
}

absl::Status WorkerStates::Give(const proto::GiveCommand& command,
                                proto::WorkerAnswer* answer) const {
  std::string gathered;
  for (const proto::ShardRange& range : command.range()) {
    WEIR_ASSIGN_OR_RETURN(const absl::string_view bytes, Read(range, &gathered));
    answer->add_given(std::string(bytes));
  }
  return absl::OkStatus();
}

absl::Status WorkerStates::TakeRange(const proto::ShardRange& range, const std::string& data,
                                     actors::Session* session) {
  const RankId rank(range.rank());
  int64_t whole = 0;
  {
    WEIR_ASSIGN_OR_RETURN(const device::HostView held, session->ReadState(rank, range.name()));
    whole = held.size();
  }
  if (!range.has_part()) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> state,
                          taken_.Add(rank, range.name(), range.begin(), data, whole));
    return state.has_value() ? session->WriteState(rank, range.name(), *state) : absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const TensorSlice shard, SliceFrom(range.name(), range.shard()));
  WEIR_ASSIGN_OR_RETURN(const TensorSlice part, SliceFrom(range.name(), range.part()));
  if (shard.bytes() != whole)
    return absl::InternalError(absl::StrCat("the state ", range.name(), " of rank ", rank, " has ",
                                            whole, " bytes, and not ", shard.bytes()));
  WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                        taken_.Add(rank, range.name(), range.begin(), data, part.bytes()));
  if (!bytes.has_value()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> state,
                        taken_.AddPart(rank, range.name(), part, shard, *bytes));
  return state.has_value() ? session->WriteState(rank, range.name(), *state) : absl::OkStatus();
}

absl::Status WorkerStates::Take(const proto::TakeCommand& command, actors::Session* session) {
  if (command.range_size() != command.data_size() ||
      command.own_range_size() != command.own_from_size()) {
    return absl::InternalError("a command with other parts of states than it names");
  }
  std::string gathered;
  for (int i = 0; i < command.own_range_size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(const absl::string_view bytes, Read(command.own_from(i), &gathered));
    WEIR_RETURN_IF_ERROR(TakeRange(command.own_range(i), std::string(bytes), session));
  }
  for (int i = 0; i < command.range_size(); ++i)
    WEIR_RETURN_IF_ERROR(TakeRange(command.range(i), command.data(i), session));
  return absl::OkStatus();
}

}  // namespace weir::fleet
