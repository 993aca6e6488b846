#include "tools/fleet/wait_account.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::fleet {
namespace {

// This number is small enough for a reader.
constexpr int kLinesMax = 6;
// A field takes these bytes besides its content, for its number and its length.
constexpr size_t kFieldBytes = 8;

proto::WaitFact::State ToFact(actors::ActorState state) {
  switch (state) {
    case actors::ActorState::kWaitsForInput: return proto::WaitFact::WAITS_FOR_INPUT;
    case actors::ActorState::kWaitsForCredit: return proto::WaitFact::WAITS_FOR_CREDIT;
    case actors::ActorState::kWaitsForStream: return proto::WaitFact::WAITS_FOR_STREAM;
    case actors::ActorState::kRunning:
    case actors::ActorState::kDone: return proto::WaitFact::RUNNING;
  }
  return proto::WaitFact::RUNNING;
}

actors::ActorState FromFact(proto::WaitFact::State state) {
  switch (state) {
    case proto::WaitFact::WAITS_FOR_INPUT: return actors::ActorState::kWaitsForInput;
    case proto::WaitFact::WAITS_FOR_CREDIT: return actors::ActorState::kWaitsForCredit;
    case proto::WaitFact::WAITS_FOR_STREAM: return actors::ActorState::kWaitsForStream;
    default: return actors::ActorState::kRunning;
  }
}

// An AccountWriter adds waits to an account as long as the account has room.
class AccountWriter {
 public:
  explicit AccountWriter(size_t bytes_max) : bytes_left_(bytes_max) {}

  // Returns whether the wait had room.
  bool Add(const actors::Wait& wait) {
    new_names_.clear();
    proto::WaitFact fact;
    SetNode(wait.who, fact.mutable_who());
    fact.set_acts_done(wait.acts_done);
    fact.set_acts_wanted(wait.acts_wanted);
    fact.set_state(ToFact(wait.state));
    fact.set_register_name(IndexOf(wait.register_name));
    for (const actors::WaitNode& holder : wait.holders) SetNode(holder, fact.add_holder());
    size_t bytes = fact.ByteSizeLong() + kFieldBytes;
    for (const std::string& name : new_names_) bytes += name.size() + kFieldBytes;
    if (bytes > bytes_left_) {
      for (const std::string& name : new_names_) index_.erase(name);
      return false;
    }
    bytes_left_ -= bytes;
    for (std::string& name : new_names_) account_.add_name(std::move(name));
    *account_.add_wait() = std::move(fact);
    return true;
  }

  proto::WaitAccount Take(int64_t num_left_out) {
    account_.set_num_left_out(num_left_out);
    return std::move(account_);
  }

 private:
  int32_t IndexOf(const std::string& name) {
    if (name.empty()) return 0;
    const auto [at, is_new] = index_.emplace(name, static_cast<int32_t>(index_.size()) + 1);
    if (is_new) new_names_.push_back(name);
    return at->second;
  }
  void SetNode(const actors::WaitNode& node, proto::WaitNodeFact* fact) {
    fact->set_rank(node.rank.value());
    fact->set_actor(IndexOf(node.actor));
  }

  size_t bytes_left_;
  proto::WaitAccount account_;
  std::map<std::string, int32_t> index_;  // plus 1
  std::vector<std::string> new_names_;    // of the wait under way
};

// An AccountReader looks names up; an index beyond the names is an error.
class AccountReader {
 public:
  explicit AccountReader(const proto::WaitAccount& account) : account_(account) {}

  std::string NameAt(int32_t index) {
    if (index == 0) return "";
    if (index < 0 || index > account_.name_size()) {
      is_sound_ = false;
      return "";
    }
    return account_.name(index - 1);
  }
  actors::WaitNode NodeOf(const proto::WaitNodeFact& fact) {
    return {RankId(fact.rank()), NameAt(fact.actor())};
  }
  bool is_sound() const { return is_sound_; }

 private:
  const proto::WaitAccount& account_;
  bool is_sound_ = true;
};

}  // namespace

proto::WaitAccount AccountOf(const std::vector<actors::Wait>& waits, size_t bytes_max) {
  AccountWriter writer(bytes_max - std::min(bytes_max, 2 * kFieldBytes));
  size_t count = 0;
  while (count < waits.size() && writer.Add(waits[count])) ++count;
  return writer.Take(static_cast<int64_t>(waits.size() - count));
}

std::optional<std::vector<actors::Wait>> WaitsOf(const proto::WaitAccount& account) {
  AccountReader reader(account);
  std::vector<actors::Wait> waits;
  for (const proto::WaitFact& fact : account.wait()) {
    actors::Wait& wait = waits.emplace_back();
    wait.who = reader.NodeOf(fact.who());
    wait.acts_done = fact.acts_done();
    wait.acts_wanted = fact.acts_wanted();
    wait.state = FromFact(fact.state());
    wait.register_name = reader.NameAt(fact.register_name());
    for (const proto::WaitNodeFact& holder : fact.holder())
      wait.holders.push_back(reader.NodeOf(holder));
  }
  if (!reader.is_sound()) return std::nullopt;
  return waits;
}

std::vector<std::string> WaitsForOthers(const std::vector<actors::Wait>& waits,
                                        const std::vector<RankId>& ranks) {
  const auto is_elsewhere = [&](const actors::WaitNode& holder) {
    return std::find(ranks.begin(), ranks.end(), holder.rank) == ranks.end();
  };
  std::vector<std::string> lines;
  int count = 0;
  for (const actors::Wait& wait : waits) {
    if (std::none_of(wait.holders.begin(), wait.holders.end(), is_elsewhere)) continue;
    if (++count <= kLinesMax) lines.push_back(actors::ToLine(wait));
  }
  if (count > kLinesMax) lines.push_back(absl::StrCat("and ", count - kLinesMax, " more"));
  return lines;
}

}  // namespace weir::fleet
