#include "runtime/control/coordinator.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/control/control_testing.h"
#include "runtime/control/worker_link.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CoordinatorTest, WorkersComeAnswerAndLeave) {
  TestJob job(3);
  TestWorkers workers(&job, 3, [](int worker, const std::string& command) { return absl::StrCat(worker, " did ", command); });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto answers = job->CallAll("this", kPatienceMs);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_THAT(*answers, ElementsAre("0 did this", "1 did this", "2 did this"));
  const auto own = job->CallEach({"a", "b", "c"}, kPatienceMs);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_THAT(*own, ElementsAre("0 did a", "1 did b", "2 did c"));
  job->Shutdown(kPatienceMs);
  workers.Join();
  for (int w = 0; w < 3; ++w) EXPECT_TRUE(workers.ended(w).ok()) << workers.ended(w);
  EXPECT_TRUE(job.lost().empty());
}

}  // namespace
}  // namespace weir
