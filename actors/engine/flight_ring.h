// Acts that the device has been given and has not done. Thread rule: the rank's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/protocol/actor_machine.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::actors {

// An act of an actor, and when it began.
struct Act {
  ActorId actor;
  int32_t micro_batch = 0;
  int32_t chunk = 0;
  int64_t number = 0;  // of the actor's acts, from 0
  int64_t step = 0;
  WaitCause cause;
  int64_t ready_ticks = 0;
  int64_t start_ticks = 0;
  int64_t start_cpu_ns = 0;  // of the thread, if the act is measured
};

// An AwaitedAct is an act on another queue of the device that an act waits for.
struct AwaitedAct {
  int64_t position = 0;  // in that queue; 0: nothing
  WaitCause cause;       // the register that the other act writes or reads
};

// An act that the device has been given and has not done.
struct Flight {
  Act act;
  int64_t number = 0;    // among all acts that the rank has issued
  int64_t position = 0;  // in its queue
  IdVector<QueueId, AwaitedAct> awaited;
  bool is_last = false;         // that its actor may do
  float metric = 0;             // of a SINK
  std::vector<Effect> leaving;  // what becomes known outside when it is done
};

// An act of a collective that waits for other ranks at the host.
struct Meeting {
  Act act;
  int64_t takes = 0;  // of virtual time, once all ranks have come
};

// The acts of one queue, in their order: a ring, so that nothing is allocated.
class FlightRing {
 public:
  FlightRing(int depth, int num_queues, size_t effects_max) : flights_(depth) {
    for (Flight& flight : flights_) {
      flight.awaited.resize(num_queues);
      flight.leaving.reserve(effects_max);
    }
  }
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  const Flight& oldest() const { return flights_[head_]; }
  Flight& oldest() { return flights_[head_]; }
  const Flight& newest() const { return (*this)[size_ - 1]; }
  // The one that Add adds.
  Flight& next() { return flights_[(head_ + size_) % flights_.size()]; }
  void Add() { ++size_; }
  void RemoveOldest() {
    head_ = head_ + 1 == static_cast<int>(flights_.size()) ? 0 : head_ + 1;
    --size_;
  }
  void Clear() { head_ = size_ = 0; }
  // The k-th oldest.
  const Flight& operator[](int k) const { return flights_[(head_ + k) % flights_.size()]; }
  Flight& operator[](int k) { return flights_[(head_ + k) % flights_.size()]; }

 private:
  std::vector<Flight> flights_;
  int head_ = 0;
  int size_ = 0;
};

}  // namespace weir::actors
