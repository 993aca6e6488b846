#include "tools/checkpoint/describe.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/stored_dtype.h"
#include "runtime/store/weight_index.h"
#include "tools/checkpoint/find_whole.h"

namespace weir::checkpoint {
namespace {

namespace fs = std::filesystem;

// Rows of cells, in columns as wide as their widest cell.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Text() const {
    std::vector<size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        absl::StrAppend(&line, i == 0 ? "" : "  ", row[i]);
        line.append(widths[i] - row[i].size(), ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      absl::StrAppend(&text, line, "\n");
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

int64_t BytesOf(const store::TensorFacts& tensor) {
  return NumElements(tensor.shape) * store::StoredWidth(tensor.dtype);
}

int64_t TotalBytes(const OpenTensors& opened) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : opened.tensors) bytes += BytesOf(tensor);
  return bytes;
}

std::string SizeText(int64_t bytes) { return BytesText(static_cast<double>(bytes)); }

// Returns "4", or "2 of 4" if other hosts have the rest.
std::string FilesText(const OpenTensors& opened) {
  const store::CheckpointShards* const shards = opened.reader->shards();
  if (shards == nullptr) {
    const std::vector<std::string> files = store::FilesOfWeights(opened.reader->path());
    return absl::StrCat(std::max<size_t>(1, files.size() - 1));  // an index is no such file
  }
  size_t here = 0;
  const size_t all = shards->index().files.size();
  for (const store::ShardFileRecord& file : shards->index().files) {
    std::error_code error;
    if (fs::exists(fs::path(shards->folder()) / file.name, error)) ++here;
  }
  return here == all ? absl::StrCat(all) : absl::StrCat(here, " of ", all);
}

std::string CursorText(const store::CheckpointFacts& facts) {
  if (!facts.cursor.has_value()) return "no cursor";
  const store::DataCursor& cursor = *facts.cursor;
  if (cursor.samples_per_epoch <= 0) return absl::StrCat(cursor.samples, " samples");
  return absl::StrFormat(
      "%d samples, %.2f epochs", cursor.samples,
      static_cast<double>(cursor.samples) / static_cast<double>(cursor.samples_per_epoch));
}

std::string MoreText(int64_t rows, int64_t shown, const std::string& word) {
  return rows > shown ? absl::StrCat("... and ", Plural(rows - shown, word), " more (--all)\n")
                      : "";
}

// Returns what a name that is no checkpoint is, for people.
std::string LeftoverText(store::Leftover::Kind kind, bool is_in_use) {
  switch (kind) {
    case store::Leftover::Kind::kPartial: return is_in_use ? "being written" : "left over";
    case store::Leftover::Kind::kRemoved: return is_in_use ? "being removed" : "left over";
    case store::Leftover::Kind::kReplaced: return is_in_use ? "being replaced" : "left over";
    case store::Leftover::Kind::kWithoutIndex: return "no index";
  }
  return "?";
}

// Returns what is in a folder without committed checkpoints, for people.
std::string NoneText(const std::string& directory) {
  constexpr size_t kNamesMax = 8;
  const bool is_in_use = !store::FolderClaim::Check(directory).ok();
  const std::vector<store::Leftover> leftovers = store::LeftoversIn(directory);
  std::vector<std::string> names;
  for (const store::Leftover& leftover : leftovers) {
    if (names.size() < kNamesMax)
      names.push_back(
          absl::StrCat(leftover.name, " (", LeftoverText(leftover.kind, is_in_use), ")"));
  }
  if (leftovers.empty()) return "none";
  return absl::StrCat("none that is committed, beside ", absl::StrJoin(names, ", "),
                      leftovers.size() > kNamesMax
                          ? absl::StrCat(" and ", leftovers.size() - kNamesMax, " more")
                          : "");
}

// Adds what no run of the folder needs any more. Returns a sentence about it, or "".
std::string ListLeftovers(const std::string& directory, Table* table) {
  const bool is_in_use = !store::FolderClaim::Check(directory).ok();
  bool has_some = false;
  for (const store::Leftover& leftover : store::LeftoversIn(directory)) {
    const std::string text = LeftoverText(leftover.kind, is_in_use);
    has_some = has_some || text == "left over";
    table->Add({leftover.name, "-", "-", "-", "-", "-", text});
  }
  return has_some
             ? "what is left over was never committed, or was about to be removed; the next run "
               "that writes here removes it\n"
             : "";
}

// Returns a line about a `latest` that names no committed checkpoint, or "".
std::string ProblemOfLatest(const std::string& directory,
                            const absl::StatusOr<std::optional<int64_t>>& latest,
                            const std::vector<int64_t>& steps) {
  if (!latest.ok()) return absl::StrCat(latest.status().message(), "\n");
  if (!latest->has_value())
    return absl::StrCat(directory, " has no `latest`: name a checkpoint by its own path\n");
  if (std::binary_search(steps.begin(), steps.end(), **latest)) return "";
  return absl::StrCat("`latest` names ", store::StepFolderName(**latest), ", which is not there\n");
}

}  // namespace

