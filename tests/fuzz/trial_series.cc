#include "tests/fuzz/trial_series.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir::fuzz {
namespace {

constexpr int64_t kTrialsOfAChild = 200;
constexpr size_t kWhatMax = 2000;
// A trial that waits takes no time of a core, so wall time needs its own limit.
constexpr unsigned kWallSecondsPerSecond = 30;

// A child's report about a trial: the trial began, or it ended.
struct Report {
  enum class Kind : uint8_t { kBegan, kSound, kRefused, kFailed } kind = Kind::kBegan;
  uint64_t seed = 0;
  double seconds = 0;
  char text[kWhatMax] = {};  // the code of a refusal, or the description of a failure
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

bool Send(int pipe, const Report& report) {
  const char* at = reinterpret_cast<const char*>(&report);
  for (size_t left = sizeof(report); left > 0;) {
    const ssize_t n = write(pipe, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    left -= static_cast<size_t>(n);
  }
  return true;
}

bool Receive(int pipe, Report* report) {
  char* at = reinterpret_cast<char*>(report);
  for (size_t left = sizeof(*report); left > 0;) {
    const ssize_t n = read(pipe, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    left -= static_cast<size_t>(n);
  }
  return true;
}

// Limits the time: SIGPROF ends the process after `seconds` of a core's time from now, and SIGALRM
// after many times that wall time.
void LimitTime(double seconds) {
  itimerval limit{};
  limit.it_value.tv_sec = static_cast<time_t>(seconds);
  limit.it_value.tv_usec =
      static_cast<suseconds_t>((seconds - static_cast<double>(limit.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_PROF, &limit, nullptr);
  alarm(static_cast<unsigned>(seconds + 1) * kWallSecondsPerSecond);
}

[[noreturn]] void RunTrials(const Trial& trial, uint64_t begin, uint64_t end, double seconds_max,
                            int pipe) {
  for (uint64_t seed = begin; seed < end; ++seed) {
    Report report;
    report.seed = seed;
    if (!Send(pipe, report)) break;
    LimitTime(seconds_max);
    const double before = CpuSeconds();
    const absl::StatusOr<std::string> outcome = trial(seed);
    report.seconds = CpuSeconds() - before;
    report.kind = !outcome.ok()      ? Report::Kind::kFailed
                  : outcome->empty() ? Report::Kind::kSound
                                     : Report::Kind::kRefused;
    const std::string text = outcome.ok() ? *outcome : outcome.status().ToString();
    std::memcpy(report.text, text.data(), std::min(text.size(), kWhatMax - 1));
    if (!Send(pipe, report)) break;
  }
  _exit(0);
}

class Series {
 public:
  Series(const Trial& trial, const SeriesOptions& options) : trial_(trial), options_(options) {}

  SeriesResult Run() {
    const uint64_t end = options_.first_seed + static_cast<uint64_t>(options_.count);
    for (uint64_t next = options_.first_seed; next < end;)
      next = RunChild(next, std::min(end, next + kTrialsOfAChild));
    return std::move(result_);
  }

 private:
  // Returns the seed to continue with.
  uint64_t RunChild(uint64_t begin, uint64_t end) {
    int ends[2];
    if (pipe(ends) != 0) return Fail(begin, absl::StrCat("no pipe: ", std::strerror(errno)));
    const pid_t child = fork();
    if (child < 0) return Fail(begin, absl::StrCat("no process: ", std::strerror(errno)));
    if (child == 0) {
      close(ends[0]);
      RunTrials(trial_, begin, end, options_.seconds_max, ends[1]);
    }
    close(ends[1]);
    uint64_t next = begin;
    for (Report report; next < end && Receive(ends[0], &report);) {
      if (report.kind == Report::Kind::kBegan) continue;
      Count(report);
      next = report.seed + 1;
    }
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (next == end) return end;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGPROF || signal == SIGALRM)
      return Fail(next, absl::StrFormat("more than %g s", options_.seconds_max));
    return Fail(next, signal > 0 ? absl::StrCat("signal ", signal)
                                 : absl::StrCat("exit code ", WEXITSTATUS(status)));
  }

  uint64_t Fail(uint64_t seed, const std::string& what) {
    result_.failures.push_back({seed, what});
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed), what.c_str());
    Say();
    return seed + 1;
  }

  void Count(const Report& report) {
    if (report.seconds > result_.slowest_seconds) {
      result_.slowest_seconds = report.seconds;
      result_.slowest_seed = report.seed;
    }
    if (report.kind == Report::Kind::kFailed) {
      Fail(report.seed, report.text);
      return;
    }
    if (report.kind == Report::Kind::kSound) {
      ++result_.sound;
    } else {
      ++result_.refused[report.text];
    }
    Say();
  }

  void Say() {
    if (options_.say_every > 0 && ++ended_ % options_.say_every == 0)
      std::fprintf(stderr, "%s\n", ToText(result_).c_str());
  }

  const Trial& trial_;
  const SeriesOptions& options_;
  SeriesResult result_;
  int64_t ended_ = 0;
};

}  // namespace

SeriesResult RunSeries(const Trial& trial, const SeriesOptions& options) {
  return Series(trial, options).Run();
}

std::string ToText(const SeriesResult& result) {
  int64_t refused = 0;
  std::string codes;
  for (const auto& [code, count] : result.refused) {
    refused += count;
    absl::StrAppend(&codes, codes.empty() ? " (" : ", ", code, " ", count);
  }
  const int64_t failed = static_cast<int64_t>(result.failures.size());
  return absl::StrCat(
      result.sound + refused + failed, " trials: ", result.sound, " sound, ", refused, " refused",
      codes.empty() ? "" : codes + ")", ", ", failed, " failed; the slowest took ",
      absl::StrFormat("%.1f s (seed %d)", result.slowest_seconds, result.slowest_seed));
}

}  // namespace weir::fuzz
