#include "runtime/base/draw_numbers.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir {
namespace {

TEST(DrawNumbersTest, TheNumbersAreThoseOfSingleCalls) {
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{511}, (uint64_t{1} << 33) + 3}) {
    for (const size_t count : {0, 1, 2, 7, 1023, 2500}) {
      std::vector<float> normals(count), uniforms(count);
      DrawNormals(9, first, absl::MakeSpan(normals));
      DrawUniforms(9, first, absl::MakeSpan(uniforms));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(normals[i], NormalAt(9, first + i)) << first << " + " << i;
        ASSERT_EQ(uniforms[i], UniformAt(9, first + i)) << first << " + " << i;
      }
    }
  }
}

TEST(DrawNumbersTest, LogarithmAndCosineAreThoseOfTheLibrary) {
  for (uint64_t i = 0; i < 200000; ++i) {
    // The ends and the borders of quarters are among the words.
    const uint32_t word =
        i < 64 ? static_cast<uint32_t>((i / 8 << 29) + i % 8 - 4) : RandomBits(3, i)[0];
    const double log = std::log((word + 1.0) * 0x1p-32);
    ASSERT_NEAR(LogOfShare(word), log, 1e-10 * -log) << word;
    ASSERT_NEAR(CosOfTurn(word), std::cos(6.283185307179586 * 0x1p-32 * word), 1e-10) << word;
  }
}

}  // namespace
}  // namespace weir
