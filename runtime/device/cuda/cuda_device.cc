#include "runtime/device/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/tick_clock.h"
#include "runtime/device/cuda/cuda_chain.h"

namespace weir::device {
namespace {

constexpr QueueId kTransfers{1};
constexpr int64_t kPage = 4096;

}  // namespace

class CudaDevice::Queue final : public CudaQueue {
 public:
  Queue(CudaDevice* device, QueueId id)
      : device_(*device), id_(id), works_(static_cast<size_t>(device->depth())) {}
  ~Queue() override {
    for (const Work& work : works_) {
      if (work.end.handle != nullptr) device_.api_->DestroyEvent(work.end);
    }
    if (stream_.handle != nullptr) device_.api_->DestroyStream(stream_);
  }

  // Makes the stream and the events.
  void Open(int num_queues) {
    CudaApi& api = *device_.api_;
    const bool is_first = id_ == kTransfers || id_ == device_.options_.collective_queue;
    const auto priority = is_first ? CudaApi::Priority::kHigh : CudaApi::Priority::kNormal;
    device_.Succeeds(api.CreateStream(priority, &stream_), "cudaStreamCreate");
    seen_ = stream_;
    for (Work& work : works_) {
      device_.Succeeds(api.CreateEvent(&work.end), "cudaEventCreate");
      work.awaited.assign(num_queues, 0);
    }
    awaited_.assign(num_queues, 0);
  }

  CudaStream stream() override { return seen_; }
  void Copy(char* to, const char* from, int64_t bytes) override {
    const struct {
      char* to;
      const char* from;
      int64_t bytes;
    } copy{to, from, bytes};
    if (bytes > 0 && !Records(seen_, copy))
      device_.Succeeds(device_.api_->Copy(to, from, bytes, stream_), "cudaMemcpyAsync");
  }
  void CopyOut(void* to, const char* from, int64_t bytes) override {
    if (bytes == 0) return;
    absl::StatusOr<DeviceBlock> pinned = TakePinned(bytes);
    if (!pinned.ok()) return device_.Fail(pinned.status());
    Copy(pinned->base(), from, bytes);
    held_.push_back({num_launched_ + 1, *std::move(pinned), to, bytes});
  }
  absl::Status Fill(char* at, int64_t bytes,
                    absl::FunctionRef<absl::Status(char* host)> fill) override {
    WEIR_ASSIGN_OR_RETURN(DeviceBlock pinned, TakePinned(bytes));
    const absl::Status filled = fill(pinned.base());
    if (!filled.ok()) {
      idle_.push_back(std::move(pinned));
      return filled;
    }
    Copy(at, pinned.base(), bytes);
    held_.push_back({num_launched_ + 1, std::move(pinned), nullptr, 0});
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    if (device_.fault().ok()) {
      device_.Succeeds(device_.api_->SynchronizeStream(stream_), "cudaStreamSynchronize");
      if (device_.fault().ok()) Release(num_launched_ + 1);
    }
    return device_.fault();
  }
  std::unique_ptr<DeviceChain> MakeChain(Chains chains) override {
    return std::make_unique<CudaChain>(
        CudaChain::Place{device_.api_.get(), device_.options_.gpu, stream_, &seen_}, chains);
  }

 private:
  friend class CudaDevice;
  // A Held is pinned memory that an operation of a work uses.
  struct Held {
    int64_t number = 0;  // of the work
    DeviceBlock pinned;
    void* to = nullptr;  // what was copied out comes here; null: nothing was
    int64_t bytes = 0;
  };

  Work& WorkOf(int64_t number) { return works_[static_cast<size_t>(number - 1) % works_.size()]; }
  // Returns whether the place of the work has not been given to a later work.
  bool Has(int64_t number) const {
    return number > 0 && number > num_launched_ - static_cast<int64_t>(works_.size());
  }

