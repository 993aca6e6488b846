#include "ops/kernels/testing/kernel_trial.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/device/walled_device.h"
#include "runtime/device/walled_memory.h"

namespace weir::kernels {
namespace {

// Doubles its input into its output, in the queue, and then writes one byte to a wrong place.
class Doubling final : public Kernel {
 public:
  enum class Fault : uint8_t { kNone, kBeyondOutput, kIntoInput, kBeyondWorkspace, kBeforeOutput };

  Doubling(int64_t count, Fault fault) : count_(count), fault_(fault) {}

  int64_t workspace_bytes() const override { return 4; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    auto* const x = static_cast<float*>(device::WalledMemory::Inside(args.inputs[0]));
    auto* const y = static_cast<float*>(device::WalledMemory::Inside(args.outputs[0]));
    auto* const workspace = static_cast<char*>(device::WalledMemory::Inside(launch.workspace));
    static_cast<device::WalledQueue*>(launch.queue)->Put(nullptr, [=, this] {
      for (int64_t i = 0; i < count_; ++i) y[i] = 2 * x[i];
      char* const bytes = reinterpret_cast<char*>(y);
      switch (fault_) {
        case Fault::kNone: break;
        case Fault::kBeyondOutput: bytes[count_ * 4 + 3] = 0; break;
        case Fault::kIntoInput: x[1] = 5; break;
        case Fault::kBeyondWorkspace: workspace[4] = 0; break;
        case Fault::kBeforeOutput: bytes[-1] = 0; break;
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

 private:
  int64_t count_;
  Fault fault_;
};

void Register(const char* op, Doubling::Fault fault) {
  KernelRegistry::Register("walled", op, [fault](const KernelSpec& spec) {
    return std::make_unique<Doubling>(spec.inputs[0]->num_elements(), fault);
  });
}

const bool registered = [] {
  Register("double", Doubling::Fault::kNone);
  Register("beyond output", Doubling::Fault::kBeyondOutput);
  Register("into input", Doubling::Fault::kIntoInput);
  Register("beyond workspace", Doubling::Fault::kBeyondWorkspace);
  Register("before output", Doubling::Fault::kBeforeOutput);
  return true;
}();

absl::Status Double(const char* op, const std::vector<float>& x, std::vector<float>* y) {
  y->assign(x.size(), 0);
  const void* const input = x.data();
  void* const output = y->data();
  KernelTrial trial;
  trial.device = "walled";
  trial.spec.op = op;
  const TensorSlice slice = TensorSlice::Whole(DType::kF32, {static_cast<int64_t>(x.size())});
  trial.spec.inputs = {slice};
  trial.spec.outputs = {slice};
  trial.args.inputs = absl::MakeConstSpan(&input, 1);
  trial.args.outputs = absl::MakeConstSpan(&output, 1);
  return Run(trial);
}

TEST(KernelTrialTest, OperandsTravelToMemoryThatTheHostCannotUse) {
  for (int size : {0, 1, 15, 16, 17, 5000}) {
    std::vector<float> x(size), y, expected(size);
    for (int i = 0; i < size; ++i) {
      x[i] = static_cast<float>(i);
      expected[i] = static_cast<float>(2 * i);
    }
    ASSERT_EQ(Double("double", x, &y), absl::OkStatus());
    EXPECT_EQ(y, expected);
  }
}

TEST(KernelTrialTest, AWriteToAWrongPlaceIsNamed) {
  const std::pair<const char*, const char*> faults[] = {
      {"beyond output", "writes beyond output 0: byte 3 behind its 12 bytes"},
      {"into input", "writes into input 0"},
      {"beyond workspace", "writes beyond its workspace: byte 0 behind its 4 bytes"},
      {"before output", "writes 1 bytes before output 0"}};
  for (const auto& [op, named] : faults) {
    std::vector<float> y;
    const absl::Status status = Double(op, {1, 2, 3}, &y);
    EXPECT_NE(status.message().find(named), absl::string_view::npos) << status;
  }
}

TEST(KernelTrialTest, AKernelThatIsNotThereIsUnimplemented) {
  std::vector<float> y;
  EXPECT_EQ(Double("no such op", {1}, &y).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weir::kernels
