#include "runtime/control/published_values.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir::control {
namespace {

TEST(PublishedValuesTest, AFetchFindsAValueOrWaitsForIt) {
  PublishedValues values;
  ASSERT_TRUE(values.Publish(WorkerId(0), "there", "value")->empty());
  EXPECT_EQ(**values.Fetch("there", {WorkerId(1), 10}), "value");
  EXPECT_EQ(*values.Fetch("later", {WorkerId(1), 11}), nullptr);
  EXPECT_EQ(*values.Fetch("later", {WorkerId(2), 5}), nullptr);
  const auto waiters = values.Publish(WorkerId(0), "later", "");
  ASSERT_TRUE(waiters.ok());
  ASSERT_EQ(waiters->size(), 2u);
  EXPECT_EQ((*waiters)[0].worker, WorkerId(1));
  EXPECT_EQ((*waiters)[0].request, 11);
  EXPECT_EQ((*waiters)[1].worker, WorkerId(2));
  EXPECT_EQ(**values.Fetch("later", {WorkerId(3), 1}), "");
}

TEST(PublishedValuesTest, AKeyIsPublishedOnce) {
  PublishedValues values;
  ASSERT_TRUE(values.Publish(WorkerId(0), "key", "first").ok());
  EXPECT_EQ(values.Publish(WorkerId(0), "key", "second").status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(**values.Fetch("key", {}), "first");
}

TEST(PublishedValuesTest, KeysValuesAndWaitersHaveBounds) {
  PublishedValues values;
  EXPECT_EQ(values.Publish(WorkerId(0), std::string(kKeyBytesMax + 1, 'k'), "").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(values.Fetch(std::string(kKeyBytesMax + 1, 'k'), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      values.Publish(WorkerId(0), "large", std::string(kPublishedBytesMax, 'v')).status().code(),
      absl::StatusCode::kResourceExhausted);
  for (size_t i = 0; i < kPublishedKeysMax; ++i)
    ASSERT_TRUE(values.Publish(WorkerId(0), absl::StrCat(i), "").ok());
  EXPECT_EQ(values.Publish(WorkerId(0), "one more", "").status().code(),
            absl::StatusCode::kResourceExhausted);
  for (size_t i = 0; i < kWaitingMax; ++i) ASSERT_EQ(*values.Fetch("never", {}), nullptr);
  EXPECT_EQ(values.Fetch("never", {}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(values.Fetch("0", {}).ok());
}

TEST(PublishedValuesTest, AWorkerThatPublishesTooMuchLeavesRoomForTheOthers) {
  PublishedValues values;
  const std::string half(kPublishedBytesOfWorkerMax / 2, 'v');
  ASSERT_TRUE(values.Publish(WorkerId(3), "a", half).ok());
  EXPECT_EQ(values.Publish(WorkerId(3), "b", half).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(values.Publish(WorkerId(3), "b", "small").ok());
  EXPECT_TRUE(values.Publish(WorkerId(4), "c", half).ok());
}

}  // namespace
}  // namespace weir::control
