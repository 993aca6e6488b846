#include "tools/launch/worker_environment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WorkerEnvironmentTest, AWorkerInheritsWhatIsListedInItsOrder) {
  const char* const given[] = {"UCX_TLS=tcp",    "AWS_SECRET_ACCESS_KEY=s3cret",
                               "PATH=/bin",      "LC_ALL=",
                               "GITHUB_TOKEN=t", "WEIR_X=a=b",
                               nullptr};
  EXPECT_THAT(WorkerEnvironment(given),
              ElementsAre("UCX_TLS=tcp", "PATH=/bin", "LC_ALL=", "WEIR_X=a=b"));
}

TEST(WorkerEnvironmentTest, HostsShareWhatTunesLibrariesAndNothingOfOneHost) {
  const char* const given[] = {"UCX_TLS=tcp", "PATH=/bin",     "LC_ALL=C", "CUDA_VISIBLE_DEVICES=1",
                               "OMP_X=",      "HOME=/home/me", nullptr};
  EXPECT_THAT(SharedEnvironment(given), ElementsAre("UCX_TLS=tcp", "OMP_X="));
}

TEST(WorkerEnvironmentTest, NamesThatOnlyLookAlikeAreNotInherited) {
  const char* const given[] = {"PATHS=1",   "PAT=1", "MYUCX_TLS=1",
                               "path=/bin", "UCX",   "http_proxy=http://p",
                               "=x",        "",      nullptr};
  EXPECT_THAT(WorkerEnvironment(given), IsEmpty());
  EXPECT_THAT(WorkerEnvironment(nullptr), IsEmpty());
}

}  // namespace
}  // namespace weir::launch
