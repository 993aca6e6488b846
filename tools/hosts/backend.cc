#include "tools/hosts/backend.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace weir::hosts {
namespace {

int NumberIn(const std::string& text, int otherwise) {
  int number = 0;
  return absl::SimpleAtoi(text, &number) ? number : otherwise;
}

// Returns whether several tasks or nodes belong to the step or allocation.
bool IsSpreadBySlurm(const GetVariable& get) {
  if (get("SLURM_JOB_ID").empty()) return false;
  if (IsSlurmStep(get))
    return NumberIn(get("SLURM_STEP_NUM_TASKS"), 1) > 1 ||
           NumberIn(get("SLURM_STEP_NUM_NODES"), 1) > 1;
  return NumberIn(get("SLURM_NNODES"), 1) > 1 || NumberIn(get("SLURM_NTASKS"), 1) > 1;
}

absl::Status BadVariable(const std::string& name, const std::string& expected,
                         const std::string& found) {
  return Rejected(
      {"W0870", name, expected, absl::StrCat("'", found, "'"),
       "srun, sbatch or salloc start a job of Slurm; else --hosts, or --backend local"});
}

}  // namespace

std::string OwnVariable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

Detected DetectBackend(const std::string& wanted, bool lists_hosts, const GetVariable& get) {
  for (size_t i = 0; i < std::size(kBackendNames); ++i) {
    if (wanted == kBackendNames[i]) return {static_cast<Backend>(i), "--backend"};
  }
  if (lists_hosts && !get("JOB_COMPLETION_INDEX").empty())
    return {Backend::kIndex, "JOB_COMPLETION_INDEX is set, and hosts are listed"};
  if (lists_hosts) return {Backend::kSsh, "hosts are listed"};
  if (!get("PMIX_NAMESPACE").empty() && !get("PMIX_RANK").empty()) {
    // Open MPI tells the number of tasks. A single one needs no others.
    if (get("OMPI_COMM_WORLD_SIZE") == "1") return {Backend::kLocal, "mpirun starts one task"};
    return {Backend::kPmix, "PMIX_RANK is set"};
  }
  if (!get("MPI_LOCALNRANKS").empty() && !get("PMI_FD").empty() && !get("PMI_RANK").empty()) {
    if (get("PMI_SIZE") == "1") return {Backend::kLocal, "mpiexec starts one task"};
    return {Backend::kPmi, "PMI_RANK is set"};
  }
  if (IsSpreadBySlurm(get)) return {Backend::kSlurm, "SLURM_JOB_ID is set"};
  return {Backend::kLocal, "nothing names other hosts"};
}

std::vector<int> ParseTasksPerNode(const std::string& text, size_t num_nodes) {
  std::vector<int> tasks;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> pieces = absl::StrSplit(part, "(x");
    int count = 0, times = 1;
    const bool is_plain = pieces.size() == 1;
    if (!absl::SimpleAtoi(pieces[0], &count) || count < 1 || pieces.size() > 2) return {};
    if (!is_plain && (!absl::EndsWith(pieces[1], ")") ||
                      !absl::SimpleAtoi(absl::StripSuffix(pieces[1], ")"), &times) || times < 1))
      return {};
    if (tasks.size() + static_cast<size_t>(times) > num_nodes) return {};
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
  }
  return tasks.size() == num_nodes ? tasks : std::vector<int>();
}

bool IsLaterTask(const GetVariable& get) {
  return (!get("PMIX_NAMESPACE").empty() && NumberIn(get("PMIX_RANK"), 0) > 0) ||
         (!get("PMI_FD").empty() && NumberIn(get("PMI_RANK"), 0) > 0) ||
         (IsSlurmStep(get) && NumberIn(get("SLURM_PROCID"), 0) > 0);
}

bool IsLaterTaskOnHost(const GetVariable& get) {
  // Each starter has a name of its own for the number of a task among those of its host.
  constexpr const char* kNumbers[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                      "SLURM_LOCALID"};
  if (!IsLaterTask(get)) return false;
  for (const char* const number : kNumbers) {
    if (!get(number).empty()) return NumberIn(get(number), 0) > 0;
  }
  return false;
}

ListedBy StarterOfTasks(Backend backend, const GetVariable& get) {
  if (backend == Backend::kPmi) return ListedBy::kMpiexec;
  // mpirun starts its tasks with srun where Slurm is, and leaves srun's variables.
  const bool is_srun = get("OMPI_COMM_WORLD_SIZE").empty() && IsSlurmStep(get);
  return backend == Backend::kSlurm || is_srun ? ListedBy::kSrun : ListedBy::kMpirun;
}

bool HasOtherTasks(const GetVariable& get) {
  return NumberIn(get("OMPI_COMM_WORLD_SIZE"), 1) > 1 || NumberIn(get("PMI_SIZE"), 1) > 1 ||
         (IsSlurmStep(get) && NumberIn(get("SLURM_STEP_NUM_TASKS"), 1) > 1);
}

bool IsSlurmStep(const GetVariable& get) { return !get("SLURM_STEP_ID").empty(); }

absl::StatusOr<HostList> ReadSlurmNodes(const GetVariable& get) {
  constexpr char kNodes[] = "SLURM_JOB_NODELIST", kTasks[] = "SLURM_TASKS_PER_NODE";
  HostList nodes;
  if (get(kNodes).empty()) return BadVariable(kNodes, "the nodes of a Slurm job", "");
  for (const std::string& pattern : SplitPatterns(get(kNodes))) {
    WEIR_ASSIGN_OR_RETURN(std::vector<std::string> names, ExpandPattern(pattern, kNodes));
    for (std::string& name : names)
      nodes.push_back({std::move(name), 0, kNodes, ListedBy::kAllocation});
  }
  if (nodes.empty() || nodes.size() > kHostsMax)
    return BadVariable(kNodes, "the nodes of the Slurm job", get(kNodes));
  const std::vector<int> tasks = ParseTasksPerNode(get(kTasks), nodes.size());
  if (tasks.empty())
    return BadVariable(kTasks, absl::StrCat("the tasks on each of ", nodes.size(), " nodes"),
                       get(kTasks));
  for (const HostId node : nodes.ids())
    nodes[node].slots = tasks[static_cast<size_t>(node.value())];
  return nodes;
}

}  // namespace weir::hosts
