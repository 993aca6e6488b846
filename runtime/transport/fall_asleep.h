// FallAsleep is the order in which a rank whose peers write into its rings (message_ring.h) goes to
// sleep, such that every message that the rank does not see wakes the rank:
//
//   work, show the sign, look for news, arm the descriptor; from the beginning if that fails
//
// No work comes between the sign and the descriptor. Work may take in the bell of a late sender,
// that is, of a sender whose message the rank has long taken, and who only now takes the sign down.
// A rank that slept with the sign down would hear of no further message.
#pragma once

namespace weir::transport {

enum class Armed {
  kYes,   // the descriptor announces all that UCX brings from here on
  kBusy,  // UCX has more to do
  kFailed,
};

enum class FallenAsleep {
  kYes,   // the descriptor is armed
  kNews,  // there is something to do
  kBusy,  // UCX had more to do each time
  kFailed,
};

// Makes at most `attempts` attempts. `Rank` has
//   bool Work();      lets UCX work; returns false if UCX finds work without end
//   void ShowSign();  SleepSign::Show
//   bool HasNews();   looks into the rings, too
//   Armed Arm();      arms the descriptor of UCX, and lets UCX do nothing else
template <typename Rank>
FallenAsleep FallAsleep(Rank& rank, int attempts) {
  for (int i = 0; i < attempts; ++i) {
    if (!rank.Work()) return FallenAsleep::kNews;
    rank.ShowSign();
    if (rank.HasNews()) return FallenAsleep::kNews;
    switch (rank.Arm()) {
      case Armed::kYes: return FallenAsleep::kYes;
      case Armed::kFailed: return FallenAsleep::kFailed;
      case Armed::kBusy: break;
    }
  }
  return FallenAsleep::kBusy;
}

}  // namespace weir::transport
