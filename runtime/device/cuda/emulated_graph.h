// The graphs of the emulated CUDA runtime: a capture collects the operations of streams as the
// nodes of a graph, each with the nodes that it follows, and a replay does the nodes in an order
// that a seed decides among those that these edges allow. As in a stream, a node begins and ends in
// two steps, and others may work in between.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace weir::device {

struct EmulatedNode {
  std::function<void()> begin;  // empty: nothing shows before `run`
  std::function<void()> run;
  std::vector<size_t> follows;  // nodes that are done before this one begins
};

// Nodes do not move, since a CudaNode names one by its address.
struct EmulatedGraph {
  std::vector<std::unique_ptr<EmulatedNode>> nodes;
};

// A capture takes in the work of some streams until the first of them ends the capture.
struct EmulatedCapture {
  const void* first_stream = nullptr;
  std::thread::id thread;
  bool is_valid = true;
  EmulatedGraph graph;
};

// One launch of a graph.
class EmulatedReplay {
 public:
  // `before` is the last launch of the same graph, which ends first; null: there was none.
  EmulatedReplay(const std::vector<EmulatedNode>& nodes, uint64_t seed, void* stream,
                 std::shared_ptr<EmulatedReplay> before);

  bool done() const { return num_done_ == nodes_.size(); }
  bool may_begin() const { return before_ == nullptr || before_->done(); }
  // Returns the stream that has the launch.
  void* stream() const { return stream_; }
  const EmulatedReplay* before() const { return before_.get(); }
  // Begins or ends a node. Precondition: may_begin() and not done().
  void Step();
  // Forgets all work that is not done, as if its graph's memory had been taken for other things.
  void Drop();

 private:
  enum class State : uint8_t { kWaits, kBegun, kDone };
  bool IsReady(size_t node) const;

  std::vector<EmulatedNode> nodes_;
  std::vector<State> states_;
  size_t num_done_ = 0;
  const uint64_t seed_;
  uint64_t num_draws_ = 0;
  void* const stream_;
  std::shared_ptr<EmulatedReplay> before_;
};

// A graph that can be launched.
struct EmulatedExec {
  const EmulatedGraph* graph = nullptr;  // that it was made of
  std::vector<EmulatedNode> nodes;       // with the parameters of the next launch
  std::shared_ptr<EmulatedReplay> last;
};

}  // namespace weir::device
