#include "tools/fleet/worker_states.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status.h"
#include "runtime/limits/process_limits.h"
#include "tools/fleet/epoch_start.h"

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
  const WorkerStanding standing = {.kept_step = kept_.last_step(),
                                   .resting_step = session == nullptr ? -1 : resting_step,
                                   .older_kept_step = kept_.older_step(),
                                   .guarded = {}};
  WEIR_ASSIGN_OR_RETURN(const Leaving leaving, ChooseLeaving(standing, command.goes_on(), step));
  if (leaving == Leaving::kCopiesRanks) WEIR_RETURN_IF_ERROR(kept_.Take(*session, 1));
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
  const absl::Status kept = kept_.Take(session, command.sends_copy() ? 2 : 1);
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
  for (const WholeCopy& copy : guarded_.Whole()) {
    proto::WholeCopyFact* const fact = answer->add_whole_copy();
    fact->set_charge(copy.charge.value());
    fact->set_step(copy.step);
  }
}

absl::Status WorkerStates::Give(const proto::GiveCommand& command,
                                proto::WorkerAnswer* answer) const {
  for (const proto::ShardRange& range : command.range()) {
    const RankId rank(range.rank());
    absl::StatusOr<absl::string_view> bytes = absl::NotFoundError("no copy is kept");
    if (kept_.last_step() >= 0)
      bytes = kept_.last().Read(rank, range.name(), range.begin(), range.bytes());
    if (!bytes.ok()) bytes = guarded_.Read(rank, range.name(), range.begin(), range.bytes());
    WEIR_RETURN_IF_ERROR(bytes.status());
    answer->add_given(std::string(*bytes));
  }
  return absl::OkStatus();
}

absl::Status WorkerStates::Take(const proto::TakeCommand& command, actors::Session* session) {
  if (command.range_size() != command.data_size())
    return absl::InternalError("a command with other parts of states than it names");
  for (int i = 0; i < command.range_size(); ++i) {
    const proto::ShardRange& range = command.range(i);
    const RankId rank(range.rank());
    int64_t whole = 0;
    {
      WEIR_ASSIGN_OR_RETURN(const device::HostView held, session->ReadState(rank, range.name()));
      whole = held.size();
    }
    WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> state,
                          taken_.Add(rank, range.name(), range.begin(), command.data(i), whole));
    if (state.has_value()) WEIR_RETURN_IF_ERROR(session->WriteState(rank, range.name(), *state));
  }
  return absl::OkStatus();
}

}  // namespace weir::fleet
