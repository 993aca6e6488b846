#include "tools/sandbox/system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace weir::sandbox {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// A filter under construction. The filter keeps the first error that the library reports. A call
// that this machine's kernel does not have is no error.
class Filter {
 public:
  explicit Filter(uint32_t others) : context_(seccomp_init(others)) {
    if (context_ == nullptr) {
      Keep(-ENOMEM);
      return;
    }
    // Keeps the processor's protection against speculation off. Older kernels tie it to filters,
    // and it would slow down all computation.
    Keep(seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_SSB, 1));
  }

  void Add(uint32_t action, std::initializer_list<int> calls) {
    for (int call : calls) Add(action, call, {});
  }
  void Add(uint32_t action, int call, std::initializer_list<scmp_arg_cmp> conditions) {
    if (error_ != 0 || call == __NR_SCMP_ERROR) return;
    Keep(seccomp_rule_add_array(context_.get(), action, call,
                                static_cast<unsigned>(conditions.size()), conditions.begin()));
  }
  void ForAllThreads() {
    if (error_ == 0) Keep(seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_TSYNC, 1));
  }

  // Returns 0, or an error of errno.
  int Enter() {
    if (error_ == 0) Keep(seccomp_load(context_.get()));
    return -error_;
  }

 private:
  struct Release {
    void operator()(void* context) const { seccomp_release(context); }
  };

  void Keep(int result) {
    if (error_ == 0 && result < 0) error_ = result;
  }

  std::unique_ptr<void, Release> context_;
  int error_ = 0;
};

// Allows memory, threads of this process, time, signals to itself, and files that are already open.
void AllowComputing(Filter* filter) {
  filter->Add(SCMP_ACT_ALLOW, {SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
                               SCMP_SYS(mlock), SCMP_SYS(munlock), SCMP_SYS(mincore),
                               SCMP_SYS(msync), SCMP_SYS(membarrier), SCMP_SYS(get_mempolicy)});
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(mmap), {SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)});
  // oneDNN compiles its kernels, and the workspace of a kernel is only known once the kernel is
  // made.
  filter->Add(SCMP_ACT_ALLOW, {SCMP_SYS(mprotect)});
  filter->Add(
      SCMP_ACT_ALLOW,
      {SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(get_robust_list), SCMP_SYS(rseq),
       SCMP_SYS(set_tid_address), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity),
       SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler),
       SCMP_SYS(getcpu), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(arch_prctl)});
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(clone),
              {SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)});
  // The flags of clone3 lie in memory, which a filter cannot read. The C library then falls back to
  // clone.
  filter->Add(SCMP_ACT_ERRNO(ENOSYS), {SCMP_SYS(clone3)});
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), {SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)});
  filter->Add(SCMP_ACT_ALLOW,
              {SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday),
               SCMP_SYS(time), SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep), SCMP_SYS(getrandom),
               SCMP_SYS(restart_syscall)});
  filter->Add(SCMP_ACT_ALLOW, {SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
                               SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack)});
  const scmp_datum_t own = static_cast<scmp_datum_t>(::getpid());
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(tgkill), {SCMP_A0(SCMP_CMP_EQ, own)});
  filter->Add(
      SCMP_ACT_ALLOW,
      {SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid),
       SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getrusage),
       SCMP_SYS(getrlimit), SCMP_SYS(times), SCMP_SYS(getcwd)});
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64),
              {SCMP_A2(SCMP_CMP_EQ, 0)});  // reads the limit, changes nothing
}

void AllowOpenFiles(Filter* filter) {
  filter->Add(SCMP_ACT_ALLOW,
              {SCMP_SYS(read),       SCMP_SYS(readv),    SCMP_SYS(pread64),    SCMP_SYS(preadv),
               SCMP_SYS(write),      SCMP_SYS(writev),   SCMP_SYS(pwrite64),   SCMP_SYS(pwritev),
               SCMP_SYS(lseek),      SCMP_SYS(close),    SCMP_SYS(dup),        SCMP_SYS(fcntl),
               SCMP_SYS(fadvise64),  SCMP_SYS(poll),     SCMP_SYS(ppoll),      SCMP_SYS(fstat),
               SCMP_SYS(stat),       SCMP_SYS(lstat),    SCMP_SYS(newfstatat), SCMP_SYS(statx),
               SCMP_SYS(fstatfs),    SCMP_SYS(statfs),   SCMP_SYS(access),     SCMP_SYS(faccessat),
               SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getdents64),
               SCMP_SYS(fsync),      SCMP_SYS(fdatasync)});
  for (scmp_datum_t request : {TCGETS, TIOCGWINSZ})
    filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(ioctl), {SCMP_A1(SCMP_CMP_EQ, request)});
}

void AllowOpening(Filter* filter, FileWrites writes) {
  if (writes == FileWrites::kNone) {
    constexpr scmp_datum_t kWriting = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
    filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(open), {SCMP_A1(SCMP_CMP_MASKED_EQ, kWriting, O_RDONLY)});
    filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(openat),
                {SCMP_A2(SCMP_CMP_MASKED_EQ, kWriting, O_RDONLY)});
    return;
  }
  filter->Add(
      SCMP_ACT_ALLOW,
      {SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fchmod),
       SCMP_SYS(umask), SCMP_SYS(link), SCMP_SYS(linkat), SCMP_SYS(rename), SCMP_SYS(renameat),
       SCMP_SYS(renameat2), SCMP_SYS(unlink), SCMP_SYS(unlinkat)});
}

}  // namespace

bool FilterSystemCalls(FileWrites writes, std::string* why) {
  if (kSanitized) {
    *why = "no filter of system calls: built with a sanitizer";
    return false;
  }
  Filter filter(SCMP_ACT_ERRNO(EPERM));
  AllowComputing(&filter);
  AllowOpenFiles(&filter);
  AllowOpening(&filter, writes);
  const int error = filter.Enter();
  if (error != 0) *why = absl::StrCat("no filter of system calls (", ::strerror(error), ")");
  return error == 0;
}

bool ForbidProgramsByFilter() {
  if (kSanitized) return false;
  Filter filter(SCMP_ACT_ALLOW);
  filter.Add(SCMP_ACT_ERRNO(EPERM), {SCMP_SYS(execve),       SCMP_SYS(execveat),
                                     SCMP_SYS(ptrace),       SCMP_SYS(mount),
                                     SCMP_SYS(umount2),      SCMP_SYS(pivot_root),
                                     SCMP_SYS(chroot),       SCMP_SYS(unshare),
                                     SCMP_SYS(setns),        SCMP_SYS(init_module),
                                     SCMP_SYS(finit_module), SCMP_SYS(delete_module),
                                     SCMP_SYS(kexec_load),   SCMP_SYS(kexec_file_load),
                                     SCMP_SYS(bpf),          SCMP_SYS(perf_event_open),
                                     SCMP_SYS(userfaultfd),  SCMP_SYS(io_uring_setup),
                                     SCMP_SYS(add_key),      SCMP_SYS(request_key),
                                     SCMP_SYS(keyctl),       SCMP_SYS(open_by_handle_at),
                                     SCMP_SYS(reboot),       SCMP_SYS(swapon),
                                     SCMP_SYS(swapoff)});
  filter.ForAllThreads();
  return filter.Enter() == 0;
}

}  // namespace weir::sandbox
