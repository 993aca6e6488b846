#include "tools/fleet/buddy_pace.h"

#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

TEST(BuddyPaceTest, CopiesAreDueAtOnceAndThenAtMultiples) {
  BuddyPace pace(3, UpdateRate());
  pace.Begin();
  EXPECT_TRUE(pace.IsDue(1));
  pace.NoteBegun(1);
  EXPECT_TRUE(pace.NoteArrived({1, 1}));
  EXPECT_FALSE(pace.IsDue(2));
  EXPECT_EQ(pace.StepsToNext(1), 2);
  EXPECT_TRUE(pace.IsDue(3));
}

TEST(BuddyPaceTest, NoCopyBeginsWhileOneIsUnderWay) {
  BuddyPace pace(1, UpdateRate());
  pace.Begin();
  pace.NoteBegun(0);
  EXPECT_FALSE(pace.NoteArrived({0, -1}));
  EXPECT_TRUE(pace.is_under_way());
  EXPECT_FALSE(pace.IsDue(5));
  EXPECT_TRUE(pace.NoteArrived({0, 0}));
  EXPECT_TRUE(pace.IsDue(5));
}

TEST(BuddyPaceTest, NoCopyIsDueBetweenTheGradientsOfAnUpdate) {
  UpdateRate updates;
  updates.every = 2;
  BuddyPace pace(1, updates);
  pace.Begin();
  EXPECT_TRUE(pace.IsDue(1));
  EXPECT_FALSE(pace.IsDue(2));
  EXPECT_TRUE(pace.IsDue(3));
  EXPECT_EQ(pace.StepsToNext(1), 2);
}

TEST(BuddyPaceTest, AnEpochForgetsWhatWasUnderWay) {
  BuddyPace pace(4, UpdateRate());
  pace.Begin();
  pace.NoteBegun(4);
  pace.Begin();
  EXPECT_FALSE(pace.is_under_way());
  EXPECT_TRUE(pace.IsDue(5));
  EXPECT_FALSE(pace.NoteArrived({4}));
}

}  // namespace
}  // namespace weir::fleet
