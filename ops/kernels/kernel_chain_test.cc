#include "ops/kernels/kernel_chain.h"

#include "gtest/gtest.h"

namespace weir::kernels {
namespace {

using Space = ChainOperand::Space;

ChainOperand Scratch(int64_t offset, int64_t bytes) {
  return {Space::kScratch, 0, 0, offset, bytes};
}
ChainOperand Input(int32_t port) { return {Space::kInput, port, 0, 0, 64}; }

ChainKernel Call(std::string op, std::vector<ChainOperand> inputs,
                 std::vector<ChainOperand> outputs) {
  ChainKernel kernel;
  kernel.spec.op = std::move(op);
  kernel.inputs = std::move(inputs);
  kernel.outputs = std::move(outputs);
  return kernel;
}

KernelChain Chain(std::initializer_list<ChainKernel (*)()> kernels) {
  KernelChain chain;
  for (auto* make : kernels) chain.push_back(make());
  return chain;
}

TEST(KernelChainTest, OperandsOverlapInOneMemoryOnly) {
  EXPECT_TRUE(Scratch(0, 64).Overlaps(Scratch(32, 64)));
  EXPECT_FALSE(Scratch(0, 64).Overlaps(Scratch(64, 64)));
  EXPECT_FALSE(Scratch(0, 0).Overlaps(Scratch(0, 64)));
  EXPECT_FALSE(Input(0).Overlaps(Input(1)));
  EXPECT_FALSE(Input(0).Overlaps(Scratch(0, 64)));
  EXPECT_FALSE(ChainOperand().Overlaps(ChainOperand()));
  ChainOperand second_token = Input(0);
  second_token.token = 1;
  EXPECT_FALSE(Input(0).Overlaps(second_token));
}

TEST(KernelChainTest, ScratchIsDeadOnceItIsWrittenAnew) {
  const KernelChain chain = Chain({
      [] { return Call("make", {Input(0)}, {Scratch(0, 64)}); },
      [] { return Call("read", {Scratch(0, 64)}, {Scratch(64, 64)}); },
      [] { return Call("write half", {}, {Scratch(0, 32)}); },
      [] { return Call("read half", {Scratch(0, 32)}, {}); },
      [] { return Call("read rest", {Scratch(32, 32)}, {}); },
  });
  EXPECT_TRUE(IsDeadAfter(chain, 0, Scratch(0, 64)));  // what was there before is lost
  EXPECT_TRUE(IsDeadAfter(chain, 1, Scratch(0, 32)));
  EXPECT_FALSE(IsDeadAfter(chain, 1, Scratch(0, 64)));  // its rest is read at the end
  EXPECT_TRUE(IsDeadAfter(chain, 4, Scratch(0, 64)));
  EXPECT_EQ(FirstToTouch(chain, 1, Scratch(48, 64)), 4);
  EXPECT_EQ(FirstToTouch(chain, 4, Scratch(0, 64)), std::nullopt);
}

TEST(KernelChainTest, AKernelMovesPastOthersThatLeaveItsOperandsAlone) {
  const KernelChain chain = Chain({
      [] { return Call("first", {Scratch(0, 64)}, {Scratch(64, 64)}); },
      [] { return Call("between", {Scratch(128, 64)}, {Scratch(192, 64)}); },
      [] { return Call("last", {}, {}); },
  });
  EXPECT_TRUE(CanMove(chain, 0, 2, {Scratch(0, 128)}, {Scratch(64, 64)}));
  EXPECT_TRUE(CanMove(chain, 0, 2, {Scratch(128, 64)}, {}));   // both may read
  EXPECT_FALSE(CanMove(chain, 0, 2, {Scratch(192, 64)}, {}));  // which the other writes
  EXPECT_FALSE(CanMove(chain, 0, 2, {}, {Scratch(128, 64)}));  // which the other reads
  EXPECT_TRUE(CanMove(chain, 0, 1, {Scratch(192, 64)}, {Scratch(192, 64)}));
}

TEST(KernelChainTest, ReadersFollowAResultToItsNewPlace) {
  KernelChain chain = Chain({
      [] { return Call("make", {}, {Scratch(0, 64)}); },
      [] {
        return Call("read", {Scratch(0, 64), Input(0)}, {Scratch(64, 64)});
      },
      [] { return Call("write anew", {}, {Scratch(0, 64)}); },
      [] { return Call("read the new", {Scratch(0, 64)}, {}); },
  });
  EXPECT_TRUE(MoveScratch(&chain, 0, Scratch(0, 64), Scratch(128, 64)));
  EXPECT_EQ(chain[1].inputs[0], Scratch(128, 64));
  EXPECT_EQ(chain[3].inputs[0], Scratch(0, 64));
}

TEST(KernelChainTest, AResultStaysWhereItsNewPlaceIsWrittenTooEarly) {
  KernelChain chain = Chain({
      [] { return Call("make", {}, {Scratch(0, 64)}); },
      [] { return Call("write", {}, {Scratch(160, 64)}); },
      [] { return Call("read", {Scratch(0, 64)}, {}); },
  });
  EXPECT_FALSE(MoveScratch(&chain, 0, Scratch(0, 64), Scratch(128, 64)));
  EXPECT_EQ(chain[2].inputs[0], Scratch(0, 64));
  EXPECT_TRUE(MoveScratch(&chain, 0, Scratch(0, 64), Scratch(256, 64)));
}

TEST(KernelChainTest, AResultStaysWhereAPartOfItIsRead) {
  KernelChain chain = Chain({
      [] { return Call("make", {}, {Scratch(0, 64)}); },
      [] { return Call("read", {Scratch(0, 32)}, {}); },
  });
  EXPECT_FALSE(MoveScratch(&chain, 0, Scratch(0, 64), Scratch(128, 64)));
}

// An addition reads an element before it writes it, and so does no other op that this knows of.
TEST(KernelChainTest, OnlyAnAdditionWritesOverTheNewPlace) {
  for (const bool adds : {true, false}) {
    KernelChain chain;
    chain.push_back(Call("make", {}, {Scratch(0, 64)}));
    chain.push_back(
        Call(adds ? "add" : "matmul", {Scratch(0, 64), Scratch(64, 64)}, {Scratch(128, 64)}));
    EXPECT_EQ(MoveScratch(&chain, 0, Scratch(0, 64), Scratch(128, 64)), adds);
  }
}

TEST(KernelChainTest, ADeviceWithoutAJoinerKeepsItsChain) {
  KernelChain chain;
  chain.push_back(Call("cast", {Input(0)}, {Scratch(0, 64)}));
  EXPECT_TRUE(JoinKernels("paper", &chain).ok());
  EXPECT_EQ(chain.size(), 1);
}

}  // namespace
}  // namespace weir::kernels
