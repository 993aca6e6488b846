#include "compiler/registers/place_memory.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "runtime/base/alignment.h"
#include "runtime/base/dtype.h"
#include "runtime/base/rate_codec.h"

namespace weir::compiler {
namespace {

// The number of the largest registers that may share a place. All other registers together are
// small.
constexpr size_t kSharersMax = 4096;

int64_t BytesOf(const proto::TensorSliceProto& slice) {
  int64_t bytes = SizeOf(DTypeFromName(slice.dtype()).value_or(DType::kF32));
  for (int64_t size : slice.shape()) bytes *= size;
  return bytes;
}

int64_t SpaceOf(const proto::RegisterSpec& r) { return r.stride() * r.slots(); }

// Proves, from tokens and credits alone, that one event on this rank comes before another under
// every schedule.
//
// A beat is a step, or a micro-batch. Every actor that acts in each beat has two events: the start
// of its first act of beat n, and the end of its last act of beat n. A register orders the events:
//   - A consumer starts after the token has been published, in the same beat, or in the next beat
//     if the consumer lags by a beat.
//   - A producer starts after the slot that the producer needs has been released. With one free
//     slot, the producer waits for the last act of the readers in the beat before.
//   - An actor starts a beat after the actor has ended the beat before.
//   - A peer writes after the events that its landing order names; a peer counts as an actor.
// The proof leaves out orders over later beats and other orders across ranks. An order that the
// proof finds holds, but the proof does not find every order that holds.
enum class Beat : uint8_t { kStep, kMicroBatch };

constexpr size_t kBlockWords = 8;  // a line of the cache, for 512 writers

class BeatOrder {
 public:
  // `registers`: those that may be asked about, without initial tokens, local or with a landing
  // order.
  BeatOrder(const proto::RankPlan& plan, const std::vector<LandingOrder>& landings, Beat beat,
            const std::vector<int>& registers);

  // Tokens of two of `registers`, by their index there, never exist at the same time: those of each
  // lie between those of the other.
  bool Apart(size_t a, size_t b) const;

