#include "tools/launch/signal_watch.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::launch {
namespace {

bool IsReadable(int descriptor) {
  pollfd polled = {descriptor, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

TEST(SignalWatchTest, SignalsAreEventsInTheirOrder) {
  SignalWatch watch(SecondSignal::kIsAnEvent);
  EXPECT_FALSE(watch.interrupted());
  EXPECT_FALSE(IsReadable(watch.descriptor()));
  EXPECT_EQ(watch.Take(), std::nullopt);
  ::raise(SIGINT);
  ::raise(SIGTERM);
  EXPECT_TRUE(watch.interrupted());
  EXPECT_TRUE(IsReadable(watch.descriptor()));
  EXPECT_EQ(watch.Take(), SIGINT);
  EXPECT_TRUE(IsReadable(watch.descriptor()));
  EXPECT_EQ(watch.Take(), SIGTERM);
  EXPECT_FALSE(IsReadable(watch.descriptor()));
}

// Waits until another signal is a request of its own.
void AwaitNextRequest() {
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + kOneRequestNs;
  while (clock.NowNs() <= end_ns) ::poll(nullptr, 0, 1);
}

TEST(SignalWatchTest, TheFirstSignalSetsTheFlagAndTheSecondEndsTheProcess) {
  for (int second : {SIGINT, SIGTERM}) {
    auto ask_twice = [second] {
      SignalWatch watch(SecondSignal::kEndsTheProcess);
      ::raise(SIGINT);
      if (!watch.interrupted()) ::_exit(1);
      if (second == SIGINT) AwaitNextRequest();
      ::raise(second);
    };
    EXPECT_EXIT(ask_twice(), ::testing::KilledBySignal(second), "");
  }
}

TEST(SignalWatchTest, TheSameSignalAMomentLaterIsTheSameRequest) {
  constexpr int kTries = 1000;  // on a busy machine, the second signal may come too late
  const MonotonicClock clock;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    bool was_tried = false;
    for (int i = 0; i < kTries && !was_tried; ++i) {
      SignalWatch watch(SecondSignal::kIsAnEvent);
      const int64_t begin_ns = clock.NowNs();
      ::raise(signal);
      ::raise(signal);
      if (clock.NowNs() - begin_ns >= kOneRequestNs) continue;
      was_tried = true;
      EXPECT_EQ(watch.Take(), signal);
      EXPECT_EQ(watch.Take(), std::nullopt);
      AwaitNextRequest();
      ::raise(signal);
      EXPECT_EQ(watch.Take(), signal) << "a person has asked again";
    }
    EXPECT_TRUE(was_tried) << signal;
  }
}

TEST(SignalWatchTest, ANewWatchKnowsNothingOfOldSignals) {
  {
    SignalWatch watch(SecondSignal::kIsAnEvent);
    ::raise(SIGTERM);
  }
  SignalWatch watch(SecondSignal::kIsAnEvent);
  EXPECT_FALSE(watch.interrupted());
  EXPECT_EQ(watch.Take(), std::nullopt);
  ::raise(SIGTERM);
  EXPECT_EQ(watch.Take(), SIGTERM) << "also right after the old one";
}

TEST(SignalWatchTest, AfterwardsSignalsActAsBefore) {
  auto interrupt = [] {
    { SignalWatch watch(SecondSignal::kIsAnEvent); }
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(interrupt(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalWatchTest, AnIgnoredInterruptStaysIgnored) {
  auto old = ::signal(SIGINT, SIG_IGN);
  {
    SignalWatch watch(SecondSignal::kIsAnEvent);
    ::raise(SIGINT);
    EXPECT_FALSE(watch.interrupted());
    ::raise(SIGTERM);
    EXPECT_EQ(watch.Take(), SIGTERM);
  }
  ::signal(SIGINT, old);
}

TEST(SignalWatchTest, AClosedTerminalIsAnEventUnlessItWasIgnored) {
  {
    SignalWatch watch(SecondSignal::kIsAnEvent);
    ::raise(SIGHUP);
    EXPECT_TRUE(watch.interrupted());
    EXPECT_EQ(watch.Take(), SIGHUP);
  }
  auto old = ::signal(SIGHUP, SIG_IGN);
  {
    SignalWatch watch(SecondSignal::kIsAnEvent);
    ::raise(SIGHUP);
    EXPECT_FALSE(watch.interrupted());
  }
  ::signal(SIGHUP, old);
}

TEST(SignalWatchTest, AClosedPipeAndALimitOfSizeEndNothingNotEvenAfterwards) {
  {
    SignalWatch watch(SecondSignal::kIsAnEvent);
    ::raise(SIGPIPE);
    ::raise(SIGXFSZ);
    EXPECT_FALSE(watch.interrupted());
  }
  ::raise(SIGPIPE);
  ::raise(SIGXFSZ);
}

TEST(SignalWatchTest, WithNothingToLoseTheFirstSignalEndsTheProcessWithItsMessage) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    auto interrupted = [signal] {
      SignalWatch watch(SecondSignal::kEndsTheProcess);
      watch.EndAtOnce("nothing was written\n", 130);
      ::raise(signal);
      ::_exit(1);
    };
    EXPECT_EXIT(interrupted(), ::testing::ExitedWithCode(130), "nothing was written");
    auto earlier = [signal] {
      SignalWatch watch(SecondSignal::kEndsTheProcess);
      ::raise(signal);
      watch.EndAtOnce("nothing was written\n", 130);
      ::_exit(1);
    };
    EXPECT_EXIT(earlier(), ::testing::ExitedWithCode(130), "nothing was written");
  }
}

TEST(SignalWatchTest, TheFirstSignalAlsoRemovesAFolderIfItIsEmpty) {
  const TemporaryFolder folder;
  const std::string made = folder.PathFor("made");
  auto interrupted = [&] {
    SignalWatch watch(SecondSignal::kEndsTheProcess);
    watch.EndAtOnce("nothing was written\n", 130);
    watch.RemoveAtThatEnd(made);
    ::raise(SIGTERM);
    ::_exit(1);
  };
  ASSERT_EQ(::mkdir(made.c_str(), 0700), 0);
  EXPECT_EXIT(interrupted(), ::testing::ExitedWithCode(130), "nothing was written");
  EXPECT_NE(::access(made.c_str(), F_OK), 0);
  ASSERT_EQ(::mkdir(made.c_str(), 0700), 0);
  folder.Write("made/file", "");
  EXPECT_EXIT(interrupted(), ::testing::ExitedWithCode(130), "nothing was written");
  EXPECT_EQ(::access((made + "/file").c_str(), F_OK), 0);
}

TEST(SignalWatchTest, OnceThereIsSomethingToLoseASignalIsAnEventAgain) {
  SignalWatch watch(SecondSignal::kEndsTheProcess);
  watch.EndAtOnce("nothing was written\n", 130);
  watch.KeepGoing();
  ::raise(SIGTERM);
  EXPECT_TRUE(watch.interrupted());
}

TEST(SignalWatchTest, UserSignalsAreEventsThatEndNothing) {
  {
    SignalWatch watch(SecondSignal::kEndsTheProcess);
    watch.NoteUserSignals();
    EXPECT_EQ(watch.checkpoints_asked(), 0);
    ::raise(SIGUSR1);
    ::raise(SIGUSR2);
    AskForCheckpoint();
    EXPECT_EQ(watch.checkpoints_asked(), 2);
    EXPECT_FALSE(watch.interrupted());
    EXPECT_EQ(watch.Take(), SIGUSR1);
    EXPECT_EQ(watch.Take(), SIGUSR2);
    EXPECT_EQ(watch.Take(), SIGUSR1);
  }
  AskForCheckpoint();  // nobody notes it
  SignalWatch again(SecondSignal::kEndsTheProcess);
  again.NoteUserSignals();
  EXPECT_EQ(again.checkpoints_asked(), 0);
  EXPECT_EQ(again.Take(), std::nullopt);
}

TEST(SignalWatchTest, MoreSignalsThanAnybodyTakesDoNotBlock) {
  SignalWatch watch(SecondSignal::kIsAnEvent);
  watch.NoteUserSignals();
  for (int i = 0; i < 100000; ++i) ::raise(SIGUSR1);
  EXPECT_EQ(watch.Take(), SIGUSR1);
  ::raise(SIGINT);
  EXPECT_TRUE(watch.interrupted());
}

TEST(SignalWatchTest, ARequestElsewhereAndTheSignalThatFollowsAreOne) {
  SignalWatch watch(SecondSignal::kEndsTheProcess);
  AskToEnd();
  EXPECT_TRUE(watch.interrupted().load());
  AskToEnd();        // of another agent
  ::raise(SIGTERM);  // of the same scheduler, and the process lives
  EXPECT_EQ(watch.Take(), SIGTERM);
}

TEST(SignalWatchTest, ARequestElsewhereAfterASignalChangesNothing) {
  SignalWatch watch(SecondSignal::kIsAnEvent);
  ::raise(SIGINT);
  AskToEnd();
  EXPECT_EQ(watch.Take(), SIGINT);
  EXPECT_EQ(watch.Take(), std::nullopt);
}

}  // namespace
}  // namespace weir::launch
