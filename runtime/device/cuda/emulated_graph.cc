#include "runtime/device/cuda/emulated_graph.h"

#include <algorithm>
#include <utility>

#include "runtime/base/random.h"

namespace weir::device {

EmulatedReplay::EmulatedReplay(const std::vector<EmulatedNode>& nodes, uint64_t seed, void* stream,
                               std::shared_ptr<EmulatedReplay> before)
    : nodes_(nodes),
      states_(nodes.size(), State::kWaits),
      seed_(seed),
      stream_(stream),
      before_(std::move(before)) {}

bool EmulatedReplay::IsReady(size_t node) const {
  if (states_[node] == State::kDone) return false;
  const std::vector<size_t>& follows = nodes_[node].follows;
  return std::all_of(follows.begin(), follows.end(),
                     [this](size_t other) { return states_[other] == State::kDone; });
}

void EmulatedReplay::Step() {
  before_.reset();
  std::vector<size_t> ready;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (IsReady(node)) ready.push_back(node);
  }
  const size_t drawn = ready[MixKey(seed_, num_draws_++) % ready.size()];
  EmulatedNode& node = nodes_[drawn];
  if (states_[drawn] == State::kWaits) {
    states_[drawn] = State::kBegun;
    if (node.begin) {
      node.begin();
      return;
    }
  }
  if (node.run) node.run();
  states_[drawn] = State::kDone;
  ++num_done_;
}

void EmulatedReplay::Drop() {
  for (EmulatedNode& node : nodes_) node.begin = node.run = nullptr;
}

}  // namespace weir::device