std::string SummaryText(const OpenTensors& opened) {
  const std::string files = FilesText(opened);
  return absl::StrCat(Plural(static_cast<int64_t>(opened.tensors.size()), "tensor"), ", ",
                      SizeText(TotalBytes(opened)), " in ", files,
                      files == "1" ? " file" : " files", ", step ", opened.facts.step);
}

absl::StatusOr<std::string> ListText(const std::string& directory) {
  const std::vector<int64_t> steps = store::CommittedSteps(directory);
  if (std::error_code ignored;
      steps.empty() && std::filesystem::is_regular_file(directory, ignored)) {
    return Missing({"W0711", directory, "a folder with committed checkpoints", "a file",
                    absl::StrCat("weir checkpoint show ", directory)});
  }
  if (steps.empty()) {
    return Missing({"W0711", directory, "a folder with committed checkpoints", NoneText(directory),
                    "the folder that a run was given as --checkpoint"});
  }
  const absl::StatusOr<std::optional<int64_t>> latest = store::ReadLatest(directory);
  Table table({"checkpoint", "tensors", "size", "files", "data", "job", ""});
  std::string problems;
  for (const int64_t step : steps) {
    const std::string name = store::StepFolderName(step);
    const absl::StatusOr<OpenTensors> opened = Open((fs::path(directory) / name).string());
    const std::string mark = latest.ok() && *latest == step ? "latest" : "";
    const std::string before = mark.empty() ? "" : mark + ", ";
    if (!opened.ok()) {
      table.Add({name, "-", "-", "-", "-", "-", before + "damaged"});
      absl::StrAppend(&problems, opened.status().message(), "\n");
      continue;
    }
    absl::Status sizes;
    if (opened->reader->shards() != nullptr) sizes = opened->reader->shards()->CheckSizes();
    if (!sizes.ok()) absl::StrAppend(&problems, sizes.message(), "\n");
    table.Add({name, absl::StrCat(opened->tensors.size()), SizeText(TotalBytes(*opened)),
               FilesText(*opened), CursorText(opened->facts),
               opened->facts.job.empty() ? "-" : opened->facts.job,
               sizes.ok()                ? mark
               : absl::IsNotFound(sizes) ? before + "incomplete"
                                         : before + "damaged"});
  }
  absl::StrAppend(&problems, ProblemOfLatest(directory, latest, steps));
  absl::StrAppend(&problems, ListLeftovers(directory, &table));
  absl::StrAppend(&problems, "looked at: indexes and sizes of files; `weir checkpoint verify ",
                  directory, " --all-steps` also reads the values\n");
  return table.Text() + problems;
}

Remains RemainsOf(const std::string& directory) {
  Remains remains;
  const bool is_in_use = !store::FolderClaim::Check(directory).ok();
  for (const store::Leftover& leftover : store::LeftoversIn(directory)) {
    const std::string path = (fs::path(directory) / leftover.name).string();
    if (leftover.kind == store::Leftover::Kind::kWithoutIndex) {
      ++remains.num_damaged;
      absl::StrAppend(&remains.text, path,
                      ": damaged: ", WithoutAdvice(store::CheckStepIsThere(path)), "\n");
    } else {
      absl::StrAppend(&remains.text, path,
                      ": no checkpoint: ", LeftoverText(leftover.kind, is_in_use), "\n");
    }
  }
  // A run that writes there points `latest` to a checkpoint after the checkpoint is committed.
  const absl::StatusOr<std::optional<int64_t>> latest = store::ReadLatest(directory);
  const std::vector<int64_t> steps = store::CommittedSteps(directory);
  if (steps.empty()) return remains;
  const std::string problem = ProblemOfLatest(directory, latest, steps);
  remains.has_latest = problem.empty();
  absl::StrAppend(&remains.text, problem);
  return remains;
}

