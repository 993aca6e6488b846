#include "tools/live/live_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/live/live_run.h"

namespace weir::live {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kStateBytesMax = 64u << 20;
constexpr int kDepthMax = 6;      // of a state: an object, a list, an object, a list, numbers
constexpr int kTries = 20;        // to read a state that is being written
constexpr int kTryAgainMs = 1;    // between two tries
constexpr size_t kRunsShown = 8;  // in an error

std::string FolderOf(int64_t pid) { return absl::StrCat("/proc/", pid); }

// Calls `use` for every name in a folder that is a number.
template <typename Use>
void ForEachNumberIn(const std::string& folder, const Use& use) {
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) return;
  while (const dirent* entry = ::readdir(open)) {
    int64_t number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number)) use(number);
  }
  ::closedir(open);
}

// Opens a file; -1 if it is anything else, which might let the reader wait.
int OpenFile(const std::string& path) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat facts = {};
  if (opened < 0 || (::fstat(opened, &facts) == 0 && S_ISREG(facts.st_mode))) return opened;
  ::close(opened);
  return -1;
}

// Returns whether a descriptor's link leads to a file in memory of that name.
bool IsInMemory(absl::string_view target, absl::string_view name) {
  return absl::StartsWith(target, absl::StrCat("/memfd:", name, " "));
}

// The descriptors of the files of a record; -1: there is none.
struct RecordFiles {
  int now = -1;
  int history = -1;
};

// Opens the files of the record that a process has.
RecordFiles OpenRecord(int64_t pid) {
  const std::string folder = FolderOf(pid) + "/fd";
  RecordFiles files;
  ForEachNumberIn(folder, [&folder, &files](int64_t number) {
    const std::string path = absl::StrCat(folder, "/", number);
    char link[64];
    const ssize_t size = ::readlink(path.c_str(), link, sizeof(link));
    const absl::string_view target(link, static_cast<size_t>(std::max<ssize_t>(0, size)));
    if (files.now < 0 && IsInMemory(target, kNowName)) files.now = OpenFile(path);
    if (files.history < 0 && IsInMemory(target, kHistoryName)) files.history = OpenFile(path);
  });
  return files;
}

// Returns the number of a process in its own namespace, which is the number that it knows.
int64_t OwnNumberOf(int64_t pid) {
  std::ifstream status(FolderOf(pid) + "/status");
  std::string line;
  int64_t number = pid;
  while (std::getline(status, line)) {
    if (!absl::StartsWith(line, "NSpid:")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipEmpty());
    (void)absl::SimpleAtoi(words.back(), &number);
  }
  return number;
}

double NumberIn(const Json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_number() ? at->get<double>()
                                               : std::numeric_limits<double>::quiet_NaN();
}
int64_t IntegerIn(const Json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}
std::string TextIn(const Json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}
// Returns the member `field` if it is an object or a list; otherwise an empty one.
Json PartIn(const Json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_structured() ? *at : Json();
}

std::vector<double> NumbersIn(const Json& object, const char* field) {
  std::vector<double> numbers;
  for (const Json& number : PartIn(object, field)) {
    if (number.is_number()) numbers.push_back(number.get<double>());
  }
  return numbers;
}

void TakeFacts(const Json& facts, LiveState* state) {
  state->has_facts = facts.is_object();
  if (!state->has_facts) return;
  state->steps = IntegerIn(facts, "steps");
  state->item = TextIn(facts, "item");
  state->parameters = IntegerIn(facts, "parameters");
  state->mesh = TextIn(facts, "mesh");
  state->where = TextIn(facts, "where");
  state->ranks = IntegerIn(facts, "ranks");
  state->threads_per_rank = IntegerIn(facts, "threads_per_rank");
  state->bytes_per_rank = IntegerIn(facts, "bytes_per_rank");
  for (const Json& bytes : PartIn(facts, "bytes_of_rank"))
    state->bytes_of_rank.push_back(bytes.is_number_integer() ? bytes.get<int64_t>() : 0);
  state->flops_per_step = NumberIn(facts, "flops_per_step");
  state->peak_flops = NumberIn(facts, "peak_flops");
  state->peak_from = TextIn(facts, "peak_from");
}