  // Takes the smallest idle block that suffices.
  absl::StatusOr<DeviceBlock> TakePinned(int64_t bytes) {
    auto best = idle_.end();
    for (auto block = idle_.begin(); block != idle_.end(); ++block) {
      if (block->bytes() >= bytes && (best == idle_.end() || block->bytes() < best->bytes()))
        best = block;
    }
    if (best == idle_.end()) {
      const int64_t pages = std::max<int64_t>(1, (bytes + kPage - 1) / kPage);
      return device_.memory_->Allocate(pages * kPage, DeviceMemory::Reach::kShared);
    }
    DeviceBlock taken = std::move(*best);
    idle_.erase(best);
    return taken;
  }
  // Ends the use of the pinned memory of works up to `number`, which are done.
  void Release(int64_t number) {
    while (!held_.empty() && held_.front().number <= number) {
      Held& held = held_.front();
      if (held.to != nullptr) std::memcpy(held.to, held.pinned.base(), held.bytes);
      idle_.push_back(std::move(held.pinned));
      held_.pop_front();
    }
  }

  CudaDevice& device_;
  const QueueId id_;
  CudaStream stream_;
  CudaStream seen_;          // the stream, and the recorder of the chain that runs now
  std::vector<Work> works_;  // the last ones, by number
  int64_t num_launched_ = 0;
  int64_t num_done_ = 0;          // as far as the host knows
  int64_t num_timed_ = 0;         // works whose times are known
  int64_t last_end_ = 0;          // of these
  std::vector<int64_t> awaited_;  // of the next work
  int64_t not_before_ = 0;        // the end of what the next work awaited and the host knew of
  std::deque<Held> held_;         // by number
  std::vector<DeviceBlock> idle_;
};

CudaDevice::CudaDevice(std::unique_ptr<CudaApi> api, const CudaDeviceOptions& options)
    : api_(std::move(api)),
      options_(options),
      made_ticks_(TickClock::Now()),
      made_ns_(MonotonicClock().NowNs()) {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(std::unique_ptr<CudaApi> api,
                                                               const CudaDeviceOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(api), options));
  WEIR_RETURN_IF_ERROR(device->Open());
  return device;
}

absl::Status CudaDevice::Open() {
  WEIR_ASSIGN_OR_RETURN(memory_, CudaMemory::Create(api_.get(), options_.gpu));
  for (int queue = 0; queue < options_.num_queues; ++queue) {
    queues_.push_back(std::make_unique<Queue>(this, QueueId(queue)));
    queues_.back()->Open(options_.num_queues);
  }
  Succeeds(api_->CreateStream(CudaApi::Priority::kHigh, &anchor_stream_), "cudaStreamCreate");
  for (CudaEvent* event : {&anchor_.event, &next_anchor_.event})
    Succeeds(api_->CreateEvent(event), "cudaEventCreate");
  RecordAnchor(&anchor_);
  Succeeds(api_->SynchronizeStream(anchor_stream_), "cudaStreamSynchronize");
  return fault_;
}

CudaDevice::~CudaDevice() {
  api_->SetDevice(options_.gpu);
  for (const CudaEvent event : {anchor_.event, next_anchor_.event}) {
    if (event.handle != nullptr) api_->DestroyEvent(event);
  }
  if (anchor_stream_.handle != nullptr) api_->DestroyStream(anchor_stream_);
}

void CudaDevice::Fail(const absl::Status& status) {
  if (fault_.ok()) fault_ = status;
}

bool CudaDevice::Succeeds(CudaResult result, const char* call) {
  if (result == CudaResult::kSuccess) return true;
  if (!fault_.ok()) return false;
  Problem problem = *ProblemOf(StatusOf(*api_, options_.gpu, result, call));
  std::vector<std::string> under_way;
  for (const std::unique_ptr<Queue>& queue : queues_) {
    if (queue->num_launched_ == queue->num_done_) continue;
    under_way.push_back(absl::StrCat("works ", queue->num_done_ + 1, " to ", queue->num_launched_,
                                     " of queue ", queue->id_));
  }
  if (!under_way.empty())
    absl::StrAppend(&problem.found, ", with ", absl::StrJoin(under_way, ", "), " under way");
  fault_ = ErrorOf(absl::StatusCode::kUnavailable, problem);
  return false;
}

DeviceQueue& CudaDevice::queue(QueueId id) { return *queues_[id]; }

