// Measures the control plane with very many workers: a real coordinator, and real links in
// processes of this machine, with nothing behind the links. A worker of a job does more than its
// link does, but on its own host; the coordinator is the one part that all workers of a job share.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_link.h"
#include "runtime/limits/process_limits.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

constexpr char kJob[] = "0123456789abcdef";
constexpr int kLinksOfProcess = 512;
constexpr int64_t kHeartbeatMs = 5'000;
constexpr int64_t kPatienceMs = 600'000;
constexpr int kCommands = 5;
constexpr double kIdleSeconds = 10;

// Serves the links `first` to `end` until the job is over. Never returns.
[[noreturn]] void ServeLinks(const std::vector<control::Credentials>& credentials, int first,
                             int end, int address_pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  char address[64] = "";
  if (::read(address_pipe, address, sizeof(address) - 1) <= 0) ::_exit(1);
  std::vector<std::thread> threads;
  for (int worker = first; worker < end; ++worker) {
    threads.emplace_back([&credentials, &address, worker] {
      control::WorkerLinkOptions options;
      options.coordinator_address = address;
      options.job_id = kJob;
      options.worker = WorkerId(worker);
      options.credentials = credentials[static_cast<size_t>(worker)];
      options.build_id = "bench";
      options.heartbeat_ms = kHeartbeatMs;
      options.coordinator_dead_after_ms = kPatienceMs;
      options.connect_limit_ms = kPatienceMs;
      auto link = control::WorkerLink::Connect(std::move(options));
      if (!link.ok()) {
        std::fprintf(stderr, "%s\n", link.status().ToString().c_str());
        return;
      }
      (*link)->Serve([](const std::string& command) { return command; }).IgnoreError();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ::_exit(0);
}

double ResidentMiB() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Measures one job, in a process of its own.
void Measure(int num_workers) {
  const control::JobAuthority authority = Must(control::JobAuthority::Create(kJob));
  std::vector<control::Credentials> credentials;
  const double issue_begin = WallNs();
  for (int worker = 0; worker < num_workers; ++worker)
    credentials.push_back(
        Must(authority.Issue(control::WorkerIdentity(kJob, WorkerId(worker), 1))));
  const double issue_seconds = (WallNs() - issue_begin) * 1e-9;

  int address_pipe[2];
  if (::pipe(address_pipe) != 0) Must(absl::InternalError("pipe"));
  const int num_processes = (num_workers + kLinksOfProcess - 1) / kLinksOfProcess;
  for (int process = 0; process < num_processes; ++process) {
    const int first = process * kLinksOfProcess;
    if (::fork() == 0)
      ServeLinks(credentials, first, std::min(num_workers, first + kLinksOfProcess),
                 address_pipe[0]);
  }
  const double before_mib = ResidentMiB();
  control::CoordinatorOptions options;
  options.job_id = kJob;
  options.num_workers = num_workers;
  options.credentials = Must(authority.Issue(control::CoordinatorIdentity(kJob)));
  options.build_id = "bench";
  options.heartbeat_ms = kHeartbeatMs;
  options.dead_after_ms = kPatienceMs;
  const double begin = WallNs(), cpu_begin = ProcessCpuNs();
  auto coordinator = Must(control::Coordinator::Start(std::move(options)));
  std::string address = coordinator->address();
  address.resize(63, '\0');
  for (int process = 0; process < num_processes; ++process) {
    if (::write(address_pipe[1], address.data(), address.size()) < 0) return;
  }
  Must(coordinator->WaitForWorkers(kPatienceMs));
  const double hello_seconds = (WallNs() - begin) * 1e-9;
  const double hello_cpu = (ProcessCpuNs() - cpu_begin) * 1e-9;

  std::vector<double> command_ms;
  for (int i = 0; i < kCommands; ++i) {
    const double call_begin = WallNs();
    Must(coordinator->CallAll(std::string(100, 'x'), kPatienceMs).status());
    command_ms.push_back((WallNs() - call_begin) * 1e-6);
  }
  const double idle_cpu_begin = ProcessCpuNs();
  std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
  const double idle_share = (ProcessCpuNs() - idle_cpu_begin) * 1e-9 / kIdleSeconds;

  const std::string of = absl::StrCat(num_workers, " workers: ");
  PrintRow({of + "the starter makes their keys", "s", {issue_seconds}});
  PrintRow({of + "all have said hello",
            "s",
            {hello_seconds},
            "",
            {},
            {},
            {},
            "both ends of all connections on this machine"});
  PrintRow({of + "processor time of the starter for that", "s", {hello_cpu}});
  PrintRow({of + "a command to all, and their answers", "ms", command_ms});
  PrintRow({of + "memory of the starter for a worker",
            "KiB",
            {(ResidentMiB() - before_mib) * 1024 / num_workers}});
  PrintRow({of + "heartbeats, share of a core of the starter",
            "%",
            {idle_share * 100},
            "",
            {},
            {},
            {},
            absl::StrCat("one heartbeat each in ", kHeartbeatMs / 1000, " s")});
  coordinator->Shutdown(kPatienceMs);
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  using weir::bench::BenchArgs;
  const BenchArgs args = weir::bench::ParseArgs(argc, argv);
  weir::limits::RaiseOwnLimits();
  std::vector<int> sizes = {256, 1024, 4096};
  if (args.extent == BenchArgs::Extent::kQuick) sizes = {256, 1024};
  if (args.extent == BenchArgs::Extent::kSmoke) sizes = {8};
  for (int size : sizes) {
    // gRPC does not survive a fork, so each job has a process that starts gRPC anew.
    const pid_t job = ::fork();
    if (job == 0) {
      weir::bench::Measure(size);
      std::fflush(stdout);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(job, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}
