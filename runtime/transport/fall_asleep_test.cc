#include "runtime/transport/fall_asleep.h"

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/transport/message_ring.h"

namespace weir::transport {
namespace {

// Returns a number in [0, n): the option that is taken next.
using Choose = std::function<int(int n)>;

// A World is a rank, and senders that put messages into the rank's rings. At each point of the
// rank's way, any sender may make any number of its steps.
class World {
 public:
  World(int num_senders, int messages_each, Choose choose) : choose_(std::move(choose)) {
    for (int i = 0; i < num_senders; ++i) {
      senders_.push_back({RingWriter(block(), i), 3 * messages_each, false});
      readers_.emplace_back(block(), i);
    }
    num_missing_ = num_senders * messages_each;
  }

  // Returns whether the rank has got all messages. If not, the rank sleeps and nobody will wake it.
  bool Run() {
    for (;;) {
      sign_.Hide();
      Pause();
      RingEntry entry;
      for (RingReader& reader : readers_) {
        while (reader.TryTake(&entry)) --num_missing_;
        Pause();
      }
      if (num_missing_ == 0) return true;
      if (FallAsleep(*this, 2) != FallenAsleep::kYes) continue;  // a nap ends by the clock
      while (armed_) {
        if (NumOptions() == 0) return false;
        Step(choose_(NumOptions()));
      }
    }
  }
  const std::string& story() const { return story_; }

  // The rank, for FallAsleep.
  bool Work() {
    story_ += " work";
    num_bells_ = 0;
    Pause();
    return true;
  }
  void ShowSign() {
    story_ += " show";
    sign_.Show();
    Pause();
  }
  bool HasNews() {
    bool has_news = false;
    for (const RingReader& reader : readers_) has_news |= reader.has_message();
    story_ += has_news ? " news" : " no-news";
    Pause();
    return has_news;
  }
  Armed Arm() {
    if (num_bells_ > 0) return Armed::kBusy;
    story_ += " sleep";
    armed_ = true;
    Pause();
    return Armed::kYes;
  }

 private:
  // A message takes three steps: put it, look at the sign, ring.
  struct Sender {
    RingWriter to_rank;
    int num_steps = 0;  // left
    bool rings = false;
  };

  char* block() { return lines_[0].bytes; }
  int NumOptions() const {
    int n = 0;
    for (const Sender& sender : senders_) n += sender.num_steps > 0;
    return n;
  }
  void Pause() {
    while (const int n = NumOptions()) {
      const int option = choose_(n + 1);
      if (option == n) return;
      Step(option);
    }
  }
  // Lets the sender make its next step that is number `option` of those with steps.
  void Step(int option) {
    for (Sender& sender : senders_) {
      if (sender.num_steps == 0 || option-- > 0) continue;
      switch (sender.num_steps-- % 3) {
        case 0:
          story_ += " put";
          sender.to_rank.Put(std::array<char, kWireMessageBytes>().data(), {});
          return;
        case 2:
          story_ += " look";
          sender.rings = sign_.TakeDown();
          return;
        default:
          if (!sender.rings) return;
          story_ += " ring";
          ++num_bells_;
          armed_ = false;
          return;
      }
    }
  }

  struct alignas(64) Line {
    char bytes[64] = {};
  };
  std::vector<Line> lines_{static_cast<size_t>(RingBlockBytes(2)) / sizeof(Line)};
  Choose choose_;
  SleepSign sign_{block()};
  std::vector<Sender> senders_;
  std::vector<RingReader> readers_;
  int num_missing_ = 0;
  int num_bells_ = 0;  // which UCX has and the rank has not
  bool armed_ = false;
  std::string story_;
};

TEST(FallAsleep, EveryOrderOfASenderAndARankWakesTheRank) {
  std::vector<int> choices, counts;
  int64_t num_runs = 0;
  for (;;) {
    size_t at = 0;
    World world(1, 2, [&](int n) {
      if (at == choices.size()) {
        choices.push_back(0);
        counts.push_back(n);
      }
      return choices[at++];
    });
    ++num_runs;
    ASSERT_TRUE(world.Run()) << "asleep for ever:" << world.story();
    while (!choices.empty() && choices.back() + 1 == counts.back()) {
      choices.pop_back();
      counts.pop_back();
    }
    if (choices.empty()) break;
    ++choices.back();
  }
  EXPECT_GT(num_runs, 10'000);
}

TEST(FallAsleep, RandomOrdersOfTwoSendersWakeTheRank) {
  for (uint64_t seed = 0; seed < 100'000; ++seed) {
    std::mt19937_64 random(seed);
    World world(2, 2, [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); });
    ASSERT_TRUE(world.Run()) << "seed " << seed << ", asleep for ever:" << world.story();
  }
}

}  // namespace
}  // namespace weir::transport
