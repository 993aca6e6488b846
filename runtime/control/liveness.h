// Decides when a silent party counts as dead, and how far its clock is from ours: the arithmetic of
// heartbeats, with the time as an argument.
//
// A process that was itself kept from running (a loaded machine, SIGSTOP) has heard nothing for a
// while through no fault of other parties. Attention measures how late the process woke, and
// Liveness gives that time back.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace weir::control {

class Liveness {
 public:
  Liveness(int64_t now_ns, int64_t dead_after_ns)
      : dead_after_ns_(dead_after_ns), heard_ns_(now_ns), dies_ns_(now_ns + dead_after_ns) {}

  void Heard(int64_t now_ns) {
    heard_ns_ = now_ns;
    dies_ns_ = now_ns + dead_after_ns_;
    was_excused_ = false;
  }
  void Grant(int64_t lost_ns) { dies_ns_ += lost_ns; }

  // Returns whether the party has been silent for too long: Judge then decides.
  bool IsOverdue(int64_t now_ns) const { return now_ns >= dies_ns_; }
  // Returns whether an overdue party counts as dead. A positive `excuse_ns` says that the party
  // cannot speak now; the party is overdue again after that time. A party that was excused at the
  // last look and is excused no longer gets all its time anew, because the party may be able to
  // speak only since this moment.
  bool Judge(int64_t now_ns, int64_t excuse_ns) {
    const bool is_excused = excuse_ns > 0;
    if (!is_excused && !was_excused_) return true;
    dies_ns_ = now_ns + (is_excused ? excuse_ns : dead_after_ns_);
    was_excused_ = is_excused;
    return false;
  }
  int64_t dies_ns() const { return dies_ns_; }
  int64_t SinceHeardNs(int64_t now_ns) const { return now_ns - heard_ns_; }

 private:
  int64_t dead_after_ns_;
  int64_t heard_ns_;
  int64_t dies_ns_;
  bool was_excused_ = false;  // at the last look
};

// Attention measures how attentive a watching thread is. The thread looks after other parties
// whenever it wakes. The time between waking and sleeping again, and the time beyond the intended
// sleep, are lost to those parties.
class Attention {
 public:
  // Losses up to `slack_ns` are the ordinary jitter of a scheduler.
  explicit Attention(int64_t slack_ns) : slack_ns_(slack_ns) {}

  void Sleeps(int64_t now_ns, int64_t until_ns) {
    busy_ns_ = has_woken_ ? now_ns - woke_ns_ : 0;
    until_ns_ = std::max(now_ns, until_ns);
  }
  // Returns the time that was lost since the last Woke. Precondition: Sleeps was called.
  int64_t Woke(int64_t now_ns) {
    woke_ns_ = now_ns;
    has_woken_ = true;
    const int64_t lost_ns = busy_ns_ + std::max<int64_t>(now_ns - until_ns_, 0);
    return lost_ns > slack_ns_ ? lost_ns : 0;
  }

 private:
  const int64_t slack_ns_;
  bool has_woken_ = false;
  int64_t woke_ns_ = 0;
  int64_t busy_ns_ = 0;
  int64_t until_ns_ = 0;
};

// A ClockEstimate is the other side's clock less ours, from pings: sent by us, received by the
// other side, answered by the other side, answer received by us. The ping with the shortest round
// trip among the last kSamples counts. That ping bounds the error by half its round trip, and old
// pings are forgotten because clocks drift.
class ClockEstimate {
 public:
  static constexpr size_t kSamples = 64;

  void Add(int64_t sent_ns, int64_t received_there_ns, int64_t answered_there_ns,
           int64_t received_ns) {
    // The other side's times may be anything.
    const Wide round_trip_ns =
        (Wide(received_ns) - sent_ns) - (Wide(answered_there_ns) - received_there_ns);
    const Wide offset_ns =
        ((Wide(received_there_ns) - sent_ns) + (Wide(answered_there_ns) - received_ns)) / 2;
    if (round_trip_ns < 0 || round_trip_ns > received_ns - sent_ns) return;  // no such ping
    if (offset_ns != static_cast<int64_t>(offset_ns)) return;
    samples_[count_++ % kSamples] = {static_cast<int64_t>(round_trip_ns),
                                     static_cast<int64_t>(offset_ns)};
  }
  bool has_any() const { return count_ != 0; }
  int64_t offset_ns() const { return Best().offset_ns; }
  int64_t round_trip_ns() const { return Best().round_trip_ns; }

 private:
  using Wide = __int128;
  struct Sample {
    int64_t round_trip_ns = 0;
    int64_t offset_ns = 0;
  };
  Sample Best() const {
    if (count_ == 0) return Sample();
    const auto end = samples_.begin() + std::min(count_, kSamples);
    return *std::min_element(samples_.begin(), end, [](const Sample& a, const Sample& b) {
      return a.round_trip_ns < b.round_trip_ns;
    });
  }

  std::array<Sample, kSamples> samples_;
  size_t count_ = 0;
};

}  // namespace weir::control
