// A row of operations of a stream of CUDA that is kept as graphs. An act puts the same row there
// again and again, while addresses of slots, the number of the step and the like change. Each call
// of Run
//
//   1. records the row: all parameters of all kernels, and for other work (products of libraries,
//      copies) bytes that say what the work depends on;
//   2. looks for a graph that has the same kernels in the same order, and other work with the same
//      bytes;
//   3. gives the graph the parameters of kernels that are others than those of its last launch, and
//      launches the graph. If there is none, the stream captures the row as a new graph.
//
// So nothing that a graph holds can be stale, whatever a kernel's parameters depend on. The first
// row is put into the stream as it is, because kernels and libraries prepare themselves then. A row
// that cannot be captured, and one that keeps needing more graphs than there may be, is put into
// the stream as it is from then on.
//
// Thread rule: as DeviceChain.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/device_queue.h"

namespace weir::device {

class CudaChain final : public DeviceChain, private LaunchRecorder {
 public:
  // Where the chain works. All of it outlives the chain.
  struct Place {
    CudaApi* api = nullptr;
    int gpu = 0;
    CudaStream stream;
    CudaStream* seen = nullptr;  // what code that puts work into the stream is given
  };
  static constexpr int kGraphsMax = 8;  // of a chain

  CudaChain(const Place& place, DeviceQueue::Chains chains) : place_(place), chains_(chains) {}
  // Waits for the stream if the chain has launched a graph.
  ~CudaChain() override;

  absl::Status Run(absl::FunctionRef<absl::Status()> put) override;

  int64_t num_graph_launches() const { return num_graph_launches_; }
  int num_graphs() const { return static_cast<int>(graphs_.size()); }

 private:
  // One operation of a row.
  struct Operation {
    KernelLaunch launch;  // without its parameters; a null kernel: other work
    size_t first_byte = 0,
           num_bytes = 0;  // of the parameters, or of what the other work depends on
    size_t first_offset = 0, num_offsets = 0;
    CudaNode node;  // in a captured row, of a kernel
  };
  struct Row {
    std::vector<Operation> operations;
    std::vector<char> bytes;
    std::vector<size_t> offsets;

    void Clear();
    void Add(const KernelLaunch& launch);
    void Add(std::span<const char> key);
    // Returns the launch with its parameters, which lie in the row.
    KernelLaunch LaunchOf(const Operation& operation) const;
  };
  struct Graph {
    Row row;  // as the next launch would do it
    CudaGraph graph;
    CudaGraphExec exec;
  };

  Next BeforeKernel(const KernelLaunch& launch) override;
  void AfterKernel() override;
  Next BeforeOther(std::span<const char> key) override;

  // Returns whether a graph of `kept` can do `row`, and how many of its kernels need other
  // parameters.
  static bool Fits(const Row& kept, const Row& row, int* num_changed);
  static bool IsSame(const Row& a, const Operation& of_a, const Row& b, const Operation& of_b);
  // Returns null if there is no graph for the row and no room for one.
  Graph* Find(int* num_changed, int* num_kernels);
  // Captures a row that is like row_. An error says why there is no graph of it.
  absl::Status Capture(absl::FunctionRef<absl::Status()> put);
  absl::Status Launch(Graph* graph);
  absl::Status Check(CudaResult result, const char* call) const;

  const Place place_;
  const DeviceQueue::Chains chains_;
  enum class State : uint8_t { kFirst, kKept, kPlain } state_ = State::kFirst;
  enum class Pass : uint8_t { kRecord, kCapture } pass_ = Pass::kRecord;
  Row row_;                                            // of this call of Run
  Row captured_;                                       // while a stream captures
  CudaResult captured_result_ = CudaResult::kSuccess;  // of looking for nodes
  std::vector<std::unique_ptr<Graph>> graphs_;
  int64_t num_graph_launches_ = 0;
  int64_t num_without_graph_ = 0;  // rows for which there was no room
};

}  // namespace weir::device
