// TaskGroup over PMIx, the interface of Open MPI's mpirun and of srun --mpi=pmix. The functions
// come from the system's library at run time, so that machines without PMIx run Weir, too.
#include <dlfcn.h>
#include <pmix.h>

#include <chrono>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/hosts/task_group.h"

namespace weir::hosts {
namespace {

constexpr char kLibrary[] = "libpmix.so.2";
constexpr char kKey[] = "weir.meeting";

struct Pmix {
  std::decay_t<decltype(::PMIx_Init)> init = nullptr;
  std::decay_t<decltype(::PMIx_Get)> get = nullptr;
  std::decay_t<decltype(::PMIx_Put)> put = nullptr;
  std::decay_t<decltype(::PMIx_Commit)> commit = nullptr;
  std::decay_t<decltype(::PMIx_Fence_nb)> fence_nb = nullptr;
  std::decay_t<decltype(::PMIx_Finalize)> finalize = nullptr;
  std::decay_t<decltype(::PMIx_Error_string)> error_string = nullptr;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<Pmix> Load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (library == nullptr) return absl::UnavailableError(::dlerror());
  Pmix pmix;
  if (Find(library, "PMIx_Init", &pmix.init) && Find(library, "PMIx_Get", &pmix.get) &&
      Find(library, "PMIx_Put", &pmix.put) && Find(library, "PMIx_Commit", &pmix.commit) &&
      Find(library, "PMIx_Fence_nb", &pmix.fence_nb) &&
      Find(library, "PMIx_Finalize", &pmix.finalize) &&
      Find(library, "PMIx_Error_string", &pmix.error_string))
    return pmix;
  return absl::UnavailableError(absl::StrCat(kLibrary, " lacks functions of PMIx 2"));
}

using Fence = std::promise<pmix_status_t>;

// The library calls this on a thread of its own, perhaps when nobody waits any more.
void EndFence(pmix_status_t status, void* fence) {
  const std::unique_ptr<Fence> ended(static_cast<Fence*>(fence));
  ended->set_value(status);
}

class PmixGroup final : public TaskGroup {
 public:
  explicit PmixGroup(const Pmix& pmix) : pmix_(pmix) {}
  // A task that leaves without this counts as failed.
  ~PmixGroup() override { Leave(); }

  absl::Status Join() {
    WEIR_RETURN_IF_ERROR(Check("PMIx_Init", pmix_.init(&self_, nullptr, 0)));
    is_joined_ = true;
    WEIR_ASSIGN_OR_RETURN(num_tasks_, NumberOf(PMIX_JOB_SIZE));
    absl::StatusOr<int> local = NumberOf(PMIX_LOCAL_SIZE);
    is_on_one_host_ = local.ok() && *local == num_tasks_;
    return absl::OkStatus();
  }

  TaskId task() const override { return TaskId(static_cast<int32_t>(self_.rank)); }
  int num_tasks() const override { return num_tasks_; }
  bool is_on_one_host() const override { return is_on_one_host_; }

  absl::StatusOr<std::string> Share(const std::string& text, int64_t limit_ms,
                                    const std::function<absl::Status()>& check) override {
    if (task() == kFirstTask) {
      std::string copy = text;
      pmix_value_t value = {};
      value.type = PMIX_STRING;
      value.data.string = copy.data();
      WEIR_RETURN_IF_ERROR(Check("PMIx_Put", pmix_.put(PMIX_GLOBAL, kKey, &value)));
      WEIR_RETURN_IF_ERROR(Check("PMIx_Commit", pmix_.commit()));
    }
    WEIR_RETURN_IF_ERROR(AwaitAll(limit_ms, check));
    std::string shared = text;
    if (task() != kFirstTask) {
      pmix_proc_t first = self_;
      first.rank = 0;
      pmix_value_t* value = nullptr;
      WEIR_RETURN_IF_ERROR(Check("PMIx_Get", pmix_.get(&first, kKey, nullptr, 0, &value)));
      shared =
          value->type == PMIX_STRING && value->data.string != nullptr ? value->data.string : "";
      // The value is small and the task asks once, so it stays: its end is not in every library.
    }
    // Nobody leaves before all have read: a server of some systems drops what a gone task told.
    WEIR_RETURN_IF_ERROR(AwaitAll(limit_ms, check));
    Leave();
    return shared;
  }

 private:
  void Leave() {
    if (std::exchange(is_joined_, false)) pmix_.finalize(nullptr, 0);
  }

  // Waits until all tasks have come here.
  absl::Status AwaitAll(int64_t limit_ms, const std::function<absl::Status()>& check) {
    const MonotonicClock clock;
    const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
    auto* const fence = new Fence;  // EndFence deletes it
    std::future<pmix_status_t> ended = fence->get_future();
    const pmix_status_t begun = pmix_.fence_nb(nullptr, 0, nullptr, 0, &EndFence, fence);
    if (begun != PMIX_SUCCESS) {
      delete fence;
      return begun == PMIX_OPERATION_SUCCEEDED ? absl::OkStatus() : Check("PMIx_Fence", begun);
    }
    while (ended.wait_for(std::chrono::milliseconds(kCheckEveryMs)) != std::future_status::ready) {
      const bool is_late = clock.NowNs() >= end_ns;
      absl::Status status = check();
      if (status.ok() && is_late)
        status = absl::DeadlineExceededError(NotAllText("PMIx", limit_ms));
      if (status.ok()) continue;
      is_joined_ = false;  // PMIx_Finalize would wait for the fence
      return status;
    }
    return Check("PMIx_Fence", ended.get());
  }

  absl::Status Check(const char* function, pmix_status_t status) const {
    if (status == PMIX_SUCCESS) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(function, ": ", pmix_.error_string(status)));
  }

  // Reads a number that belongs to the whole job.
  absl::StatusOr<int> NumberOf(const char* key) const {
    pmix_proc_t job = self_;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* value = nullptr;
    WEIR_RETURN_IF_ERROR(
        Check(absl::StrCat("PMIx_Get ", key).c_str(), pmix_.get(&job, key, nullptr, 0, &value)));
    if (value->type != PMIX_UINT32)
      return absl::UnavailableError(absl::StrCat("PMIx_Get ", key, ": no number"));
    return static_cast<int>(value->data.uint32);
  }

  const Pmix pmix_;
  pmix_proc_t self_ = {};
  bool is_joined_ = false;
  int num_tasks_ = 0;
  bool is_on_one_host_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TaskGroup>> TaskGroup::JoinPmix() {
  WEIR_ASSIGN_OR_RETURN(const Pmix pmix, Load());
  auto group = std::make_unique<PmixGroup>(pmix);
  WEIR_RETURN_IF_ERROR(group->Join());
  return group;
}

}  // namespace weir::hosts
