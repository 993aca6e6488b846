#include "tools/trace/memory_use.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "tools/trace/register_fill.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

struct MemoryChange {
  int64_t at = 0;     // ns, as everything in a trace
  int64_t bytes = 0;  // in use from this moment on
};
using Deltas = std::vector<std::pair<int64_t, int64_t>>;  // a moment, and bytes more

// Returns the rank in whose memory a register lies: that of its readers.
RecordedRankId HomeOf(const RecordedRun& run, const RecordedRegister& r) {
  if (!r.consumers.empty()) return run.actors[r.consumers[0].actor].rank_index;
  return r.producer.actor.has_value() ? run.actors[r.producer.actor].rank_index : RecordedRankId();
}

// Returns whether a register lies in a state: the state has been counted.
bool LiesInState(const RecordedRank& rank, const RecordedRegister& r) {
  const int64_t begin = r.arena_offset;
  return std::any_of(rank.states.begin(), rank.states.end(), [&](const RecordedState& state) {
    return begin >= state.arena_offset && begin < state.arena_offset + state.bytes;
  });
}

class RankMemoryFinder {
 public:
  RankMemoryFinder(const RecordedRun& run, RecordedRankId rank, const StepTime& step)
      : run_(run), rank_(run.ranks[rank]), step_(step) {
    for (const RecordedRegisterId id : run.registers.ids()) {
      const RecordedRegister& r = run.registers[id];
      if (r.arena_offset < 0 || HomeOf(run, r) != rank || LiesInState(rank_, r)) continue;
      registers_.push_back(id);
      fills_.push_back(FindFill(run, id));
    }
  }

  RankMemory Find() && {
    result_.rank = rank_.rank;
    result_.arena_bytes = rank_.arena_bytes;
    result_.scratch_bytes = rank_.scratch_bytes;
    result_.always_bytes = rank_.scratch_bytes;
    for (const RecordedState& state : rank_.states) {
      result_.state_bytes[state.state_class] += state.bytes;
      result_.always_bytes += state.bytes;
    }
    AddChanges();
    FindPeak();
    FillParts();
    AddHeld();
    return std::move(result_);
  }

 private:
  void AddChanges() {
    Deltas deltas;
    int64_t bytes = result_.always_bytes;
    for (size_t i = 0; i < registers_.size(); ++i) {
      const int64_t size = run_.registers[registers_[i]].bytes;
      int64_t before = 0;
      for (const FillChange& change : fills_[i].changes) {
        if (change.at >= step_.end) break;
        const int64_t more = (change.in_use - before) * size;
        before = change.in_use;
        if (change.at <= step_.begin) {
          bytes += more;
        } else {
          deltas.emplace_back(change.at, more);
        }
      }
    }
    std::sort(deltas.begin(), deltas.end());  // what is given up at a moment comes before
    changes_.push_back({step_.begin, bytes});
    for (size_t i = 0; i < deltas.size(); ++i) {
      bytes += deltas[i].second;
      if (i + 1 < deltas.size() && deltas[i + 1].first == deltas[i].first) continue;
      if (bytes != changes_.back().bytes) changes_.push_back({deltas[i].first, bytes});
    }
  }

  void FindPeak() {
    for (const MemoryChange& change : changes_) {
      if (change.bytes <= result_.peak_bytes) continue;
      result_.peak_bytes = change.bytes;
      result_.peak_at = change.at;
    }
    // Acts are in the order of their ends.
    const auto act =
        std::upper_bound(rank_.acts.begin(), rank_.acts.end(), result_.peak_at,
                         [](int64_t at, const RecordedAct& other) { return at < other.end; });
    if (act != rank_.acts.end()) result_.peak_act = run_.actors[act->actor].function;
  }

  void FillParts() {
    const int64_t ns = std::max<int64_t>(1, step_.end - step_.begin);
    result_.most.assign(kMemoryParts, 0);
    for (size_t i = 0; i < changes_.size(); ++i) {
      const int64_t until = i + 1 < changes_.size() ? changes_[i + 1].at : step_.end;
      const auto part = [&](int64_t at) {
        return std::clamp<int64_t>((at - step_.begin) * kMemoryParts / ns, 0, kMemoryParts - 1);
      };
      for (int64_t p = part(changes_[i].at); p <= part(std::max(changes_[i].at, until - 1)); ++p)
        result_.most[p] = std::max(result_.most[p], changes_[i].bytes);
    }
  }

