// Tests NCCL behind the interface of collectives. Without a GPU: how the library is found, its
// declarations, and its errors. With a GPU: the suite of all collectives for one rank, and for two
// processes on one GPU, which NCCL takes for two hosts (NCCL_HOSTID) that a socket connects. That
// tests what is right, and never how fast it is: the processes take turns on the GPU.
//
// The program needs no file but itself and the libraries that `ldd` names, so that it can be
// carried to a machine with a GPU.
#include "runtime/collective/nccl_collective.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif

#include "runtime/collective/collective_conformance.h"
#include "runtime/collective/collective_failures_conformance.h"
#include "runtime/collective/nccl_gpu_testing.h"
#include "runtime/collective/nccl_library.h"

namespace weir::collective {
namespace {

// --- without a GPU ---------------------------------------------------------------------

TEST(NcclLibraryTest, TheSearchGoesFromTheUsersFoldersToThePackagesOfPython) {
  const std::vector<std::string> found =
      NcclLibrary::Candidates(+[](const char* name) -> std::string {
        if (std::string(name) == "WEIR_CUDA_LIBRARIES") return "/a:/b";
        if (std::string(name) == "CUDA_HOME") return "/toolkit";
        return "";
      });
  ASSERT_GE(found.size(), 5u);
  EXPECT_EQ(std::vector<std::string>(found.begin(), found.begin() + 5),
            (std::vector<std::string>{"/a/libnccl.so.2", "/b/libnccl.so.2", "libnccl.so.2",
                                      "/toolkit/lib64/libnccl.so.2",
                                      "/usr/local/cuda/lib64/libnccl.so.2"}));
}

TEST(NcclLibraryTest, PackagesOfPythonAreFoundBelowTheVirtualEnvironment) {
  static const std::string venv = ::testing::TempDir() + "/nccl_venv";
  const std::string folder = venv + "/lib/python3.9/site-packages/nvidia/nccl/lib";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/libnccl.so.2") << "no library";
  const std::vector<std::string> found = NcclLibrary::Candidates(
      +[](const char* name) { return std::string(name) == "VIRTUAL_ENV" ? venv : std::string(); });
  EXPECT_NE(std::find(found.begin(), found.end(), folder + "/libnccl.so.2"), found.end());
  const absl::Status status = NcclLibrary::OpenFirst({folder + "/libnccl.so.2"}).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "W0950")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), folder)) << "says what was tried: " << status;
}

TEST(NcclLibraryTest, ALibraryThatIsNotNcclIsRefusedWithWhatWasFound) {
  const absl::Status status = NcclLibrary::OpenFirst({"/none/libnccl.so.2", "libm.so.6"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "W0950 at libm.so.6")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "does not tell its version")) << status;
}

TEST(NcclLibraryTest, VersionsAreShownAsNcclShowsThem) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

#ifdef NCCL_VERSION_CODE
TEST(NcclLibraryTest, TheDeclarationsAreThoseOfNcclsHeader) {
  EXPECT_EQ(kNcclUniqueIdBytes, NCCL_UNIQUE_ID_BYTES);
  EXPECT_EQ(static_cast<int>(NcclResult::kSuccess), ncclSuccess);
  EXPECT_EQ(static_cast<int>(NcclResult::kUnhandledCudaError), ncclUnhandledCudaError);
  EXPECT_EQ(static_cast<int>(NcclResult::kSystemError), ncclSystemError);
  EXPECT_EQ(static_cast<int>(NcclResult::kInternalError), ncclInternalError);
  EXPECT_EQ(static_cast<int>(NcclResult::kInvalidArgument), ncclInvalidArgument);
  EXPECT_EQ(static_cast<int>(NcclResult::kInvalidUsage), ncclInvalidUsage);
  EXPECT_EQ(static_cast<int>(NcclResult::kRemoteError), ncclRemoteError);
  EXPECT_EQ(static_cast<int>(NcclResult::kInProgress), ncclInProgress);
  EXPECT_EQ(static_cast<int>(NcclRedOp::kSum), ncclSum);
  EXPECT_EQ(static_cast<int>(NcclRedOp::kMax), ncclMax);
  EXPECT_EQ(static_cast<int>(NcclDataType::kUint8), ncclUint8);
  EXPECT_EQ(static_cast<int>(NcclDataType::kInt32), ncclInt32);
  EXPECT_EQ(static_cast<int>(NcclDataType::kFloat32), ncclFloat32);
  EXPECT_EQ(static_cast<int>(NcclDataType::kBfloat16), ncclBfloat16);
  EXPECT_EQ(static_cast<int>(NcclDataType::kFloat16), ncclFloat16);
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_LE(sizeof(NcclConfig), sizeof(ncclConfig_t));
  EXPECT_EQ(offsetof(NcclConfig, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
}
#endif

CommunicatorSpec OneRank(const std::string& id) {
  CommunicatorSpec spec;
  spec.group = "alone";
  spec.ranks = {RankId(0)};
  spec.unique_id = id;
  spec.limit_ms = 20'000;
  return spec;
}

TEST(NcclErrorTest, AnIdThatIsNotOfNcclIsRefused) {
  const absl::StatusOr<NcclLibrary> library = NcclLibrary::Open();
  if (!library.ok()) GTEST_SKIP() << "NOT RUN: " << library.status();
  const absl::Status status = NcclCollectives(*library).Create(OneRank("short")).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "W0952")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "5 bytes")) << status;
}