 private:
  struct Tie {
    int to;     // event
    bool next;  // of the next beat
  };
  int64_t ActsPerBeat(const proto::ActorSpec& actor) const;   // 0: not in every beat alike
  int64_t TokensPerBeat(const proto::RegisterSpec& r) const;  // likewise
  void AddTies(const proto::RankPlan& plan, const std::vector<LandingOrder>& landings);
  void TieLanding(const LandingOrder& landing, int peer);
  void TieRegister(const proto::RegisterSpec& r);
  // Returns the events in an order that ties within a beat allow; empty if there is none.
  std::vector<int> EventsInOrder() const;
  void Close(const std::vector<int>& events, const std::vector<int>& registers);
  void CloseBlock(const std::vector<int>& events, const std::vector<int>& registers, size_t block);
  bool Has(const std::vector<uint64_t>& rows, size_t row, int column) const {
    return (rows[row * words_ + static_cast<size_t>(column) / 64] >> (column % 64)) & 1;
  }
  Beat beat_;
  int64_t micro_batches_;
  std::vector<char> in_beat_;                // by actor
  std::vector<int> producer_;                // by register; -1: none, or not in every beat alike
  std::vector<std::vector<int>> consumers_;  // by register
  std::vector<char> known_;                  // by register: all its ends are in_beat_
  std::vector<std::vector<Tie>> ties_;       // by event: start of actor a is 2a, its end 2a + 1
  std::vector<int> column_;  // by actor, then by landing order; -1: makes none of `registers`
  size_t words_ = 0;
  std::vector<int> asked_;  // by index in `registers`: column of the producer; -1: nothing is known
  // Likewise: writers whose start is known to come after all its readers, in the same beat or the
  // next.
  std::vector<uint64_t> all_same_, all_next_;
};

int StartOf(int actor) { return 2 * actor; }
int EndOf(int actor) { return 2 * actor + 1; }

bool IsPlain(const Span& span) { return span.tokens == 1 && span.phase == 0; }

BeatOrder::BeatOrder(const proto::RankPlan& plan, const std::vector<LandingOrder>& landings,
                     Beat beat, const std::vector<int>& registers)
    : beat_(beat), micro_batches_(std::max<int64_t>(1, plan.micro_batches())) {
  const size_t writers = static_cast<size_t>(plan.actor_size()) + landings.size();
  ties_.resize(2 * writers);
  column_.assign(writers, -1);
  AddTies(plan, landings);
  int columns = 0;
  for (int reg : registers) {
    if (producer_[reg] >= 0 && column_[producer_[reg]] < 0) column_[producer_[reg]] = columns++;
  }
  words_ = (static_cast<size_t>(columns) + 63) / 64;
  Close(EventsInOrder(), registers);
}

int64_t BeatOrder::ActsPerBeat(const proto::ActorSpec& actor) const {
  const Rate rate = FromProto(actor.rate());
  if (rate.every > 1) return 0;
  if (beat_ == Beat::kStep) return rate.acts_per_step;
  return rate.acts_per_step % micro_batches_ == 0 ? rate.acts_per_step / micro_batches_ : 0;
}

int64_t BeatOrder::TokensPerBeat(const proto::RegisterSpec& r) const {
  if (r.every() > 1) return 0;
  if (beat_ == Beat::kStep) return r.tokens_per_step();
  return r.tokens_per_step() % micro_batches_ == 0 ? r.tokens_per_step() / micro_batches_ : 0;
}

void BeatOrder::AddTies(const proto::RankPlan& plan, const std::vector<LandingOrder>& landings) {
  in_beat_.assign(static_cast<size_t>(plan.actor_size()), 0);
  producer_.assign(static_cast<size_t>(plan.registers_size()), -1);
  consumers_.resize(static_cast<size_t>(plan.registers_size()));
  known_.assign(static_cast<size_t>(plan.registers_size()), 1);
  for (int a = 0; a < plan.actor_size(); ++a) {
    const proto::ActorSpec& actor = plan.actor(a);
    in_beat_[a] = ActsPerBeat(actor) > 0;
    for (const proto::InputPort& port : actor.input()) {
      consumers_[port.register_id()].push_back(a);
      if (!in_beat_[a] || !IsPlain(FromProto(port.span()))) known_[port.register_id()] = 0;
    }
    for (const proto::OutputPort& port : actor.output()) {
      producer_[port.register_id()] = a;
      if (!in_beat_[a] || !IsPlain(FromProto(port.span()))) known_[port.register_id()] = 0;
    }
    if (!in_beat_[a]) continue;
    ties_[StartOf(a)].push_back({EndOf(a), false});
    ties_[EndOf(a)].push_back({StartOf(a), true});
  }
  for (size_t i = 0; i < landings.size(); ++i) {
    if (known_[landings[i].register_id.value()] && in_beat_[landings[i].actor.value()])
      TieLanding(landings[i], plan.actor_size() + static_cast<int>(i));
  }
  for (const proto::RegisterSpec& r : plan.registers()) {
    if (producer_[r.id()] < 0 || consumers_[r.id()].empty() || TokensPerBeat(r) == 0)
      known_[r.id()] = 0;
    if (known_[r.id()]) TieRegister(r);
  }
}

// A beat that is a step can begin a lag later only if the step has one micro-batch.
void BeatOrder::TieLanding(const LandingOrder& landing, int peer) {
  const int actor = landing.actor.value();
  producer_[landing.register_id.value()] = peer;
  ties_[StartOf(peer)].push_back({EndOf(peer), false});
  ties_[EndOf(peer)].push_back({StartOf(peer), true});
  if (beat_ == Beat::kMicroBatch || micro_batches_ == 1) {
    ties_[EndOf(actor)].push_back({StartOf(peer), landing.lag > 0});
  } else if (landing.lag == 0) {
    ties_[StartOf(actor)].push_back({StartOf(peer), false});
    ties_[EndOf(actor)].push_back({EndOf(peer), false});
  }
}

void BeatOrder::TieRegister(const proto::RegisterSpec& r) {
  const int64_t tokens = TokensPerBeat(r), lag = r.initial_tokens(), free = r.slots() - lag;
  const int producer = producer_[r.id()];
  for (int consumer : consumers_[r.id()]) {
    if (lag == 0 || lag == tokens) {
      const bool next = lag != 0;
      if (tokens == 1) {
        ties_[EndOf(producer)].push_back({StartOf(consumer), next});
      } else {
        ties_[StartOf(producer)].push_back({StartOf(consumer), next});
        ties_[EndOf(producer)].push_back({EndOf(consumer), next});
      }
    }
    // With one free slot, the first token of a beat goes into the slot of the last token of the
    // beat before. Without a free slot, the only token of a beat goes into the slot that the
    // readers hold from the start.
    if (free == 1) ties_[EndOf(consumer)].push_back({StartOf(producer), true});
    if (free == 0 && tokens == 1) ties_[EndOf(consumer)].push_back({StartOf(producer), false});
  }
}

std::vector<int> BeatOrder::EventsInOrder() const {
  const size_t events = ties_.size();
  std::vector<int> open(events, 0), order;
  order.reserve(events);
  for (const auto& list : ties_) {
    for (const Tie& tie : list) open[tie.to] += !tie.next;
  }
  for (size_t e = 0; e < events; ++e) {
    if (open[e] == 0) order.push_back(static_cast<int>(e));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const Tie& tie : ties_[order[i]]) {
      if (!tie.next && --open[tie.to] == 0) order.push_back(tie.to);
    }
  }
  if (order.size() != events) order.clear();
  return order;
}

// Ties within a beat have no cycle in a plan that can run; in one that cannot, nothing is said to
// be apart.
void BeatOrder::Close(const std::vector<int>& events, const std::vector<int>& registers) {
  for (const int reg : registers) asked_.push_back(known_[reg] ? column_[producer_[reg]] : -1);
  if (events.empty()) asked_.assign(registers.size(), -1);
  all_same_.assign(registers.size() * words_, ~uint64_t{0});
  all_next_ = all_same_;
  for (size_t block = 0; block < words_ && !events.empty(); block += kBlockWords)
    CloseBlock(events, registers, block);
}

// Finds what is later of the writers of the words from `block` on. The rows of all events for all
// writers would not stay in the cache of the processor, and only those of readers are needed.
void BeatOrder::CloseBlock(const std::vector<int>& events, const std::vector<int>& registers,
                           size_t block) {
  using Row = std::array<uint64_t, kBlockWords>;
  const auto join = [](Row* row, const Row& later) {
    for (size_t w = 0; w < kBlockWords; ++w) (*row)[w] |= later[w];
  };
  // By event: the writers whose start is known to come later, in the same beat or the next.
  std::vector<Row> same(ties_.size(), Row{}), next(ties_.size(), Row{});
  const auto join_start = [&](Row* row, int later) {
    const int column = later % 2 == 0 ? column_[later / 2] : -1;
    const size_t word = static_cast<size_t>(column) / 64 - block;
    if (column >= 0 && word < kBlockWords) (*row)[word] |= uint64_t{1} << (column % 64);
  };
  for (size_t i = events.size(); i-- > 0;) {
    for (const Tie& tie : ties_[events[i]]) {
      if (tie.next) continue;
      join(&same[events[i]], same[tie.to]);
      join_start(&same[events[i]], tie.to);
    }
  }
  for (size_t i = events.size(); i-- > 0;) {
    for (const Tie& tie : ties_[events[i]]) {
      join(&next[events[i]], tie.next ? same[tie.to] : next[tie.to]);
      if (tie.next) join_start(&next[events[i]], tie.to);
    }
  }
  const size_t words = std::min(kBlockWords, words_ - block);
  for (size_t i = 0; i < registers.size(); ++i) {
    const size_t at = i * words_ + block;
    for (const int reader : consumers_[registers[i]]) {
      const Row &same_row = same[EndOf(reader)], &next_row = next[EndOf(reader)];
      for (size_t w = 0; w < words; ++w) {
        all_same_[at + w] &= same_row[w];
        all_next_[at + w] &= same_row[w] | next_row[w];
      }
    }
  }
}

bool BeatOrder::Apart(size_t a, size_t b) const {
  const int column_a = asked_[a], column_b = asked_[b];
  if (column_a < 0 || column_b < 0) return false;
  return (Has(all_same_, a, column_b) && Has(all_next_, b, column_a)) ||
         (Has(all_next_, a, column_b) && Has(all_same_, b, column_a));
}

// Returns the registers that may share, the largest first. A register that lies in a state's home
// keeps its bytes from step to step, and is left out.
std::vector<int> Sharers(const proto::RankPlan& plan, const std::vector<StateHome>& homes,
                         const std::vector<LandingOrder>& landings) {
  std::set<RegisterId> kept;
  for (const StateHome& home : homes) kept.insert(home.register_id);
  std::vector<int> sharers;
  for (const proto::RegisterSpec& r : plan.registers()) {
    if (r.side() == proto::RegisterSpec::LOCAL && kept.count(RegisterId(r.id())) == 0 &&
        r.initial_tokens() == 0 && r.bytes() > 0)
      sharers.push_back(r.id());
  }
  for (const LandingOrder& landing : landings) sharers.push_back(landing.register_id.value());
  std::stable_sort(sharers.begin(), sharers.end(), [&](int a, int b) {
    return SpaceOf(plan.registers(a)) > SpaceOf(plan.registers(b));
  });
  if (sharers.size() > kSharersMax) sharers.resize(kSharersMax);
  return sharers;
}

// A Placed register takes the bytes [from, to) of the arena.
struct Placed {
  int64_t from = 0, to = 0;
  size_t sharer = 0;  // its index in the proofs
};

// Returns 0, 1 or 2, which stands for more: the proofs do not tell more free slots apart.
char FreeSlots(const proto::RegisterSpec& r) {
  return static_cast<char>(std::clamp<int64_t>(r.slots() - r.initial_tokens(), 0, 2));
}

// Returns the bytes of the scratch of all queues, one after another. Each has room for the largest
// program of the actors of the queue.
int64_t ScratchOfQueues(const proto::RankPlan& plan) {
  std::vector<int64_t> bytes(static_cast<size_t>(std::max(1, plan.num_queues())), 0);
  for (const proto::ActorSpec& actor : plan.actor()) {
    if (actor.program() < 0 || actor.program() >= plan.program_size()) continue;
    int64_t& most = bytes[actor.queue()];
    most = std::max(most, plan.program(actor.program()).scratch_bytes());
  }
  int64_t end = 0;
  for (const int64_t part : bytes) end = AlignUp(end) + part;
  return end;
}

}  // namespace

