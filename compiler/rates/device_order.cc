#include "compiler/rates/device_order.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "compiler/rates/waits.h"

namespace weir::compiler {
namespace {

constexpr int kCirclesMax = 20;
constexpr int64_t kBlocksMax = 32;  // of an actor's micro-batch

// The busy times of a device within a period, as pieces that do not touch.
class Ring {
 public:
  explicit Ring(int64_t period_ns = 1) : period_ns_(period_ns) {}

  // Returns how much later than `start` an interval of `length` fits, by the first conflict alone.
  // 0 if it fits at `start`.
  int64_t Conflict(int64_t start, int64_t length) const {
    if (busy_.empty()) return 0;
    const int64_t phase = start - FloorDiv(start, period_ns_) * period_ns_;
    auto next = busy_.upper_bound(phase);
    if (next != busy_.begin()) {
      const auto before = std::prev(next);
      if (before->second > phase) return AfterPiece(before) - phase;
    }
    if (next != busy_.end()) return next->first < phase + length ? AfterPiece(next) - phase : 0;
    return busy_.begin()->first + period_ns_ < phase + length
               ? AfterPiece(busy_.begin()) + period_ns_ - phase
               : 0;
  }

  void Add(int64_t start, int64_t length) {
    const int64_t phase = start - FloorDiv(start, period_ns_) * period_ns_;
    AddPiece(phase, std::min(phase + length, period_ns_));
    if (phase + length > period_ns_) AddPiece(0, std::min(phase + length - period_ns_, period_ns_));
  }

 private:
  // Returns the end of a piece. If the piece continues past the end of the period, so does the
  // returned end.
  int64_t AfterPiece(std::map<int64_t, int64_t>::const_iterator piece) const {
    if (piece->second < period_ns_ || busy_.begin()->first > 0 || busy_.size() == 1)
      return piece->second;
    return period_ns_ + busy_.begin()->second;
  }

  void AddPiece(int64_t begin, int64_t end) {
    auto it = busy_.upper_bound(begin);
    if (it != busy_.begin() && std::prev(it)->second >= begin) {
      --it;
      begin = it->first;
    }
    while (it != busy_.end() && it->first <= end) {
      end = std::max(end, it->second);
      it = busy_.erase(it);
    }
    busy_[begin] = end;
  }

  int64_t period_ns_;
  std::map<int64_t, int64_t> busy_;  // begin, end
};

// A block of an actor's chunks in one micro-batch, taken as if they followed each other at once. A
// block is one chunk, unless there are very many.
struct Block {
  ActorId actor;
  int64_t offset_ns = 0;  // from the actor's start
  int64_t length_ns = 0;
  int64_t start_ns = 0;
};

class Spread {
 public:
  Spread(const TimedGraph& graph, const Rhythm& rhythm, const Pace& pace,
         std::span<const Difference> differences, std::span<const int64_t> times)
      : graph_(graph),
        rhythm_(rhythm),
        pace_(pace),
        differences_(differences),
        times_(times.begin(), times.begin() + graph.actors.size()) {}

  std::vector<Difference> Run() {
    if (!Collect()) return {};
    Place();
    std::vector<Difference> orders;
    for (const std::vector<ActorId>& actors : actors_on_) OrderOf(actors, &orders);
    return Feasible(std::move(orders));
  }

 private:
  // Collects the devices that several actors share, among actors that act for every micro-batch.
  // Returns false if there are none.
  bool Collect() {
    int devices = 0;
    for (const TimedGraph::Actor& actor : graph_.actors)
      devices = std::max(devices, actor.device + 1);
    actors_on_.resize(devices);
    for (ActorId a : graph_.actors.ids()) {
      if (graph_.actors[a].device < 0 || rhythm_.micro_batches_of[a] != rhythm_.micro_batches)
        continue;
      actors_on_[graph_.actors[a].device].push_back(a);
    }
    bool any = false;
    for (std::vector<ActorId>& actors : actors_on_) {
      if (actors.size() < 2) actors.clear();
      any |= !actors.empty();
    }
    return any;
  }

  void Place() {
    const size_t num_actors = graph_.actors.size();
    std::vector<int> first_in(num_actors + 1, 0), in(differences_.size());
    for (const Difference& d : differences_) ++first_in[d.to + 1];
    std::partial_sum(first_in.begin(), first_in.end(), first_in.begin());
    std::vector<int> next(first_in.begin(), first_in.end() - 1);
    for (size_t d = 0; d < differences_.size(); ++d)
      in[next[differences_[d].to]++] = static_cast<int>(d);
    std::vector<Ring> rings(actors_on_.size(), Ring(pace_.micro_batch_ns));
    IdVector<ActorId, bool> shares(num_actors, false), placed(num_actors, false);
    for (const std::vector<ActorId>& actors : actors_on_) {
      for (ActorId actor : actors) shares[actor] = true;
    }
    std::vector<ActorId> order;
    order.reserve(num_actors);
    for (ActorId actor : graph_.actors.ids()) order.push_back(actor);
    std::stable_sort(order.begin(), order.end(),
                     [&](ActorId a, ActorId b) { return times_[a] < times_[b]; });
    for (ActorId actor : order) {
      int64_t& start = times_[actor];
      for (int i = first_in[actor.value()]; i < first_in[actor.value() + 1]; ++i) {
        const Difference& d = differences_[in[i]];
        const ActorId from(d.from);
        if (placed[from]) start = std::max(start, times_[from] + d.weight);
      }
      placed[actor] = true;
      if (!shares[actor]) continue;
      Ring& ring = rings[graph_.actors[actor].device];
      const std::vector<Block> blocks = BlocksOf(actor);
      start = FirstFit(ring, blocks, start);
      for (const Block& block : blocks) ring.Add(start + block.offset_ns, block.length_ns);
    }
  }

