#include "tools/plan/settle_collectives.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/job/job_file.h"
#include "tools/zoo/gpt.h"

namespace weir::plan {
namespace {

using ::testing::HasSubstr;

// `latency_ns` is that of a message of an exchange and that of an operation of a group.
compiler::DevicePeaks Peaks(int64_t latency_ns, int64_t act_ns) {
  compiler::DevicePeaks peaks;
  peaks.within_host.latency_ns = latency_ns;
  peaks.act_ns = act_ns;
  return peaks;
}

proto::Job JobOn(const std::string& device, const std::string& mesh) {
  zoo::TransformerOptions options;
  options.layers = 1;
  options.hidden = 32;
  options.sequence = 32;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job::SetMesh(mesh, &*job).ok());
  job->mutable_runtime()->set_device(device);
  job->mutable_runtime()->set_collectives(proto::Runtime::AUTO);
  return *job;
}

std::string Settle(const compiler::DevicePeaks& peaks, const std::string& obstacle,
                   proto::Job* job) {
  const compiler::PeakCosts costs(peaks);
  const absl::StatusOr<SettledCollectives> settled = SettleCollectives(costs, obstacle, job);
  EXPECT_TRUE(settled.ok()) << settled.status();
  return settled.ok() ? settled->text : "";
}

TEST(SettleCollectives, AJobThatSaysWhatItWantsStays) {
  proto::Job job = JobOn("cuda-emulated", "dp=4");
  job.mutable_runtime()->set_collectives(proto::Runtime::LOCAL);
  EXPECT_EQ(Settle(Peaks(5'000, 5'000), "", &job), "");
  EXPECT_EQ(job.runtime().collectives(), proto::Runtime::LOCAL);
}

TEST(SettleCollectives, OnlyGpusThatCanHaveNcclGetIt) {
  proto::Job job = JobOn("cpu", "dp=4");
  EXPECT_THAT(Settle(Peaks(5'000, 5'000), "", &job), HasSubstr("the devices are CPUs"));
  EXPECT_EQ(job.runtime().collectives(), proto::Runtime::EXCHANGES);
  job = JobOn("cuda", "dp=4");
  EXPECT_THAT(Settle(Peaks(5'000, 5'000), "4 ranks in one process", &job),
              HasSubstr("exchanges (no NCCL here: 4 ranks in one process)"));
  EXPECT_EQ(job.runtime().collectives(), proto::Runtime::EXCHANGES);
  job = JobOn("cuda", "");
  EXPECT_THAT(Settle(Peaks(5'000, 5'000), "", &job), HasSubstr("no two devices"));
}

// An exchange of few bytes sends all its messages at once, and an operation of a group passes as
// many bytes over one link. So links decide, and acts of exchanges for small tensors.
TEST(SettleCollectives, TheCostsDecideFromWhichSizeOn) {
  proto::Job job = JobOn("cuda", "dp=4");
  const std::string text = Settle(Peaks(20'000, 5'000), "", &job);
  EXPECT_THAT(text, HasSubstr("collectives: NCCL for tensors of"));
  EXPECT_THAT(text, HasSubstr("dp=4"));
  EXPECT_EQ(job.runtime().collectives(), proto::Runtime::NCCL);
  EXPECT_GE(job.runtime().collective_kib_min(), 1);
}

TEST(SettleCollectives, ABoundOfTheJobStays) {
  proto::Job job = JobOn("cuda", "dp=2");
  job.mutable_runtime()->set_collective_kib_min(1 << 20);
  Settle(Peaks(20'000, 5'000), "", &job);
  EXPECT_EQ(job.runtime().collective_kib_min(), 1 << 20);
}

}  // namespace
}  // namespace weir::plan
