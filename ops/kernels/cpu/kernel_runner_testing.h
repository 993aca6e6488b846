// Runs a kernel for tests: makes the kernel through the registry, runs it on teams of 1, 2, 3 and 4
// threads, and checks that all teams give the same bits, write every byte of their outputs that
// they should, and write no other bytes. Values are doubles on the outside. If WEIR_TEST_MACHINE is
// avx2 or baseline in the environment, instruction sets beyond that set are not used. If
// WEIR_TEST_DEVICE names another kind of device than "cpu", its kernels run instead, in all orders
// of threads (ops/kernels/testing/kernel_trial.h).
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/kernels/testing/kernel_trial.h"

namespace weir::kernels {

struct TestTensor {
  TensorSlice slice;
  std::vector<double> values;  // representable in slice.dtype

  int64_t size() const { return static_cast<int64_t>(values.size()); }
  double operator[](int64_t i) const { return values[i]; }
};

// Returns the value as the type would store it.
double Stored(DType dtype, double value);

// Returns standard normals (or, for i32, integers below 1000), the same for the same seed.
TestTensor RandomTensor(TensorSlice slice, uint64_t seed);
TestTensor RandomTensor(DType dtype, Shape shape, uint64_t seed);
// Returns integers in [low, high).
TestTensor RandomIndices(Shape shape, int64_t low, int64_t high, uint64_t seed);
TestTensor TensorOf(DType dtype, Shape shape, std::vector<double> values);

struct RunOptions {
  int64_t step = 0;
  int64_t micro_batch = 0;
  int64_t chunk = 0;
  int64_t span_act = 0;
  uint64_t random_key = 0;
  // Outputs that start with these values (in-place ops); other outputs start as NaN patterns.
  std::vector<TestTensor> initial_outputs;
  Transfer transfer;  // of an op of transfers
};

// An absent input or output is nullopt.
using TestInputs = std::vector<std::optional<TestTensor>>;
using TestOutputs = std::vector<std::optional<TensorSlice>>;

// Failures are reported to GoogleTest; the results then hold zeros.
std::vector<TestTensor> RunKernel(const std::string& op, const Attributes& attrs,
                                  const TestInputs& inputs, const TestOutputs& outputs,
                                  const RunOptions& options = {});

// Returns how far a stored result may be from the reference: relative to max(1, |reference|).
double Tolerance(DType dtype);

// Expects |actual - expected[i]| <= tolerance * max(1, |expected[i]|) * scale for every element.
void ExpectClose(const TestTensor& actual, const std::vector<double>& expected, double scale = 1);
void ExpectEqualValues(const TestTensor& actual, const std::vector<double>& expected);

}  // namespace weir::kernels