std::string ShowText(const OpenTensors& opened, int64_t rows_max) {
  const store::CheckpointFacts& facts = opened.facts;
  std::string text;
  const store::CheckpointShards* const shards = opened.reader->shards();
  absl::StrAppend(&text, shards == nullptr ? opened.reader->path() : shards->folder(), ": ",
                  SummaryText(opened), "\n");
  if (!facts.job.empty()) absl::StrAppend(&text, "job        ", facts.job, "\n");
  if (!facts.job_id.empty()) absl::StrAppend(&text, "run        ", facts.job_id, "\n");
  if (!facts.plan_id.empty()) absl::StrAppend(&text, "plan       ", facts.plan_id, "\n");
  absl::StrAppend(&text, "steps      ", facts.step, ", of the optimizer ", facts.optimizer_step,
                  "\n");
  if (!facts.schedule.empty()) absl::StrAppend(&text, "schedule   ", facts.schedule, "\n");
  absl::StrAppend(&text, "data       ", CursorText(facts));
  if (facts.cursor.has_value())
    absl::StrAppend(&text, ", order from seed ", facts.cursor->seed,
                    facts.cursor->data.empty() ? "" : ", " + facts.cursor->data);
  absl::StrAppend(&text, "\n");
  for (const store::RandomKey& key : facts.keys)
    absl::StrAppend(&text, "random key ", key.name, " ", key.key, "\n");
  if (shards != nullptr) {
    std::set<std::string> hosts;
    for (const store::ShardFileRecord& file : shards->index().files) {
      if (!file.host.empty()) hosts.insert(file.host);
    }
    if (!hosts.empty()) absl::StrAppend(&text, "hosts      ", absl::StrJoin(hosts, ", "), "\n");
  }
  Table table({"tensor", "type", "shape", "size", "owner", "shards"});
  int64_t rows = 0;
  for (const auto& [name, tensor] : opened.tensors) {
    if (rows_max > 0 && rows >= rows_max) break;
    ++rows;
    table.Add({name, tensor.dtype, ToText(tensor.shape), SizeText(BytesOf(tensor)),
               store::OwnerText(tensor.owner),
               shards == nullptr ? "1" : absl::StrCat(shards->ShardsOf(name).size())});
  }
  return text + "\n" + table.Text() +
         MoreText(static_cast<int64_t>(opened.tensors.size()), rows, "tensor");
}

std::string DiffText(const CheckpointDiff& diff, int64_t rows_max) {
  const bool is_of_a = diff.with_weights_alone == CheckpointDiff::Side::kA;
  const std::string left_out =
      diff.left_out == 0 ? ""
                         : absl::StrCat(is_of_a ? "A" : "B",
                                        " has only weights: ", Plural(diff.left_out, "other state"),
                                        " of ", is_of_a ? "B" : "A",
                                        diff.left_out == 1 ? " is" : " are", " not compared\n");
  if (diff.tensors.empty())
    return absl::StrCat("equal: ", Plural(diff.equal, "tensor"), "\n", left_out);
  Table table({"tensor", "A", "B", "elements that differ", "largest difference"});
  int64_t rows = 0;
  for (const TensorDiff& tensor : diff.tensors) {
    if (rows_max > 0 && rows >= rows_max) break;
    ++rows;
    std::string differing = "-", largest = "-";
    if (tensor.kind == TensorDiff::Kind::kOtherValues) {
      differing = absl::StrFormat("%d of %d", tensor.differing, tensor.elements);
      if (tensor.max_difference != 0) largest = absl::StrFormat("%.3g", tensor.max_difference);
    } else if (tensor.kind == TensorDiff::Kind::kOtherType && tensor.elements > 0) {
      differing = absl::StrCat("0 of ", tensor.elements);
    }
    table.Add({tensor.name, tensor.a.empty() ? "-" : tensor.a, tensor.b.empty() ? "-" : tensor.b,
               differing, largest});
  }
  const int64_t count = static_cast<int64_t>(diff.tensors.size());
  return absl::StrCat(table.Text(), MoreText(count, rows, "tensor"), Plural(count, "tensor"),
                      count == 1 ? " differs, " : " differ, ", diff.equal,
                      diff.equal == 1 ? " is equal\n" : " are equal\n", left_out);
}

}  // namespace weir::checkpoint
