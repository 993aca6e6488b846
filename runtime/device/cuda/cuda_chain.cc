#include "runtime/device/cuda/cuda_chain.h"

#include <algorithm>
#include <utility>

#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_memory.h"

namespace weir::device {
namespace {

// Rows without a graph after which a chain gives up, if they are more than those with one.
constexpr int64_t kWithoutGraphMax = 64;

}  // namespace

void CudaChain::Row::Clear() {
  operations.clear();
  bytes.clear();
  offsets.clear();
}

void CudaChain::Row::Add(const KernelLaunch& launch) {
  Operation& operation = operations.emplace_back();
  operation.launch = launch;
  operation.launch.parameters = {};
  operation.launch.offsets = {};
  operation.first_byte = bytes.size();
  operation.num_bytes = launch.parameters.size();
  bytes.insert(bytes.end(), launch.parameters.begin(), launch.parameters.end());
  operation.first_offset = offsets.size();
  operation.num_offsets = launch.offsets.size();
  offsets.insert(offsets.end(), launch.offsets.begin(), launch.offsets.end());
}

void CudaChain::Row::Add(std::span<const char> key) {
  KernelLaunch other;
  other.parameters = key;
  Add(other);
}

KernelLaunch CudaChain::Row::LaunchOf(const Operation& operation) const {
  KernelLaunch launch = operation.launch;
  launch.parameters = {bytes.data() + operation.first_byte, operation.num_bytes};
  launch.offsets = {offsets.data() + operation.first_offset, operation.num_offsets};
  return launch;
}

CudaChain::~CudaChain() {
  if (graphs_.empty()) return;
  place_.api->SetDevice(place_.gpu);
  place_.api->SynchronizeStream(place_.stream);
  for (const std::unique_ptr<Graph>& graph : graphs_) {
    place_.api->DestroyExec(graph->exec);
    place_.api->DestroyGraph(graph->graph);
  }
}

absl::Status CudaChain::Check(CudaResult result, const char* call) const {
  return result == CudaResult::kSuccess ? absl::OkStatus()
                                        : StatusOf(*place_.api, place_.gpu, result, call);
}

LaunchRecorder::Next CudaChain::BeforeKernel(const KernelLaunch& launch) {
  (pass_ == Pass::kRecord ? row_ : captured_).Add(launch);
  return pass_ == Pass::kRecord ? Next::kSkip : Next::kLaunch;
}

void CudaChain::AfterKernel() {
  const CudaResult found =
      place_.api->LastCaptured(place_.stream, &captured_.operations.back().node);
  if (captured_result_ == CudaResult::kSuccess) captured_result_ = found;
}

LaunchRecorder::Next CudaChain::BeforeOther(std::span<const char> key) {
  (pass_ == Pass::kRecord ? row_ : captured_).Add(key);
  return pass_ == Pass::kRecord ? Next::kSkip : Next::kLaunch;
}

bool CudaChain::IsSame(const Row& a, const Operation& of_a, const Row& b, const Operation& of_b) {
  return std::equal(of_a.launch.blocks, of_a.launch.blocks + 3, of_b.launch.blocks) &&
         std::equal(of_a.launch.threads, of_a.launch.threads + 3, of_b.launch.threads) &&
         of_a.launch.shared_bytes == of_b.launch.shared_bytes &&
         std::equal(a.bytes.begin() + of_a.first_byte,
                    a.bytes.begin() + of_a.first_byte + of_a.num_bytes,
                    b.bytes.begin() + of_b.first_byte);
}

bool CudaChain::Fits(const Row& kept, const Row& row, int* num_changed) {
  *num_changed = 0;
  if (kept.operations.size() != row.operations.size()) return false;
  for (size_t i = 0; i < row.operations.size(); ++i) {
    const Operation& old = kept.operations[i];
    const Operation& now = row.operations[i];
    if (old.launch.kernel != now.launch.kernel || old.num_bytes != now.num_bytes ||
        old.num_offsets != now.num_offsets)
      return false;
    if (IsSame(kept, old, row, now)) continue;
    if (now.launch.kernel == nullptr) return false;
    ++*num_changed;
  }
  return true;
}

CudaChain::Graph* CudaChain::Find(int* num_changed, int* num_kernels) {
  *num_kernels = static_cast<int>(
      std::count_if(row_.operations.begin(), row_.operations.end(),
                    [](const Operation& operation) { return operation.launch.kernel != nullptr; }));
  Graph* best = nullptr;
  for (const std::unique_ptr<Graph>& graph : graphs_) {
    int changed = 0;
    if (!Fits(graph->row, row_, &changed)) continue;
    if (best == nullptr || changed < *num_changed) {
      best = graph.get();
      *num_changed = changed;
    }
  }
  return best;
}

absl::Status CudaChain::Run(absl::FunctionRef<absl::Status()> put) {
  if (state_ == State::kFirst) {
    state_ = State::kKept;
    return put();
  }
  if (state_ == State::kPlain) return put();
  row_.Clear();
  pass_ = Pass::kRecord;
  // Work that does not ask the recorder finds no stream.
  *place_.seen = {nullptr, this};
  const absl::Status recorded = put();
  *place_.seen = place_.stream;
  WEIR_RETURN_IF_ERROR(recorded);
  if (row_.operations.size() < 2) {
    state_ = State::kPlain;
    return put();
  }
  int num_changed = 0, num_kernels = 0;
  Graph* graph = Find(&num_changed, &num_kernels);
  const bool has_room = num_graphs() < kGraphsMax;
  // Giving all kernels other parameters takes the host as long as launching them.
  if (has_room && (graph == nullptr || 2 * num_changed > num_kernels)) {
    const absl::Status captured = Capture(put);
    if (captured.ok()) {
      graph = graphs_.back().get();
    } else {
      place_.api->LastError();  // has been told
      if (chains_ == DeviceQueue::Chains::kMust) return captured;
      state_ = State::kPlain;
      graph = nullptr;
    }
  }
  if (graph != nullptr) return Launch(graph);
  ++num_without_graph_;
  if (num_without_graph_ > kWithoutGraphMax && num_without_graph_ > num_graph_launches_)
    state_ = State::kPlain;
  return put();
}

absl::Status CudaChain::Capture(absl::FunctionRef<absl::Status()> put) {
  const auto refused = [&](const absl::Status& cause) {
    return CausedBy(cause, "W0965", "a graph of an act's operations");
  };
  CudaApi& api = *place_.api;
  captured_.Clear();
  captured_result_ = CudaResult::kSuccess;
  pass_ = Pass::kCapture;
  if (absl::Status begun = Check(api.BeginCapture(place_.stream), "cudaStreamBeginCapture");
      !begun.ok())
    return refused(begun);
  *place_.seen = {place_.stream.handle, this};
  absl::Status status = put();
  *place_.seen = place_.stream;
  auto made = std::make_unique<Graph>();
  const CudaResult ended = api.EndCapture(place_.stream, &made->graph);
  if (status.ok()) status = Check(ended, "cudaStreamEndCapture");
  if (status.ok()) status = Check(captured_result_, "cudaStreamGetCaptureInfo");
  int num_changed = 0;
  if (status.ok() && !Fits(captured_, row_, &num_changed))
    status = absl::InternalError("the operations are others at each call");
  if (status.ok())
    status = Check(api.Instantiate(made->graph, &made->exec), "cudaGraphInstantiate");
  if (!status.ok()) {
    if (made->graph.handle != nullptr) api.DestroyGraph(made->graph);
    return refused(status);
  }
  std::swap(made->row, captured_);
  graphs_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::Status CudaChain::Launch(Graph* graph) {
  Row& kept = graph->row;
  for (size_t i = 0; i < row_.operations.size(); ++i) {
    Operation& old = kept.operations[i];
    const Operation& now = row_.operations[i];
    if (now.launch.kernel == nullptr || IsSame(kept, old, row_, now)) continue;
    WEIR_RETURN_IF_ERROR(Check(place_.api->SetKernel(graph->exec, old.node, row_.LaunchOf(now)),
                               "cudaGraphExecKernelNodeSetParams"));
    old.launch = now.launch;
    std::copy_n(row_.bytes.begin() + now.first_byte, now.num_bytes,
                kept.bytes.begin() + old.first_byte);
  }
  ++num_graph_launches_;
  return Check(place_.api->LaunchGraph(graph->exec, place_.stream), "cudaGraphLaunch");
}

}  // namespace weir::device
