// Decides when a job whose mesh has become smaller tries to have its own mesh again. If workers are
// lost again soon after they have come back, the mesh grows more and more rarely, and not for ever.
//
//   { NoteSmaller -> { TakesTurn -> (NoteBegun -> NoteRefused) }* -> NoteBegun
//     -> (NoteSmaller, if workers are lost) }*
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"

namespace weir::launch {

struct GrowthLimits {
  int64_t after_ms = 60'000;  // from the loss to the first attempt; 0: the mesh never grows
  // Workers may be lost again this many times in a row, each time within window_ms after they have
  // come back.
  int lost_again_max = 3;
  int64_t window_ms = int64_t{3600'000};
};

class GrowthPolicy {
 public:
  explicit GrowthPolicy(const GrowthLimits& limits) : limits_(limits), wait_ms_(limits.after_ms) {}

  // The mesh has become smaller, or a larger one has not come to be, because these workers are
  // lost. Times are monotonic.
  void NoteSmaller(int64_t time_ms, const std::vector<WorkerId>& lost);
  // Returns whether an attempt is due. If so, the next one is due after twice the wait.
  bool TakesTurn(int64_t time_ms);
  // An attempt has found places for these workers, which have left, and begins to fill them.
  void NoteBegun(int64_t time_ms, const std::vector<WorkerId>& returning);
  // The attempt that has begun could not fill the places, and nothing has changed: the next one is
  // due as after an attempt that has found no places.
  void NoteRefused(int64_t time_ms);
  // All processes start again: a mesh that is smaller then is the mesh of that start.
  void NoteStart();

  // Returns whether the mesh stays small, because workers were lost again too often.
  bool has_given_up() const { return lost_again_ > limits_.lost_again_max; }
  // Returns when an attempt is due; nullopt: never, as long as the mesh is as it is.
  std::optional<int64_t> NextTurnMs() const;
  // Returns how many times in a row workers were lost again.
  int lost_again() const { return lost_again_; }

 private:
  const GrowthLimits limits_;
  bool is_smaller_ = false;
  int64_t since_ms_ = 0;  // the last loss or attempt
  int64_t wait_ms_;       // from then to the next attempt
  bool has_begun_ = false;
  int64_t begun_ms_ = 0;  // the last growth, if it has begun
  // The times at which workers have come back, since one of them was last lost again soon.
  std::map<WorkerId, int64_t> returned_ms_;
  int lost_again_ = 0;
};

}  // namespace weir::launch