struct MemoryPlacer::Proofs {
  std::vector<char> free;     // by register: its FreeSlots
  std::vector<int> place_of;  // by register: its index in the orders; -1: nothing is proved
  std::vector<BeatOrder> orders;
};

MemoryPlacer::MemoryPlacer(std::vector<StateHome> homes, std::vector<LandingOrder> landings,
                           proto::RankPlan* plan)
    : homes_(std::move(homes)), landings_(std::move(landings)), plan_(*plan) {}

MemoryPlacer::~MemoryPlacer() = default;

void MemoryPlacer::Prove(const std::vector<int>& sharers) {
  std::vector<char> free;
  free.reserve(static_cast<size_t>(plan_.registers_size()));
  for (const proto::RegisterSpec& r : plan_.registers()) free.push_back(FreeSlots(r));
  if (proofs_ != nullptr && proofs_->free == free &&
      std::all_of(sharers.begin(), sharers.end(),
                  [&](int sharer) { return proofs_->place_of[sharer] >= 0; }))
    return;
  proofs_ = std::make_unique<Proofs>();
  proofs_->free = std::move(free);
  proofs_->place_of.assign(static_cast<size_t>(plan_.registers_size()), -1);
  for (size_t i = 0; i < sharers.size(); ++i) proofs_->place_of[sharers[i]] = static_cast<int>(i);
  proofs_->orders.emplace_back(plan_, landings_, Beat::kStep, sharers);
  if (plan_.micro_batches() > 1)
    proofs_->orders.emplace_back(plan_, landings_, Beat::kMicroBatch, sharers);
}