  static int64_t InUseAt(const RegisterFill& fill, int64_t at) {
    const auto next =
        std::upper_bound(fill.changes.begin(), fill.changes.end(), at,
                         [](int64_t t, const FillChange& change) { return t < change.at; });
    return next == fill.changes.begin() ? 0 : std::prev(next)->in_use;
  }

  // A Life is that of a token: its writer and its last reader; null if the record lacks them.
  struct Life {
    const RecordedAct* writer = nullptr;
    const RecordedAct* reader = nullptr;
  };
  // Returns the life of the oldest token that is in a slot at `at`.
  Life OldestAt(RecordedRegisterId id, int64_t at) const {
    const RecordedRegister& r = run_.registers[id];
    Life oldest;
    if (!r.producer.actor.has_value()) return oldest;
    const RecordedActor& actor = run_.actors[r.producer.actor];
    const RecordedPort& port = actor.outputs[r.producer.port];
    for (size_t i = 0; i < actor.acts.size(); ++i) {
      const int64_t number = actor.first_act + static_cast<int64_t>(i);
      if (!port.Begins(number)) continue;
      const RecordedAct* writer = run_.Act(r.producer.actor, number);
      if (writer == nullptr) continue;
      if (writer->start > at) break;
      const int64_t token = r.initial_tokens + (port.SpanOf(number) + 1) * port.tokens - 1;
      const RecordedAct* reader = run_.LastReader(id, token);
      if (reader != nullptr && reader->end <= at) continue;
      return {writer, reader};
    }
    return oldest;
  }

  void AddHeld() {
    using Key = std::tuple<std::string, std::string, std::string>;  // register, writer, reader
    std::map<Key, HeldTensor> held;
    std::map<Key, int64_t> largest;
    for (size_t i = 0; i < registers_.size(); ++i) {
      const RecordedRegister& r = run_.registers[registers_[i]];
      const int64_t slots = InUseAt(fills_[i], result_.peak_at);
      if (slots == 0 || r.bytes == 0) continue;
      const Life life = OldestAt(registers_[i], result_.peak_at);
      const std::string writer = FunctionOf(life.writer), reader = FunctionOf(life.reader);
      const Key key = {LayerFamily(r.family), LayerFamily(writer), LayerFamily(reader)};
      HeldTensor& tensor = held[key];
      tensor.name = std::get<0>(key);
      tensor.lags = tensor.lags || r.initial_tokens > 0;
      ++tensor.registers;
      tensor.slots += slots;
      tensor.bytes += slots * r.bytes;
      if (slots * r.bytes <= largest[key]) continue;
      largest[key] = slots * r.bytes;
      tensor.writer = writer;
      tensor.last_reader = reader;
      if (life.writer != nullptr) tensor.written_at = life.writer->start - step_.begin;
      if (life.reader == nullptr) continue;
      tensor.reader_rank = run_.ranks[run_.actors[life.reader->actor].rank_index].rank;
      tensor.read_until = life.reader->end - step_.begin;
    }
    for (auto& [key, tensor] : held) result_.held.push_back(std::move(tensor));
    std::stable_sort(result_.held.begin(), result_.held.end(),
                     [](const HeldTensor& a, const HeldTensor& b) { return a.bytes > b.bytes; });
  }
  std::string FunctionOf(const RecordedAct* act) const {
    return act == nullptr ? "" : run_.actors[act->actor].function;
  }

  const RecordedRun& run_;
  const RecordedRank& rank_;
  const StepTime& step_;
  std::vector<RecordedRegisterId> registers_;  // in the memory of the rank, and in no state
  std::vector<RegisterFill> fills_;            // of them
  std::vector<MemoryChange> changes_;          // ascending; the first at the begin of the step
  RankMemory result_;
};

}  // namespace

MemoryUse FindMemoryUse(const RecordedRun& run, int64_t step) {
  const StepTime& time = run.TimeOf(step);
  MemoryUse use{step, time.begin, time.end, {}};
  for (const RecordedRankId rank : run.ranks.ids()) {
    if (run.ranks[rank].arena_bytes > 0)
      use.ranks.push_back(RankMemoryFinder(run, rank, time).Find());
  }
  return use;
}

}  // namespace weir::trace