TEST(NcclErrorTest, WithoutAGpuACommunicatorIsAnErrorWithNcclsOwnWords) {
  const absl::StatusOr<NcclLibrary> library = NcclLibrary::Open();
  if (!library.ok()) GTEST_SKIP() << "NOT RUN: " << library.status();
  if (TestGpu::Probe().ok()) GTEST_SKIP() << "NOT RUN: there is a GPU";
  NcclCollectives nccl(*library);
  EXPECT_TRUE(absl::StrContains(nccl.name(), "NCCL 2.")) << nccl.name();
  const absl::StatusOr<std::string> id = nccl.NewUniqueId();
  const absl::Status status = id.ok() ? nccl.Create(OneRank(*id)).status() : id.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "W0952")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "nccl")) << status;
  std::printf("NCCL without a GPU: %s\n", std::string(status.message()).c_str());
}

// --- with a GPU ------------------------------------------------------------------------

constexpr char kRankVariable[] = "WEIR_TEST_NCCL_RANK";
constexpr char kFolderVariable[] = "WEIR_TEST_NCCL_FOLDER";
constexpr int kPair = 2;
constexpr int64_t kLimitMs = 60'000;

// An exchange of processes that share a folder.
class FolderExchange final : public transport::Exchange {
 public:
  explicit FolderExchange(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Publish(const std::string& key, const std::string& value) override {
    const std::string path = PathOf(key);
    if (std::filesystem::exists(path)) return absl::AlreadyExistsError(key);
    std::ofstream(path + ".new", std::ios::binary) << value;
    std::filesystem::rename(path + ".new", path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Fetch(const std::string& key) override {
    const MonotonicClock clock;
    const int64_t end_ns = clock.NowNs() + kLimitMs * 1'000'000;
    while (!std::filesystem::exists(PathOf(key))) {
      if (clock.NowNs() > end_ns) return absl::DeadlineExceededError(key);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::ostringstream value;
    value << std::ifstream(PathOf(key), std::ios::binary).rdbuf();
    return value.str();
  }

 private:
  std::string PathOf(std::string key) const {
    for (char& c : key) c = c == '/' || c == ' ' ? '_' : c;
    return folder_ + "/" + key;
  }
  const std::string folder_;
};

class GpuSeat final : public CollectiveSeat {
 public:
  GpuSeat(std::unique_ptr<TestGpu> gpu, CollectiveLibrary* library, transport::Exchange* exchange)
      : gpu_(std::move(gpu)), library_(library), exchange_(exchange) {}
  CollectiveLibrary* library() override { return library_; }
  transport::Exchange* exchange() override { return exchange_; }
  device::CudaStream stream() override { return gpu_->stream(); }
  StreamMarks* marks() override { return gpu_.get(); }
  char* Allocate(int64_t bytes) override {
    char* const block = gpu_->Allocate(bytes);
    EXPECT_NE(block, nullptr) << bytes;
    return block;
  }
  void Write(char* to, const void* from, int64_t bytes) override {
    EXPECT_EQ(gpu_->Write(to, from, bytes), 0);
  }
  void Read(void* to, const char* from, int64_t bytes) override {
    EXPECT_EQ(gpu_->Read(to, from, bytes), 0);
  }
  absl::Status Finish(Communicator* communicator) override {
    while (true) {
      const absl::Status error = communicator->AsyncError();
      if (!error.ok()) return error;
      const absl::StatusOr<bool> is_done = gpu_->IsDone();
      if (!is_done.ok()) return is_done.status();
      if (*is_done) return communicator->AsyncError();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  const std::unique_ptr<TestGpu> gpu_;
  CollectiveLibrary* const library_;
  transport::Exchange* const exchange_;
};

// This process is one rank of `num_processes`.
class GpuFixture final : public CollectiveFixture {
 public:
  GpuFixture(int rank, int num_processes, std::string folder)
      : rank_(rank), num_processes_(num_processes), folder_(std::move(folder)) {}
  std::string Missing(int size) const override {
    if (size != num_processes_)
      return absl::StrCat("groups of ", size, " need as many processes; the test starts them");
    const absl::Status gpu = TestGpu::Probe();
    if (!gpu.ok()) return absl::StrCat("there is no GPU: ", gpu.message());
    const absl::Status library = NcclLibrary::Open().status();
    return library.ok() ? "" : std::string(library.message());
  }
  int64_t overdue_ms() const override { return 3'000; }
  void OnEachRank(int size,
                  const std::function<void(int rank, CollectiveSeat* seat)>& body) override {
    absl::StatusOr<std::unique_ptr<TestGpu>> gpu = TestGpu::Open();
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    absl::StatusOr<NcclLibrary> library = NcclLibrary::Open();
    ASSERT_TRUE(library.ok()) << library.status();
    NcclCollectives nccl(*library);
    transport::LocalExchange local(kLimitMs);
    FolderExchange shared(folder_);
    GpuSeat seat(*std::move(gpu), &nccl,
                 folder_.empty() ? static_cast<transport::Exchange*>(&local) : &shared);
    body(rank_, &seat);
  }

 private:
  const int rank_;
  const int num_processes_;
  const std::string folder_;
};

std::unique_ptr<CollectiveFixture> MakeLoneFixture() {
  return std::make_unique<GpuFixture>(0, 1, "");
}
std::unique_ptr<CollectiveFixture> MakePairFixture() {
  const char* const rank = std::getenv(kRankVariable);
  const char* const folder = std::getenv(kFolderVariable);
  if (rank == nullptr || folder == nullptr) return std::make_unique<GpuFixture>(0, 0, "");
  return std::make_unique<GpuFixture>(std::atoi(rank), kPair, folder);
}

INSTANTIATE_TEST_SUITE_P(NcclAlone, CollectiveConformance,
                         ::testing::Combine(::testing::Values(&MakeLoneFixture),
                                            ::testing::Values(1)));
INSTANTIATE_TEST_SUITE_P(NcclPair, CollectiveConformance,
                         ::testing::Combine(::testing::Values(&MakePairFixture),
                                            ::testing::Values(kPair)));

TEST(NcclThreadTest, CallsFromAnotherThreadAreRefused) {
  GpuFixture fixture(0, 1, "");
  if (const std::string missing = fixture.Missing(1); !missing.empty())
    GTEST_SKIP() << "NOT RUN: " << missing;
  fixture.OnEachRank(1, [](int, CollectiveSeat* seat) {
    CommunicatorSpec spec = OneRank("");
    absl::StatusOr<std::unique_ptr<Communicator>> made =
        CreateOver(seat->exchange(), seat->library(), spec);
    ASSERT_TRUE(made.ok()) << made.status();
    char* const at = seat->Allocate(64);
    std::thread([&] {
      const absl::Status status = (*made)->Run({.count = 1, .from = at, .to = at}, seat->stream());
      EXPECT_TRUE(absl::StrContains(status.message(), "another thread")) << status;
      EXPECT_FALSE((*made)->AsyncError().ok());
    }).join();
    EXPECT_EQ((*made)->AsyncError(), absl::OkStatus());
  });
}

// Starts this program as a rank of the pair. Each rank says that it is on a host of its own.
pid_t StartRank(int rank, const std::string& folder) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(240);
  const std::vector<std::pair<std::string, std::string>> settings = {
      {kRankVariable, std::to_string(rank)},
      {kFolderVariable, folder},
      {"NCCL_HOSTID", absl::StrCat("host", rank)},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_NET", "Socket"},
      {"NCCL_ALGO", "Ring"},
      {"NCCL_PROTO", "Simple"},
      {"CUDA_MODULE_LOADING", "EAGER"}};
  for (const auto& [name, value] : settings) ::setenv(name.c_str(), value.c_str(), 1);
  const std::string output = absl::StrCat(folder, "/rank", rank, ".txt");
  if (std::freopen(output.c_str(), "w", stdout) == nullptr) ::_exit(90);
  ::dup2(::fileno(stdout), STDERR_FILENO);
  ::execl("/proc/self/exe", "nccl_collective_test", "--gtest_filter=NcclPair/*", nullptr);
  ::_exit(91);
}

TEST(NcclProcessesTest, TwoProcessesOnOneGpuPassTheSuite) {
  if (std::getenv(kRankVariable) != nullptr) GTEST_SKIP() << "this is a process of the pair";
  if (const std::string missing = GpuFixture(0, kPair, "").Missing(kPair); !missing.empty())
    GTEST_SKIP() << "NOT RUN: " << missing;
  const std::string folder = absl::StrCat(::testing::TempDir(), "/nccl_pair_", ::getpid());
  std::filesystem::create_directories(folder);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kPair; ++rank) ranks.push_back(StartRank(rank, folder));
  for (int rank = 0; rank < kPair; ++rank) {
    int status = 0;
    ::waitpid(ranks[rank], &status, 0);
    std::ostringstream text;
    text << std::ifstream(absl::StrCat(folder, "/rank", rank, ".txt")).rdbuf();
    std::printf("--- rank %d of the pair ---\n%s\n", rank, text.str().c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": " << status;
    EXPECT_TRUE(absl::StrContains(text.str(), "[  PASSED  ]")) << "rank " << rank;
    EXPECT_FALSE(absl::StrContains(text.str(), "NOT RUN")) << "rank " << rank;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weir::collective