void TakeStep(const Json& step, LiveState* state) {
  state->has_step = step.is_object();
  if (!state->has_step) return;
  state->step.step = IntegerIn(step, "step");
  state->step.loss = NumberIn(step, "loss");
  state->step.gradient_norm = NumberIn(step, "grad_norm");
  state->step.learning_rate = NumberIn(step, "lr");
  state->step.items_per_second = NumberIn(step, "items_per_second");
  state->step.step_seconds = NumberIn(step, "step_seconds");
  state->step.seconds_left = NumberIn(step, "seconds_left");
  state->step.mfu = NumberIn(step, "mfu");
  state->step.parts = NumbersIn(step, "parts");
}

void TakeRanks(const Json& object, LiveState* state) {
  for (const Json& rank : PartIn(object, "work")) {
    if (rank.is_object()) {
      state->work.push_back({IntegerIn(rank, "rank"), IntegerIn(rank, "stage"),
                             NumberIn(rank, "busy"), NumbersIn(rank, "parts")});
    }
  }
  for (const Json& worker : PartIn(object, "workers")) {
    if (!worker.is_object()) continue;
    LiveState::Worker& taken = state->workers.emplace_back();
    for (const Json& rank : PartIn(worker, "ranks")) {
      if (rank.is_number_integer()) taken.ranks.push_back(rank.get<int64_t>());
    }
    taken.host = TextIn(worker, "host");
    taken.state = TextIn(worker, "state");
    taken.activity = TextIn(worker, "activity");
    taken.pid = IntegerIn(worker, "pid");
    taken.silent_ms = IntegerIn(worker, "silent_ms");
    taken.acts = IntegerIn(worker, "acts");
    taken.resident_bytes = IntegerIn(worker, "resident_bytes");
  }
}

LiveState StateOf(const Json& object) {
  LiveState state;
  state.pid = IntegerIn(object, "pid");
  state.title = TextIn(object, "title");
  state.phase = TextIn(object, "phase");
  state.started_unix_ms = IntegerIn(object, "started_unix_ms");
  state.updated_unix_ms = IntegerIn(object, "updated_unix_ms");
  state.phase_since_unix_ms = IntegerIn(object, "phase_since_unix_ms");
  const Json doing = PartIn(object, "doing");
  state.doing = {TextIn(doing, "what"), IntegerIn(doing, "done"), IntegerIn(doing, "of")};
  state.resident_bytes = IntegerIn(object, "resident_bytes");
  for (const Json& name : PartIn(object, "part_names"))
    state.part_names.push_back(name.is_string() ? name.get<std::string>() : "");
  TakeFacts(PartIn(object, "facts"), &state);
  TakeStep(PartIn(object, "step"), &state);
  state.stepped_unix_ms = IntegerIn(object, "stepped_unix_ms");
  state.evaluation = TextIn(PartIn(object, "evaluation"), "text");
  const Json restart = PartIn(object, "restart");
  state.epoch = IntegerIn(object, "epoch");
  state.restarts = IntegerIn(restart, "count");
  state.restarted_after_step = IntegerIn(restart, "after_step");
  const Json recovery = PartIn(object, "recovery");
  state.recoveries = IntegerIn(recovery, "count");
  state.recovered = TextIn(recovery, "who");
  state.recovered_to_step = IntegerIn(recovery, "to_step");
  state.recovery_seconds = NumberIn(recovery, "seconds");
  const Json growth = PartIn(object, "growth");
  state.growths = IntegerIn(growth, "count");
  state.grown_after_step = IntegerIn(growth, "after_step");
  state.growth_seconds = NumberIn(growth, "seconds");
  TakeRanks(object, &state);
  state.warnings = IntegerIn(object, "warnings");
  state.said = TextIn(object, "said");
  const Json end = PartIn(object, "end");
  state.has_ended = end.is_object();
  state.code = IntegerIn(end, "code");
  state.report = TextIn(end, "report");
  return state;
}

// Returns a state that was written whole; nullopt: it is half old and half new.
std::optional<std::string> ReadState(int descriptor) {
  uint32_t head[2] = {};
  if (::pread(descriptor, head, sizeof(head), 0) != sizeof(head)) return std::nullopt;
  if (head[0] == 0 || head[0] > kStateBytesMax) return std::nullopt;
  std::string text(head[0], '\0');
  if (::pread(descriptor, text.data(), text.size(), sizeof(head)) !=
      static_cast<ssize_t>(text.size()))
    return std::nullopt;
  if (Crc32c(text.data(), text.size()) != head[1]) return std::nullopt;
  return text;
}

