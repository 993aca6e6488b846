// The order in which the collectives of a rank begin: that of their planned starts, and of one
// start that of their actors. The order of an act depends on the plan and on the steps that may be
// done, which are the same on all ranks, and not on what is ready first
// (actors/plan/group_statement.h has the argument). Thread rule: the rank's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/plan/certificate.h"
#include "actors/plan/plan.h"
#include "runtime/base/ids.h"

namespace weir::actors {

class StartOrder {
 public:
  StartOrder() = default;
  // Orders the collectives of the plan, which outlives the order, from `first_step` on.
  StartOrder(const Plan* plan, int64_t first_step) : plan_(plan) {
    for (const PlanActor& actor : plan->actors) {
      if (actor.kind != ActorKind::kCollective) continue;
      const int64_t act = actor.ActsBefore(first_step);
      entries_.push_back({actor.id, act, act, 0});
    }
  }

  int num_actors() const { return static_cast<int>(entries_.size()); }
  // Lets all acts of the steps before `step` be done.
  void SetLimit(int64_t step) {
    for (Entry& entry : entries_) {
      entry.limit = plan_->actors[entry.actor].ActsBefore(step);
      FindStart(&entry);
    }
    Seek();
  }
  // Returns the actor whose act comes next; none if all have done what they may.
  ActorId actor() const { return next_ < 0 ? ActorId() : entries_[next_].actor; }
  // Goes on to the act after the next. Precondition: there is a next.
  void Advance() {
    ++entries_[next_].act;
    ++num_passed_;
    FindStart(&entries_[next_]);
    Seek();
  }
  int64_t num_passed() const { return num_passed_; }

 private:
  struct Entry {
    ActorId actor;
    int64_t act = 0;  // the next
    int64_t limit = 0;
    int64_t start_ns = 0;  // of `act`
  };
  void FindStart(Entry* entry) const {
    if (entry->act < entry->limit)
      entry->start_ns = PlannedStartNs(*plan_, plan_->actors[entry->actor], entry->act);
  }
  void Seek() {
    next_ = -1;
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (entry.act >= entry.limit) continue;
      if (next_ < 0 || entry.start_ns < entries_[next_].start_ns) next_ = static_cast<int>(i);
    }
  }

  const Plan* plan_ = nullptr;
  std::vector<Entry> entries_;  // by actor
  int next_ = -1;
  int64_t num_passed_ = 0;
};

}  // namespace weir::actors
