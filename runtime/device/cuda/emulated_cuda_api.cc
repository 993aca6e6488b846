#include "runtime/device/cuda/emulated_cuda_api.h"

#include <algorithm>
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

void Poison(void* at, int64_t bytes) {
  if (bytes > 0) std::memset(WalledMemory::Inside(at), kPoison, bytes);
}

}  // namespace

class EmulatedCudaApi::Stream final : public EmulatedStream {
 public:
  void Put(std::function<void()> work) override { Put(nullptr, std::move(work)); }
  void Put(std::function<void()> begin, std::function<void()> run) {
    operations_.push_back({std::move(begin), std::move(run), nullptr, nullptr});
  }
  void PutAttempts(std::function<bool()> attempt) override {
    operations_.push_back({nullptr, nullptr, nullptr, std::move(attempt)});
  }
  void Await(std::shared_ptr<Record> record) {
    operations_.push_back({nullptr, nullptr, std::move(record), nullptr});
  }

  bool empty() const { return operations_.empty(); }
  // Returns the stream that this stream waits for; itself if it waits for none.
  Stream* holder() {
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
    const std::function<void()> run = std::move(next.run);
    operations_.pop_front();
    if (run) run();
    return true;
  }

 private:
  std::deque<Operation> operations_;
};

EmulatedCudaApi::EmulatedCudaApi(uint64_t seed) : seed_(seed) {}
EmulatedCudaApi::~EmulatedCudaApi() = default;

std::string EmulatedCudaApi::TextOf(CudaResult result) const {
  const std::string number = " (" + std::to_string(static_cast<int>(result)) + ")";
  switch (result) {
    case CudaResult::kSuccess: return "success" + number;
    case CudaResult::kOutOfMemory: return "out of memory" + number;
    case CudaResult::kNotReady: return "not ready" + number;
    case CudaResult::kInvalidValue: return "an invalid argument" + number;
    case CudaResult::kInvalidHandle: return "a stream or event that does not exist" + number;
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

CudaResult EmulatedCudaApi::Keep(absl::StatusOr<DeviceBlock> block, char** base) {
  if (!block.ok()) return CudaResult::kOutOfMemory;
  *base = block->base();
  Poison(*base, block->bytes());
  MutexLock lock(&mutex_);
  if (*base != nullptr) blocks_.emplace(*base, *std::move(block));
  return CudaResult::kSuccess;
}

CudaResult EmulatedCudaApi::Forget(char* base) {
  for (const std::unique_ptr<Stream>& stream : streams_) Finish(*stream);
  MutexLock lock(&mutex_);
  return base == nullptr || blocks_.erase(base) == 1 ? CudaResult::kSuccess
                                                     : CudaResult::kInvalidValue;
}

CudaResult EmulatedCudaApi::Malloc(char** base, int64_t bytes) {
  return Keep(memory_.Allocate(bytes, DeviceMemory::Reach::kDevice), base);
}

CudaResult EmulatedCudaApi::MallocHost(char** base, int64_t bytes) {
  return Keep(memory_.Allocate(bytes, DeviceMemory::Reach::kShared), base);
}

CudaResult EmulatedCudaApi::RegisterHost(char* base, int64_t bytes) {
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

}  // namespace weir::device
