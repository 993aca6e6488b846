#include "runtime/device/cuda/emulated_cuda_api.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"

namespace weir::device {
namespace {

constexpr int kVersion = 13000;
constexpr int64_t kMemoryBytes = int64_t{64} << 30;  // as much as the wall has
constexpr int kPoison = 0xff;                        // a NaN in every format

// All emulations add their launches here. Nothing is ordered by this number.
std::atomic<int64_t> num_graph_launches{0};

void Poison(void* at, int64_t bytes) {
  if (bytes > 0) std::memset(WalledMemory::Inside(at), kPoison, bytes);
}

}  // namespace

class EmulatedCudaApi::Stream final : public EmulatedStream {
 public:
  void Put(std::function<void()> work) override { Put(nullptr, std::move(work)); }
  void Put(std::function<void()> begin, std::function<void()> run) {
    if (capture_ == nullptr) {
      operations_.push_back({std::move(begin), std::move(run), nullptr, nullptr, nullptr});
      return;
    }
    std::vector<std::unique_ptr<EmulatedNode>>& nodes = capture_->graph.nodes;
    nodes.push_back(
        std::make_unique<EmulatedNode>(EmulatedNode{std::move(begin), std::move(run), last_}));
    last_ = {nodes.size() - 1};
  }
  void PutAttempts(std::function<bool()> attempt) override {
    if (capture_ != nullptr) capture_->is_valid = false;  // no graph holds what waits for others
    operations_.push_back({nullptr, nullptr, nullptr, std::move(attempt), nullptr});
  }
  void Await(std::shared_ptr<Record> record) {
    operations_.push_back({nullptr, nullptr, std::move(record), nullptr, nullptr});
  }
  void PutReplay(std::shared_ptr<EmulatedReplay> replay) {
    operations_.push_back({nullptr, nullptr, nullptr, nullptr, std::move(replay)});
  }

  // Lets what is put here from now on become nodes of the capture, behind `after`.
  void Join(std::shared_ptr<EmulatedCapture> capture, const std::vector<size_t>& after) {
    capture_ = std::move(capture);
    for (const size_t node : after) {
      if (std::find(last_.begin(), last_.end(), node) == last_.end()) last_.push_back(node);
    }
  }
  void Leave() {
    capture_.reset();
    last_.clear();
  }
  const std::shared_ptr<EmulatedCapture>& capture() const { return capture_; }  // null: none
  const std::vector<size_t>& last() const { return last_; }  // nodes that the next one follows

  bool empty() const { return operations_.empty(); }
  // Returns the stream that this stream waits for; itself if it waits for none.
  Stream* holder() {
    if (const EmulatedReplay* const replay = operations_.front().replay.get();
        replay != nullptr && !replay->done() && !replay->may_begin())
      return static_cast<Stream*>(replay->before()->stream());
    const Record* const awaited = operations_.front().awaited.get();
    return awaited == nullptr || awaited->done ? this : awaited->stream;
  }
  // Begins or ends the next operation, or tries it; returns false if it is to be tried again.
  // Precondition: there is one, and the stream is its own holder.
  bool Step() {
    Operation& next = operations_.front();
    if (next.begin) {
      std::exchange(next.begin, nullptr)();
      return true;
    }
    if (next.attempt && !next.attempt()) return false;
    if (next.replay != nullptr && !next.replay->done()) {
      next.replay->Step();
      if (!next.replay->done()) return true;
    }
    const std::function<void()> run = std::move(next.run);
    operations_.pop_front();
    if (run) run();
    return true;
  }