Device::Launched CudaDevice::Launch(const DeviceWork& work) {
  Queue& queue = *queues_[work.queue];
  Succeeds(api_->SetDevice(options_.gpu), "cudaSetDevice");
  const int64_t launched = TickClock::Now();
  work.run(work.context);
  Succeeds(api_->LastError(), "the launch of a kernel");
  Work& place = queue.WorkOf(queue.num_launched_ + 1);
  place.launched = std::max(launched, std::exchange(queue.not_before_, 0));
  place.awaited.swap(queue.awaited_);
  std::fill(queue.awaited_.begin(), queue.awaited_.end(), 0);
  Succeeds(api_->RecordEvent(place.end, queue.stream_), "cudaEventRecord");
  ++queue.num_launched_;
  return Launched::kIssued;
}

void CudaDevice::Await(QueueId queue, QueuePosition position) {
  Queue& waiting = *queues_[queue];
  Queue& awaited = *queues_[position.queue];
  if (position.number <= awaited.num_done_) {
    if (awaited.Has(position.number)) {
      waiting.not_before_ =
          std::max(waiting.not_before_, awaited.WorkOf(position.number).times.end);
    }
    return;
  }
  waiting.awaited_[position.queue.value()] = position.number;
  Succeeds(api_->WaitEvent(waiting.stream_, awaited.WorkOf(position.number).end),
           "cudaStreamWaitEvent");
}

int64_t CudaDevice::NumDone(QueueId queue) {
  Queue& asked = *queues_[queue];
  if (!fault_.ok()) return asked.num_done_;
  RenewAnchor();
  while (asked.num_done_ < asked.num_launched_) {
    const CudaResult result = api_->QueryEvent(asked.WorkOf(asked.num_done_ + 1).end);
    if (result == CudaResult::kNotReady || !Succeeds(result, "the work of a queue")) break;
    ++asked.num_done_;
    FindTimes(asked, asked.num_done_);
  }
  asked.Release(asked.num_done_);
  return asked.num_done_;
}

WorkTimes CudaDevice::TimesOf(QueuePosition position) const {
  return queues_[position.queue]->WorkOf(position.number).times;
}

// Finds the times of works up to `number`, which the GPU has done, and before them the times of
// what those works awaited, which it has done, too.
void CudaDevice::FindTimes(Queue& queue, int64_t number) {
  while (queue.num_timed_ < number) {
    const int64_t next = queue.num_timed_ + 1;
    Work& work = queue.WorkOf(next);
    int64_t begin = std::max(work.launched, queue.last_end_);
    for (const QueueId other : queues_.ids()) {
      const int64_t awaited = work.awaited[other.value()];
      if (awaited == 0) continue;
      FindTimes(*queues_[other], awaited);
      if (queues_[other]->Has(awaited))
        begin = std::max(begin, queues_[other]->WorkOf(awaited).times.end);
    }
    queue.last_end_ = std::max(begin, TicksOf(work.end));
    work.times = {begin, queue.last_end_};
    ++queue.num_timed_;
  }
}

// Returns when the GPU came to an event, in ticks of the host.
int64_t CudaDevice::TicksOf(CudaEvent end) {
  float ms = 0;
  if (!Succeeds(api_->ElapsedMs(anchor_.event, end, &ms), "cudaEventElapsedTime")) return 0;
  const double ticks = static_cast<double>(TickClock::Now() - made_ticks_);
  const double ns = static_cast<double>(std::max<int64_t>(1, MonotonicClock().NowNs() - made_ns_));
  return anchor_.ticks + static_cast<int64_t>(static_cast<double>(ms) * 1e6 * ticks / ns);
}

void CudaDevice::RecordAnchor(Anchor* anchor) {
  Succeeds(api_->RecordEvent(anchor->event, anchor_stream_), "cudaEventRecord");
  anchor->ticks = TickClock::Now();
  anchor->ns = MonotonicClock().NowNs();
}

// The clocks of the host and of the GPU drift apart, and a float holds short times only.
void CudaDevice::RenewAnchor() {
  if (anchor_is_due_) {
    const CudaResult result = api_->QueryEvent(next_anchor_.event);
    if (result == CudaResult::kNotReady || !Succeeds(result, "an empty stream")) return;
    std::swap(anchor_, next_anchor_);
    anchor_is_due_ = false;
  } else if (MonotonicClock().NowNs() - anchor_.ns >= options_.clocks_good_ns) {
    RecordAnchor(&next_anchor_);
    anchor_is_due_ = true;
  }
}

}  // namespace weir::device