// Each at the lowest place that is free of all that may live beside it; returns the end of them
// all. The proof that two are apart costs more than a comparison of places, so only those are asked
// about that could stand in the way.
int64_t MemoryPlacer::PlaceSharers(const std::vector<int>& sharers, int64_t begin) {
  int64_t end = begin;
  std::vector<Placed> placed;  // ascending by `from`
  placed.reserve(sharers.size());
  for (const int sharer : sharers) {
    proto::RegisterSpec* r = plan_.mutable_registers(sharer);
    const auto own = static_cast<size_t>(proofs_->place_of[sharer]);
    const int64_t space = SpaceOf(*r);
    int64_t at = begin;
    for (const Placed& other : placed) {
      if (at + space <= other.from) break;
      if (other.to <= at) continue;
      const bool apart =
          std::any_of(proofs_->orders.begin(), proofs_->orders.end(),
                      [&](const BeatOrder& order) { return order.Apart(own, other.sharer); });
      if (!apart) at = other.to;
    }
    r->set_arena_offset(at);
    end = std::max(end, at + space);
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), at,
                         [](int64_t from, const Placed& other) { return from < other.from; });
    placed.insert(after, {at, at + space, own});
  }
  return end;
}

void MemoryPlacer::Place() {
  const int64_t scratch = ScratchOfQueues(plan_);
  plan_.set_scratch_bytes(scratch);
  for (proto::RegisterSpec& r : *plan_.mutable_registers()) {
    if (r.side() != proto::RegisterSpec::OUTBOUND) r.set_stride(AlignUp(r.bytes()));
  }
  const std::vector<int> sharers = Sharers(plan_, homes_, landings_);
  Prove(sharers);
  int64_t at = PlaceSharers(sharers, AlignUp(scratch));
  std::vector<char> placed(static_cast<size_t>(plan_.registers_size()), 0);
  for (int reg : sharers) placed[reg] = 1;
  for (proto::RegisterSpec& r : *plan_.mutable_registers()) {
    if (r.side() == proto::RegisterSpec::OUTBOUND || placed[r.id()]) continue;
    r.set_arena_offset(at);
    at += SpaceOf(r);
  }
  for (size_t i = 0; i < homes_.size(); ++i) {
    proto::StateSpec* state = plan_.mutable_state(static_cast<int>(i));
    if (homes_[i].register_id.has_value()) {
      state->set_arena_offset(plan_.registers(homes_[i].register_id.value()).arena_offset() +
                              homes_[i].offset);
      continue;
    }
    state->set_arena_offset(at);
    at += AlignUp(BytesOf(state->slice()));
  }
  plan_.set_arena_bytes(at);
}

void PlaceMemory(const std::vector<StateHome>& homes, const std::vector<LandingOrder>& landings,
                 proto::RankPlan* plan) {
  MemoryPlacer(homes, landings, plan).Place();
}

}  // namespace weir::compiler
