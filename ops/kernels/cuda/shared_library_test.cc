#include "ops/kernels/cuda/shared_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using testing::HasSubstr;

TEST(SharedLibraryTest, ALibraryOfTheLoadersSearchIsOpened) {
  const absl::StatusOr<void*> library = OpenSharedLibrary("libc.so.6", "", {});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_TRUE(FunctionOf(*library, "libc.so.6", "malloc").ok());
}

TEST(SharedLibraryTest, AMissingLibraryIsNamedWithThePlacesThatWereSearched) {
  ::setenv("WEIR_CUDA_LIBRARIES", "/no/such/folder:/nor/this", 1);
  const absl::Status status = OpenSharedLibrary("libno_such.so.13", "", {"cu13/lib"}).status();
  ::unsetenv("WEIR_CUDA_LIBRARIES");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("W0565"));
  EXPECT_THAT(status.ToString(), HasSubstr("libno_such.so.13"));
  EXPECT_THAT(status.ToString(), HasSubstr("/no/such/folder, /nor/this, the loader's search"));
}

TEST(SharedLibraryTest, AnotherVersionThatIsThereIsNamed) {
  const absl::Status status = OpenSharedLibrary("libc.so.7", "libc.so.6", {}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("libc.so.6 is there, and is the wrong version"));
}

TEST(SharedLibraryTest, TheReasonIsThatOfTheFolderThatTheUserNames) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "damaged";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libdamaged.so.13") << "no library at all";
  ::setenv("WEIR_CUDA_LIBRARIES", folder.c_str(), 1);
  const absl::Status status = OpenSharedLibrary("libdamaged.so.13", "", {}).status();
  ::unsetenv("WEIR_CUDA_LIBRARIES");
  EXPECT_THAT(status.ToString(), HasSubstr((folder / "libdamaged.so.13").string() + ": "));
}

TEST(SharedLibraryTest, AMissingFunctionIsNamed) {
  const absl::StatusOr<void*> library = OpenSharedLibrary("libc.so.6", "", {});
  ASSERT_TRUE(library.ok()) << library.status();
  const absl::Status status = FunctionOf(*library, "libc.so.6", "no_such_function").status();
  EXPECT_THAT(status.ToString(), HasSubstr("W0566"));
  EXPECT_THAT(status.ToString(), HasSubstr("no_such_function"));
}

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
