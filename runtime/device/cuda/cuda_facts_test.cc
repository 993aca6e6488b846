#include "runtime/device/cuda/cuda_facts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/cuda/emulated_cuda_api.h"

namespace weir::device {
namespace {

using ::testing::HasSubstr;

CudaFacts Healthy() {
  CudaFacts facts;
  facts.program = CudaFacts::Program::kWithCuda;
  facts.driver_version = facts.runtime_version = 13000;
  facts.gpus.push_back({"NVIDIA H100", int64_t{80} << 30, 9, 0, 132});
  return facts;
}

TEST(CudaFactsTest, AGpuWithADriverWillDo) {
  EXPECT_EQ(CheckGpus(Healthy()), absl::OkStatus());
  EXPECT_EQ(CudaText(Healthy()), "NVIDIA H100, 80.0 GiB; a driver for CUDA 13.0, runtime 13.0");
  CudaFacts newer = Healthy();
  newer.driver_version = 13020;
  EXPECT_EQ(CheckGpus(newer), absl::OkStatus());
  CudaFacts older = Healthy();
  older.runtime_version = 13010;
  EXPECT_EQ(CheckGpus(older), absl::OkStatus()) << "drivers of one major version are compatible";
}

TEST(CudaFactsTest, EachThingThatIsMissingHasItsError) {
  EXPECT_THAT(CheckGpus(CudaFacts()).message(), HasSubstr("W0552"));
  EXPECT_EQ(CudaText(CudaFacts()), "a program without CUDA");

  CudaFacts no_driver = Healthy();
  no_driver.driver_version = 0;
  no_driver.gpus.clear();
  EXPECT_THAT(CheckGpus(no_driver).message(),
              ::testing::AllOf(HasSubstr("W0550"), HasSubstr("found no NVIDIA driver")));
  EXPECT_EQ(CudaText(no_driver), "no NVIDIA driver, runtime 13.0");

  CudaFacts old_driver = Healthy();
  old_driver.driver_version = 12040;
  EXPECT_THAT(CheckGpus(old_driver).message(),
              ::testing::AllOf(HasSubstr("W0550"), HasSubstr("a driver for CUDA 12.4")));

  CudaFacts no_gpu = Healthy();
  no_gpu.gpus.clear();
  EXPECT_THAT(CheckGpus(no_gpu).message(),
              ::testing::AllOf(HasSubstr("W0551"), HasSubstr("found 0 GPUs")));

  CudaFacts old_gpu = Healthy();
  old_gpu.gpus.push_back({"Tesla V100", int64_t{16} << 30, 7, 0, 80});
  EXPECT_THAT(CheckGpus(old_gpu).message(),
              ::testing::AllOf(HasSubstr("W0551"), HasSubstr("GPU 1"), HasSubstr("Tesla V100")));
  EXPECT_EQ(CheckGpus(old_gpu).code(), absl::StatusCode::kUnavailable);
}

TEST(CudaFactsTest, TheEmulationHasOneGpu) {
  EmulatedCudaApi api(1);
  const CudaFacts facts = FindGpus(&api);
  ASSERT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(CheckGpus(facts), absl::OkStatus());
}

TEST(CudaFactsTest, ThisMachineIsDescribedWhateverItHas) {
  const CudaFacts facts = FindGpus();
  EXPECT_EQ(CheckGpus(facts).ok(), !facts.gpus.empty() && facts.driver_version >= 13000);
  EXPECT_NE(CudaText(facts), "");
}

}  // namespace
}  // namespace weir::device