  std::vector<Block> BlocksOf(ActorId actor) const {
    const TimedGraph::Actor& a = graph_.actors[actor];
    const int64_t size = (a.chunks + kBlocksMax - 1) / kBlocksMax;
    std::vector<Block> blocks;
    for (int64_t chunk = 0; chunk < a.chunks; chunk += size) {
      blocks.push_back({actor, chunk * pace_.actors[actor].chunk_stride_ns,
                        std::min(size, a.chunks - chunk) * a.time_ns});
    }
    return blocks;
  }

  // Returns the first start at which all blocks are alone on the device, or `start` if there is
  // none.
  int64_t FirstFit(const Ring& ring, const std::vector<Block>& blocks, int64_t start) const {
    for (int64_t later = 0; later < pace_.micro_batch_ns;) {
      int64_t conflict = 0;
      for (size_t i = 0; i < blocks.size() && conflict == 0; ++i) {
        conflict = ring.Conflict(start + later + blocks[i].offset_ns, blocks[i].length_ns);
      }
      if (conflict == 0) return start + later;
      later += conflict;
    }
    return start;
  }

  // Finds the actor that follows each actor. With start = round * period + place, the follower has
  // the next place of the same round.
  void OrderOf(const std::vector<ActorId>& actors, std::vector<Difference>* orders) {
    std::vector<Block> blocks;
    const int64_t period = pace_.micro_batch_ns;
    for (ActorId actor : actors) {
      for (Block block : BlocksOf(actor)) {
        block.start_ns = times_[actor] + block.offset_ns;
        blocks.push_back(block);
      }
    }
    const auto place = [&](const Block& block) {
      return block.start_ns - FloorDiv(block.start_ns, period) * period;
    };
    std::sort(blocks.begin(), blocks.end(), [&](const Block& a, const Block& b) {
      return std::pair(place(a), a.actor) < std::pair(place(b), b.actor);
    });
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& before = blocks[i];
      const Block& after = blocks[i + 1 == blocks.size() ? 0 : i + 1];
      if (before.actor == after.actor) continue;
      int64_t round = FloorDiv(after.start_ns, period) - FloorDiv(before.start_ns, period);
      if (i + 1 == blocks.size()) --round;
      const int64_t apart = after.start_ns - before.start_ns - round * period;  // >= 0
      const int64_t fixed = round * period + before.offset_ns - after.offset_ns;
      orders->push_back({before.actor.value(), after.actor.value(), before.length_ns + fixed});
      as_placed_.push_back(std::min(before.length_ns, apart) + fixed);
    }
  }

  // Returns the orders that still ask for something.
  static std::vector<Difference> Given(std::vector<Difference> orders) {
    std::erase_if(orders, [](const Difference& order) { return order.weight == -kTimeMaxNs; });
    return orders;
  }

  // Acts that overlapped when placed push the other acts on, unless that closes a circle. A circle
  // without such an act comes from orders and slots that the placement did not consider, and then
  // the circle loses one of the orders found here.
  std::vector<Difference> Feasible(std::vector<Difference> found) const {
    const auto kept = [&](const Difference& d) {
      return times_[ActorId(d.to)] >= times_[ActorId(d.from)] + d.weight;
    };
    if (std::all_of(differences_.begin(), differences_.end(), kept) &&
        std::all_of(found.begin(), found.end(), kept))
      return Given(found);
    std::vector<Difference> all(differences_.begin(), differences_.end());
    all.insert(all.end(), found.begin(), found.end());
    DifferenceSystem system(static_cast<int>(graph_.actors.size()), std::move(all));
    for (int i = 0; i < kCirclesMax; ++i) {
      if (system.Solve()) return Given(found);
      bool pushed = false;
      for (int pass = 0; pass < 2 && !pushed; ++pass) {
        for (int arc : system.circle()) {
          const int t = arc - static_cast<int>(differences_.size());
          if (t < 0 || (pass == 0 && found[t].weight <= as_placed_[t])) continue;
          found[t].weight = pass == 0 ? as_placed_[t] : -kTimeMaxNs;
          system.SetWeight(arc, found[t].weight);
          pushed = true;
        }
      }
      if (!pushed) break;
    }
    return {};
  }

  const TimedGraph& graph_;
  const Rhythm& rhythm_;
  const Pace& pace_;
  std::span<const Difference> differences_;
  IdVector<ActorId, int64_t> times_;
  std::vector<std::vector<ActorId>> actors_on_;  // by device
  std::vector<int64_t> as_placed_;               // by order found: the weight that times_ keep
};

}  // namespace

std::vector<Difference> FindDeviceOrder(const TimedGraph& graph, const Rhythm& rhythm,
                                        const Pace& pace, std::span<const Difference> differences,
                                        std::span<const int64_t> times) {
  return Spread(graph, rhythm, pace, differences, times).Run();
}

}  // namespace weir::compiler
