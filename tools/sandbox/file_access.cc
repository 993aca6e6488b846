#include "tools/sandbox/file_access.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weir::sandbox {
namespace {

// The kernel's interface as of ABI 6. The headers of Debian 12 have the interface of ABI 2.
struct RulesetAttributes {
  uint64_t handled_files;
  uint64_t handled_network;
  uint64_t scoped;
};
struct __attribute__((packed)) PathAttributes {
  uint64_t allowed;
  int32_t parent;
};
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1;
constexpr unsigned kRulePathBeneath = 1;

constexpr uint64_t kExecute = 1, kWriteFile = 2, kReadFile = 4, kReadDir = 8, kRemoveFile = 32,
                   kMakeRegular = 256;
constexpr uint64_t kRefer = 1 << 13, kTruncate = 1 << 14;
constexpr uint64_t kFilesOfAbi1 = (1 << 13) - 1;  // all uses of a file or folder
constexpr uint64_t kDeviceControl = 1 << 15;
constexpr uint64_t kBindAndConnect = 3;
constexpr uint64_t kSocketsAndSignals = 3;

// Files that tell the amount of memory, the number of cores, and the time.
constexpr const char* kSystemFiles[] = {
    "/proc/meminfo",  "/proc/cpuinfo",       "/proc/stat",          "/proc/self",    "/proc/sys/vm",
    "/sys/fs/cgroup", "/sys/devices/system", "/usr/share/zoneinfo", "/etc/localtime"};

uint64_t FilesOf(long abi) {
  return kFilesOfAbi1 | (abi >= 2 ? kRefer : 0) | (abi >= 3 ? kTruncate : 0) |
         (abi >= 5 ? kDeviceControl : 0);
}

class Ruleset {
 public:
  explicit Ruleset(long abi) : handled_(FilesOf(abi)) {
    const RulesetAttributes attributes = {handled_, abi >= 4 ? kBindAndConnect : 0,
                                          abi >= 6 ? kSocketsAndSignals : 0};
    const size_t size = abi >= 6   ? sizeof(attributes)
                        : abi >= 4 ? 2 * sizeof(uint64_t)
                                   : sizeof(uint64_t);
    descriptor_ = static_cast<int>(::syscall(kCreateRuleset, &attributes, size, 0));
  }
  ~Ruleset() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  // A path that cannot be opened stays closed.
  void Allow(const std::string& path, uint64_t of_files, uint64_t of_folders) {
    const int place = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (place < 0) return;
    struct stat info;
    if (::fstat(place, &info) == 0) {
      const PathAttributes attributes = {
          handled_ & (S_ISDIR(info.st_mode) ? of_files | of_folders : of_files), place};
      ::syscall(kAddRule, descriptor_, kRulePathBeneath, &attributes, 0);
    }
    ::close(place);
  }

  bool Enter() const { return ::syscall(kRestrictSelf, descriptor_, 0) == 0; }

 private:
  const uint64_t handled_;
  int descriptor_ = -1;
};

}  // namespace

int ConfineFiles(const SandboxRules& rules, std::string* why) {
  const long abi = ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (abi < 1) {
    *why = absl::StrCat("this kernel has no Landlock (", ::strerror(errno), ")");
    return 0;
  }
  Ruleset ruleset(abi);
  if (ruleset.is_open()) {
    for (const char* path : kSystemFiles) ruleset.Allow(path, kReadFile, kReadDir);
    for (const std::string& path : rules.read) ruleset.Allow(path, kReadFile, kReadDir);
    for (const std::string& path : rules.write_folders) {
      ruleset.Allow(path, kReadFile | kWriteFile | kTruncate,
                    kReadDir | kMakeRegular | kRemoveFile | kRefer);
    }
    if (ruleset.Enter()) return static_cast<int>(abi);
  }
  *why = absl::StrCat("Landlock refuses (", ::strerror(errno), ")");
  return 0;
}

}  // namespace weir::sandbox