 private:
  std::deque<Operation> operations_;
  std::shared_ptr<EmulatedCapture> capture_;
  std::vector<size_t> last_;
};

EmulatedCudaApi::EmulatedCudaApi(uint64_t seed) : seed_(seed) {}
EmulatedCudaApi::~EmulatedCudaApi() = default;

int64_t EmulatedCudaApi::NumGraphLaunches() {
  return num_graph_launches.load(std::memory_order_relaxed);
}

std::string EmulatedCudaApi::TextOf(CudaResult result) const {
  const std::string number = " (" + std::to_string(static_cast<int>(result)) + ")";
  switch (result) {
    case CudaResult::kSuccess: return "success" + number;
    case CudaResult::kOutOfMemory: return "out of memory" + number;
    case CudaResult::kNotReady: return "not ready" + number;
    case CudaResult::kInvalidValue: return "an invalid argument" + number;
    case CudaResult::kInvalidHandle: return "a stream or event that does not exist" + number;
    case CudaResult::kStreamCaptureUnsupported:
      return "a call that a capture does not allow" + number;
    case CudaResult::kStreamCaptureInvalidated: return "a capture that has failed" + number;
    case CudaResult::kStreamCaptureUnjoined: return "a capture with unjoined work" + number;
    case CudaResult::kStreamCaptureIsolation:
      return "a wait for work outside of a capture" + number;
    default: return "an error" + number;
  }
}

CudaResult EmulatedCudaApi::GetVersions(int* driver, int* runtime) {
  *driver = *runtime = kVersion;
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::CountDevices(int* count) {
  *count = 1;
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::GetFacts(int device, GpuFacts* facts) {
  if (device != 0) return CudaResult::kInvalidValue;
  *facts = {"emulated GPU", kMemoryBytes, 9, 0, 1};
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::SetDevice(int device) {
  return device == 0 ? CudaResult::kSuccess : CudaResult::kInvalidValue;
}

CudaResult EmulatedCudaApi::GetMemory(int64_t* free_bytes, int64_t* all) {
  MutexLock lock(&mutex_);
  *free_bytes = *all = kMemoryBytes;
  for (const auto& [base, block] : blocks_) *free_bytes -= block.bytes();
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::CheckNoCapture() {
  for (const std::unique_ptr<Stream>& stream : streams_) {
    EmulatedCapture* const capture = stream->capture().get();
    if (capture == nullptr || capture->thread != std::this_thread::get_id()) continue;
    capture->is_valid = false;
    return CudaResult::kStreamCaptureUnsupported;
  }
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::Keep(absl::StatusOr<DeviceBlock> block, char** base) {
  if (!block.ok()) return CudaResult::kOutOfMemory;
  *base = block->base();
  Poison(*base, block->bytes());
  MutexLock lock(&mutex_);
  if (*base != nullptr) blocks_.emplace(*base, *std::move(block));
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::Forget(char* base) {
  if (const CudaResult free = CheckNoCapture(); free != CudaResult::kSuccess) return free;
  for (const std::unique_ptr<Stream>& stream : streams_) Finish(*stream);
  MutexLock lock(&mutex_);
  return base == nullptr || blocks_.erase(base) == 1 ? CudaResult::kSuccess
                                                     : CudaResult::kInvalidValue;
}

CudaResult EmulatedCudaApi::Malloc(char** base, int64_t bytes) {
  if (const CudaResult free = CheckNoCapture(); free != CudaResult::kSuccess) return free;
  return Keep(memory_.Allocate(bytes, DeviceMemory::Reach::kDevice), base);
}

CudaResult EmulatedCudaApi::MallocHost(char** base, int64_t bytes) {
  if (const CudaResult free = CheckNoCapture(); free != CudaResult::kSuccess) return free;
  return Keep(memory_.Allocate(bytes, DeviceMemory::Reach::kShared), base);
}

CudaResult EmulatedCudaApi::RegisterHost(char* base, int64_t bytes) {
  if (const CudaResult free = CheckNoCapture(); free != CudaResult::kSuccess) return free;
  if (IsReachable(base) || IsReachable(base + bytes - 1))
    return CudaResult::kHostMemoryAlreadyRegistered;
  MutexLock lock(&mutex_);
  registered_[base] = bytes;
  return CudaResult::kSuccess;
}

bool EmulatedCudaApi::IsReachable(const char* host) {
  MutexLock lock(&mutex_);
  for (const auto& [base, bytes] : registered_) {
    if (host >= base && host < base + bytes) return true;
  }
  for (const auto& [base, block] : blocks_) {
    if (host >= base && host < base + block.bytes()) return true;
  }
  return false;
}

CudaResult EmulatedCudaApi::UnregisterHost(char* base) {
  if (const CudaResult free = CheckNoCapture(); free != CudaResult::kSuccess) return free;
  MutexLock lock(&mutex_);
  return registered_.erase(base) == 1 ? CudaResult::kSuccess : CudaResult::kInvalidValue;
}

CudaResult EmulatedCudaApi::CreateStream(Priority, CudaStream* stream) {
  streams_.push_back(std::make_unique<Stream>());
  stream->handle = static_cast<EmulatedStream*>(streams_.back().get());
  return CudaResult::kSuccess;
}

EmulatedCudaApi::Stream* EmulatedCudaApi::Find(CudaStream stream) const {
  for (const std::unique_ptr<Stream>& known : streams_) {
    if (static_cast<EmulatedStream*>(known.get()) == stream.handle) return known.get();
  }
  return nullptr;
}

EmulatedCudaApi::Event* EmulatedCudaApi::Find(CudaEvent event) const {
  const auto known = events_.find(event.handle);
  return known == events_.end() ? nullptr : known->second.get();
}

void EmulatedCudaApi::Finish(Stream& stream) {
  while (!stream.empty()) {
    Stream* next = &stream;
    while (next->holder() != next) next = next->holder();
    if (!next->Step()) std::this_thread::yield();
  }
}

CudaResult EmulatedCudaApi::DestroyStream(CudaStream stream) {
  Stream* const known = Find(stream);
  if (known == nullptr) return CudaResult::kInvalidHandle;
  Finish(*known);
  streams_.erase(std::find_if(streams_.begin(), streams_.end(),
                              [known](const auto& other) { return other.get() == known; }));
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::SynchronizeStream(CudaStream stream) {
  Stream* const known = Find(stream);
  if (known == nullptr) return CudaResult::kInvalidHandle;
  if (known->capture() != nullptr) {
    known->capture()->is_valid = false;
    return CudaResult::kStreamCaptureUnsupported;
  }
  Finish(*known);
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::CreateEvent(CudaEvent* event) {
  auto made = std::make_unique<Event>();
  event->handle = made.get();
  events_.emplace(made.get(), std::move(made));
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::DestroyEvent(CudaEvent event) {
  return events_.erase(event.handle) == 1 ? CudaResult::kSuccess : CudaResult::kInvalidHandle;
}

CudaResult EmulatedCudaApi::RecordEvent(CudaEvent event, CudaStream stream) {
  Event* const known = Find(event);
  Stream* const in = Find(stream);
  if (known == nullptr || in == nullptr) return CudaResult::kInvalidHandle;
  known->captured = in->capture();
  known->behind = in->last();
  if (known->captured != nullptr) return CudaResult::kSuccess;
  const auto record = std::make_shared<Record>(Record{in});
  known->latest = record;
  in->Put([record] {
    record->at_ns = MonotonicClock().NowNs();
    record->done = true;
  });
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::QueryEvent(CudaEvent event) {
  const Event* const known = Find(event);
  if (known == nullptr) return CudaResult::kInvalidHandle;
  if (known->captured != nullptr) return CudaResult::kStreamCaptureUnsupported;
  const uint64_t draw = MixKey(seed_, num_draws_++);
  if (draw % 2 == 0 && !streams_.empty()) {
    Stream& drawn = *streams_[(draw >> 1) % streams_.size()];
    if (!drawn.empty() && drawn.holder() == &drawn) drawn.Step();
  }
  return known->latest == nullptr || known->latest->done ? CudaResult::kSuccess
                                                         : CudaResult::kNotReady;
}

CudaResult EmulatedCudaApi::WaitEvent(CudaStream stream, CudaEvent event) {
  const Event* const known = Find(event);
  Stream* const waiting = Find(stream);
  if (known == nullptr || waiting == nullptr) return CudaResult::kInvalidHandle;
  const std::shared_ptr<EmulatedCapture>& capture = waiting->capture();
  if (known->captured != nullptr) {
    const bool is_open = std::any_of(streams_.begin(), streams_.end(), [known](const auto& other) {
      return other->capture() == known->captured;
    });
    if (!is_open || (capture != nullptr && capture != known->captured))
      return CudaResult::kStreamCaptureIsolation;
    waiting->Join(known->captured, known->behind);
    return CudaResult::kSuccess;
  }
  if (capture != nullptr && known->latest != nullptr) {
    capture->is_valid = false;
    return CudaResult::kStreamCaptureIsolation;
  }
  if (known->latest != nullptr && !known->latest->done) waiting->Await(known->latest);
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::ElapsedMs(CudaEvent from, CudaEvent to, float* ms) {
  const Event* const first = Find(from);
  const Event* const last = Find(to);
  if (first == nullptr || last == nullptr || first->latest == nullptr || last->latest == nullptr)
    return CudaResult::kInvalidHandle;
  if (!first->latest->done || !last->latest->done) return CudaResult::kNotReady;
  *ms = static_cast<float>(static_cast<double>(last->latest->at_ns - first->latest->at_ns) * 1e-6);
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::Copy(void* to, const void* from, int64_t bytes, CudaStream stream) {
  Stream* const in = Find(stream);
  if (in == nullptr) return CudaResult::kInvalidHandle;
  if (bytes == 0) return CudaResult::kSuccess;
  const auto copy = [to, from, bytes] {
    std::memmove(WalledMemory::Inside(to), WalledMemory::Inside(from), bytes);
  };
  const char* const first = static_cast<const char*>(from);
  const bool overlaps =
      static_cast<char*>(to) < first + bytes && first < static_cast<char*>(to) + bytes;
  if (overlaps) return CudaResult::kInvalidValue;
  in->Put([to, bytes] { Poison(to, bytes); }, copy);
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::Zero(void* at, int64_t bytes, CudaStream stream) {
  Stream* const in = Find(stream);
  if (in == nullptr) return CudaResult::kInvalidHandle;
  if (bytes == 0) return CudaResult::kSuccess;
  in->Put([at, bytes] { Poison(at, bytes); },
          [at, bytes] { std::memset(WalledMemory::Inside(at), 0, bytes); });
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::BeginCapture(CudaStream stream) {
  Stream* const first = Find(stream);
  if (first == nullptr) return CudaResult::kInvalidHandle;
  if (first->capture() != nullptr) return CudaResult::kStreamCaptureUnsupported;
  auto capture = std::make_shared<EmulatedCapture>();
  capture->first_stream = first;
  capture->thread = std::this_thread::get_id();
  first->Join(std::move(capture), {});
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::LastCaptured(CudaStream stream, CudaNode* node) {
  const Stream* const known = Find(stream);
  if (known == nullptr) return CudaResult::kInvalidHandle;
  if (known->capture() == nullptr || !known->capture()->is_valid || known->last().size() != 1)
    return CudaResult::kStreamCaptureInvalidated;
  node->handle = known->capture()->graph.nodes[known->last()[0]].get();
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::EndCapture(CudaStream stream, CudaGraph* graph) {
  Stream* const first = Find(stream);
  if (first == nullptr) return CudaResult::kInvalidHandle;
  const std::shared_ptr<EmulatedCapture> capture = first->capture();
  if (capture == nullptr || capture->first_stream != first ||
      capture->thread != std::this_thread::get_id())
    return CudaResult::kStreamCaptureUnsupported;
  // Every node comes before the end of the first stream.
  std::vector<bool> is_joined(capture->graph.nodes.size(), false);
  std::vector<size_t> reached = first->last();
  while (!reached.empty()) {
    const size_t node = reached.back();
    reached.pop_back();
    if (is_joined[node]) continue;
    is_joined[node] = true;
    for (const size_t other : capture->graph.nodes[node]->follows) reached.push_back(other);
  }
  for (const std::unique_ptr<Stream>& other : streams_) {
    if (other->capture() == capture) other->Leave();
  }
  graph->handle = nullptr;
  if (!capture->is_valid) return CudaResult::kStreamCaptureInvalidated;
  if (std::find(is_joined.begin(), is_joined.end(), false) != is_joined.end())
    return CudaResult::kStreamCaptureUnjoined;
  auto made = std::make_unique<EmulatedGraph>(std::move(capture->graph));
  graph->handle = made.get();
  graphs_.emplace(made.get(), std::move(made));
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::DestroyGraph(CudaGraph graph) {
  return graphs_.erase(graph.handle) == 1 ? CudaResult::kSuccess : CudaResult::kInvalidHandle;
}

CudaResult EmulatedCudaApi::Instantiate(CudaGraph graph, CudaGraphExec* exec) {
  const auto known = graphs_.find(graph.handle);
  if (known == graphs_.end()) return CudaResult::kInvalidHandle;
  if (const CudaResult free = CheckNoCapture(); free != CudaResult::kSuccess) return free;
  auto made = std::make_unique<EmulatedExec>();
  made->graph = known->second.get();
  for (const std::unique_ptr<EmulatedNode>& node : known->second->nodes)
    made->nodes.push_back(*node);
  exec->handle = made.get();
  execs_.emplace(made.get(), std::move(made));
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::DestroyExec(CudaGraphExec exec) {
  const auto known = execs_.find(exec.handle);
  if (known == execs_.end()) return CudaResult::kInvalidHandle;
  const std::shared_ptr<EmulatedReplay> last = known->second->last;
  const bool runs = last != nullptr && !last->done();
  if (runs) last->Drop();
  execs_.erase(known);
  return runs ? CudaResult::kInvalidValue : CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::SetKernel(CudaGraphExec exec, CudaNode node,
                                      const KernelLaunch& launch) {
  const auto known = execs_.find(exec.handle);
  if (known == execs_.end()) return CudaResult::kInvalidHandle;
  const auto graph = graphs_.find(const_cast<EmulatedGraph*>(known->second->graph));
  if (graph == graphs_.end()) return CudaResult::kInvalidHandle;
  const std::vector<std::unique_ptr<EmulatedNode>>& nodes = graph->second->nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].get() != node.handle) continue;
    if (nodes[i]->begin || !launch.emulated) return CudaResult::kInvalidValue;  // no kernel
    known->second->nodes[i].run = launch.emulated;
    return CudaResult::kSuccess;
  }
  return CudaResult::kInvalidValue;
}

CudaResult EmulatedCudaApi::LaunchGraph(CudaGraphExec exec, CudaStream stream) {
  const auto known = execs_.find(exec.handle);
  Stream* const in = Find(stream);
  if (known == execs_.end() || in == nullptr) return CudaResult::kInvalidHandle;
  if (in->capture() != nullptr) return CudaResult::kStreamCaptureUnsupported;  // not emulated
  EmulatedExec& launched = *known->second;
  launched.last = std::make_shared<EmulatedReplay>(launched.nodes, MixKey(seed_, num_draws_++), in,
                                                   launched.last);
  in->PutReplay(launched.last);
  num_graph_launches.fetch_add(1, std::memory_order_relaxed);
  return CudaResult::kSuccess;
}

}  // namespace weir::device