std::string RunText(const LiveReader& run, const LiveState& state) {
  return absl::StrCat(run.pid(), " (", state.title, ", ", state.phase, ")");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LiveReader>> LiveReader::Open(int64_t pid) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  const RecordFiles files = OpenRecord(pid);
  std::unique_ptr<LiveReader> reader(new LiveReader(pid, process, files.now, files.history));
  const absl::Status none = absl::NotFoundError(absl::StrCat("process ", pid, " has no record"));
  if (process < 0 || reader->now_ < 0 || reader->history_ < 0) return none;
  const absl::StatusOr<LiveState> state = reader->State();
  // A process that reads the record of another, or has inherited it, has these files open, too.
  if (!state.ok() || state->pid != OwnNumberOf(pid)) return none;
  return reader;
}

LiveReader::~LiveReader() {
  for (const int descriptor : {process_, now_, history_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

bool LiveReader::IsAlive() const {
  pollfd process = {process_, POLLIN, 0};
  return ::poll(&process, 1, 0) == 0;
}

absl::StatusOr<std::string> LiveReader::StateText() const {
  for (int i = 0; i < kTries; ++i) {
    if (std::optional<std::string> text = ReadState(now_); text.has_value())
      return *std::move(text);
    ::poll(nullptr, 0, kTryAgainMs);
  }
  return absl::UnavailableError(absl::StrCat("the record of process ", pid_, " cannot be read"));
}

absl::StatusOr<LiveState> LiveReader::State() const {
  WEIR_ASSIGN_OR_RETURN(const std::string text, StateText());
  const Json object = ParseState(text);
  if (!object.is_object()) return absl::UnavailableError("the record is no JSON object");
  return StateOf(object);
}

absl::StatusOr<SeenRun> LiveReader::See() const {
  const bool is_alive = IsAlive();
  WEIR_ASSIGN_OR_RETURN(LiveState state, State());
  return SeenRun{pid_, is_alive, std::move(state)};
}

std::string LiveReader::History(int64_t from, int64_t bytes_max) const {
  std::string text(static_cast<size_t>(bytes_max), '\0');
  const ssize_t size = ::pread(history_, text.data(), text.size(), from);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  const size_t end = text.rfind('\n');
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text;
}

nlohmann::ordered_json ParseState(absl::string_view text) {
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDepthMax; };
  Json object = Json::parse(text, is_shallow, /*allow_exceptions=*/false);
  return object.is_object() ? object : Json();
}

std::vector<std::unique_ptr<LiveReader>> FindRuns() {
  std::vector<std::pair<int64_t, std::unique_ptr<LiveReader>>> found;
  ForEachNumberIn("/proc", [&found](int64_t pid) {
    absl::StatusOr<std::unique_ptr<LiveReader>> reader = LiveReader::Open(pid);
    if (!reader.ok()) return;
    const absl::StatusOr<LiveState> state = (*reader)->State();
    if (state.ok()) found.emplace_back(state->started_unix_ms, *std::move(reader));
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.first, a.second->pid()) < std::make_pair(b.first, b.second->pid());
  });
  std::vector<std::unique_ptr<LiveReader>> runs;
  for (auto& [started, reader] : found) runs.push_back(std::move(reader));
  return runs;
}

absl::StatusOr<std::unique_ptr<LiveReader>> FindRun(absl::string_view name) {
  std::vector<std::unique_ptr<LiveReader>> fitting;
  std::vector<std::string> texts;
  for (std::unique_ptr<LiveReader>& run : FindRuns()) {
    const absl::StatusOr<LiveState> state = run->State();
    if (!state.ok()) continue;
    texts.push_back(RunText(*run, *state));
    if (name.empty() || name == absl::StrCat(run->pid()) || name == state->title)
      fitting.push_back(std::move(run));
  }
  if (fitting.size() == 1) return std::move(fitting.front());
  const size_t more = texts.size() - std::min(texts.size(), kRunsShown);
  texts.resize(texts.size() - more);
  const std::string runs = absl::StrJoin(texts, ", ");
  return ErrorOf(
      absl::StatusCode::kNotFound,
      {"W0891", "the run",
       name.empty() ? "one run of this user on this machine"
                    : absl::StrCat("one run of this user with the process id or name '", name, "'"),
       texts.empty() ? "none"
                     : absl::StrCat(fitting.empty() ? "others: " : "several: ", runs,
                                    more > 0 ? absl::StrCat(" and ", more, " more") : ""),
       texts.empty() ? "start one (weir train), or go to the machine on which it was started"
                     : "name one by its process id"});
}

}  // namespace weir::live
