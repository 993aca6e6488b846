#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {
namespace {

class NothingKernel final : public Kernel {
 public:
  absl::Status Run(const KernelArgs&, const LaunchContext&) override { return absl::OkStatus(); }
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeNothing(const KernelSpec& spec) {
  if (spec.inputs.empty()) return absl::InvalidArgumentError("needs an input");
  return std::make_unique<NothingKernel>();
}
WEIR_REGISTER_KERNEL("paper", "nothing", MakeNothing);
WEIR_REGISTER_KERNEL("paper", "little", MakeNothing);

TEST(KernelRegistryTest, CreatesWhatIsRegisteredForTheDevice) {
  KernelSpec spec{.op = "nothing", .inputs = {TensorSlice::Whole(DType::kF32, {1})}};
  EXPECT_TRUE(KernelRegistry::Create("paper", spec).ok());
}

TEST(KernelRegistryTest, PassesOnTheReasonOfTheFactory) {
  EXPECT_EQ(KernelRegistry::Create("paper", KernelSpec{.op = "nothing"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(KernelRegistryTest, SaysUnimplementedAndNamesTheNearestOp) {
  auto unknown = KernelRegistry::Create("paper", KernelSpec{.op = "nothin"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.message()), testing::HasSubstr("nearest is \"nothing\""));
  EXPECT_EQ(KernelRegistry::Create("stone", KernelSpec{.op = "nothing"}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(KernelRegistryTest, ListsTheOpsOfADeviceInOrder) {
  EXPECT_THAT(KernelRegistry::Names("paper"), testing::ElementsAre("little", "nothing"));
  EXPECT_THAT(KernelRegistry::Names("stone"), testing::IsEmpty());
}

TEST(KernelRegistryDeathTest, ADuplicateIsFatal) {
  EXPECT_DEATH(KernelRegistry::Register("paper", "nothing", MakeNothing), "two kernels");
}

}  // namespace
}  // namespace weir::kernels
