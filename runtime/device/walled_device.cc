#include "runtime/device/walled_device.h"

#include <algorithm>
#include <utility>

#include "runtime/base/random.h"
#include "runtime/base/tick_clock.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/walled_memory.h"

namespace weir::device {
namespace {

std::unique_ptr<DeviceMemory> MakeMemory(WalledDeviceOptions::Memory memory) {
  if (memory == WalledDeviceOptions::Memory::kHost) return std::make_unique<HostMemory>();
  return std::make_unique<WalledMemory>();
}

}  // namespace

void WalledQueue::Put(Action begin, Action run) {
  operations_.push_back({std::move(begin), std::move(run), {}, false});
}

void WalledQueue::Copy(char* to, const char* from, int64_t bytes) {
  Put(nullptr, [memory = &device_->memory(), to, from, bytes] {
    memory->Copy(to, from, bytes);
    return absl::OkStatus();
  });
}

void WalledQueue::CopyOut(void* to, const char* from, int64_t bytes) {
  Put(nullptr, [memory = &device_->memory(), to, from, bytes] {
    memory->CopyOut(to, from, bytes);
    return absl::OkStatus();
  });
}

absl::Status WalledQueue::Fill(char* at, int64_t bytes,
                               absl::FunctionRef<absl::Status(char* host)> fill) {
  const auto filled = std::make_shared<std::vector<char>>(bytes);
  if (absl::Status status = fill(filled->data()); !status.ok()) return status;
  Put(nullptr, [memory = &device_->memory(), at, filled] {
    memory->CopyIn(at, filled->data(), static_cast<int64_t>(filled->size()));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status WalledQueue::Finish() { return device_->Finish(*this); }

WalledDevice::WalledDevice(const WalledDeviceOptions& options)
    : options_(options),
      memory_(MakeMemory(options.memory)),
      queues_(std::max(1, options.num_queues)),
      team_(std::max(1, options.num_threads)) {
  for (const QueueId id : queues_.ids()) {
    queues_[id].device_ = this;
    queues_[id].id_ = id;
    queues_[id].times_.resize(static_cast<size_t>(std::max(1, options.depth)));
  }
}

Device::Launched WalledDevice::Launch(const DeviceWork& work) {
  WalledQueue& queue = queues_[work.queue];
  work.run(work.context);
  queue.operations_.push_back({nullptr, nullptr, {}, true});
  ++queue.num_launched_;
  if (options_.drive == WalledDeviceOptions::Drive::kOwner) {
    const int64_t begin_ns = std::max(now_ns_, queue.free_at_ns_);
    queue.free_at_ns_ = begin_ns + work.cost_ns;
    queue.TimesOf(queue.num_launched_) = {begin_ns, queue.free_at_ns_};
  }
  return Launched::kIssued;
}

void WalledDevice::Await(QueueId queue, QueuePosition position) {
  WalledQueue& waiting = queues_[queue];
  const WalledQueue& awaited = queues_[position.queue];
  // In virtual time a work may have been done before it ends.
  if (options_.drive == WalledDeviceOptions::Drive::kOwner && position.number > awaited.num_told_)
    waiting.free_at_ns_ = std::max(waiting.free_at_ns_, awaited.TimesOf(position.number).end);
  if (awaited.num_done_ < position.number)
    waiting.operations_.push_back({nullptr, nullptr, position, false});
}

int64_t WalledDevice::NumDone(QueueId queue) {
  WalledQueue& asked = queues_[queue];
  if (options_.drive == WalledDeviceOptions::Drive::kOwner) return asked.num_told_;
  const uint64_t draw = MixKey(options_.seed, num_draws_++);
  const QueueId drawn(static_cast<int>((draw >> 1) % queues_.size()));
  if (draw % 2 == 0 && CanStep(drawn)) Step(drawn);
  return asked.num_told_ = asked.num_done_;
}

bool WalledDevice::CanStep(QueueId queue) const {
  const WalledQueue& q = queues_[queue];
  if (q.operations_.empty()) return false;
  const QueuePosition& awaited = q.operations_.front().awaited;
  return queues_[awaited.queue].num_done_ >= awaited.number;
}

void WalledDevice::Step(QueueId queue) {
  WalledQueue& q = queues_[queue];
  WalledQueue::Operation& next = q.operations_.front();
  const bool begins = next.begin != nullptr;
  if (options_.drive == WalledDeviceOptions::Drive::kPolls && next.awaited.number == 0)
    Stamp(q, next.ends_work);
  const WalledQueue::Action action = std::exchange(begins ? next.begin : next.run, nullptr);
  if (!begins) {
    q.num_done_ += next.ends_work;
    q.operations_.pop_front();
  }
  if (action && fault_.ok()) fault_ = action();  // what follows a failure is not worth doing
}

// Notes the time at which the oldest work that is not done begins, or ends.
void WalledDevice::Stamp(WalledQueue& queue, bool ends_work) {
  const int64_t now = TickClock::Now();
  WorkTimes& times = queue.TimesOf(queue.num_done_ + 1);
  if (!queue.has_begun_) times.begin = now;
  times.end = now;
  queue.has_begun_ = !ends_work;
}

void WalledDevice::StepAll() {
  for (bool stepped = true; stepped;) {
    stepped = false;
    for (const QueueId queue : queues_.ids()) {
      for (; CanStep(queue); stepped = true) Step(queue);
    }
  }
}

bool WalledDevice::CanComplete(QueueId queue) const {
  const WalledQueue& q = queues_[queue];
  if (q.num_done_ > q.num_told_) return true;
  for (const WalledQueue::Operation& operation : q.operations_) {
    if (operation.ends_work) return true;
    if (queues_[operation.awaited.queue].num_done_ < operation.awaited.number) return false;
  }
  return false;
}

void WalledDevice::CompleteOldest(QueueId queue) {
  WalledQueue& q = queues_[queue];
  while (q.num_done_ == q.num_told_) Step(queue);
  now_ns_ = std::max(now_ns_, q.TimesOf(++q.num_told_).end);
}

absl::Status WalledDevice::Finish(WalledQueue& queue) {
  while (!queue.operations_.empty() && fault_.ok()) StepTowards(queue.id_);
  return fault_;
}

// The queue's next step, or that of the queue that it waits for.
void WalledDevice::StepTowards(QueueId queue) {
  while (!CanStep(queue)) queue = queues_[queue].operations_.front().awaited.queue;
  Step(queue);
}

void WalledDevice::NotBefore(int64_t now_ns) { now_ns_ = std::max(now_ns_, now_ns); }

uint64_t WalledDevice::HashState() const {
  uint64_t hash = 1;
  for (const WalledQueue& queue : queues_) {
    hash = MixKey(hash, queue.num_done_ - queue.num_told_);
    hash = MixKey(hash, queue.operations_.size());
  }
  return hash;
}

void WalledDevice::Rewind() {
  for (WalledQueue& queue : queues_) {
    queue.operations_.clear();
    queue.num_launched_ = queue.num_done_ = queue.num_told_ = queue.free_at_ns_ = 0;
    queue.has_begun_ = false;
  }
  num_draws_ = 0;
  now_ns_ = 0;
  fault_ = absl::OkStatus();
}

}  // namespace weir::device
