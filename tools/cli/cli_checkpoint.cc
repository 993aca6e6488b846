// weir checkpoint: looks at checkpoints, checks them, and converts them.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_shards.h"
#include "runtime/store/weight_index.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/diff_checkpoints.h"
#include "tools/checkpoint/export_safetensors.h"
#include "tools/checkpoint/find_whole.h"
#include "tools/checkpoint/open_tensors.h"
#include "tools/checkpoint/rewrite.h"
#include "tools/checkpoint/transition.h"
#include "tools/cli/cli_verbs.h"
#include "tools/train/output_paths.h"
#include "tools/weights/export_files.h"

namespace weir::cli {
namespace {

constexpr int64_t kRowsShown = 40;
constexpr int kExitDiffers = 1;  // as of diff

struct CheckpointArguments {
  std::string path, other, out;
  std::vector<std::string> add;
  checkpoint::Edits edits;
  uint64_t file_bytes_max = uint64_t{5} << 30;
  bool all = false;  // rows, or states
  bool averages = false;
  bool all_steps = false;
  bool only_here = false;
  bool as_safetensors = false;
  bool overwrite = false;

  checkpoint::Existing existing() const {
    return overwrite ? checkpoint::Existing::kReplace : checkpoint::Existing::kRefuse;
  }
};

absl::Status List(const CheckpointArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, checkpoint::ListText(arguments.path));
  *context->out << text;
  return absl::OkStatus();
}

absl::Status Show(const CheckpointArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors opened, checkpoint::Open(arguments.path));
  *context->out << checkpoint::ShowText(opened, arguments.all ? 0 : kRowsShown);
  return absl::OkStatus();
}

// Checks the files of a folder that are on this host.
absl::Status VerifyHere(const store::CheckpointShards& shards, CliContext* context) {
  int64_t files = 0;
  for (size_t i = 0; i < shards.index().files.size(); ++i) {
    const absl::Status checked = shards.CheckFile(i);
    if (absl::IsNotFound(checked)) continue;
    WEIR_RETURN_IF_ERROR(checked);
    ++files;
  }
  *context->out << shards.folder() << ": the " << Plural(files, "file") << " of "
                << shards.index().files.size() << " that are here are sound\n";
  return absl::OkStatus();
}

// One file of an export has some of the tensors, and would pass for all of them under another name.
absl::Status CheckIsNotOneOfSeveral(const std::string& path) {
  const std::string found = store::OneOfSeveralText(path);
  if (found.empty()) return absl::OkStatus();
  return Rejected({"W0047", path, "a file of all tensors, or the index of such files", found,
                   store::IndexOfShard(path)});
}

absl::Status VerifyOne(const std::string& path, const CheckpointArguments& arguments,
                       CliContext* context) {
  if (arguments.only_here) {
    WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors opened, checkpoint::Open(path));
    if (opened.reader->shards() != nullptr) return VerifyHere(*opened.reader->shards(), context);
  }
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors opened, checkpoint::Open(path));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::Contents contents, checkpoint::CheckSound(opened));
  const store::CheckpointShards* const shards = opened.reader->shards();
  *context->out << (shards == nullptr ? path : shards->folder()) << ": "
                << (contents == checkpoint::Contents::kHaveNoChecksums
                        ? checkpoint::SummaryText(opened) + ", without checksums: unverified"
                        : "sound: " + checkpoint::SummaryText(opened))
                << "\n";
  if (const std::string one = store::OneOfSeveralText(opened.reader->path()); !one.empty())
    *context->out << "note: the file is " << one << "; the others are not checked\n";
  return absl::OkStatus();
}

// Says what is in the folder besides checkpoints. A step without its index counts as damaged.
int64_t SayRemains(const std::string& path, CliContext* context) {
  const checkpoint::Remains remains = checkpoint::RemainsOf(path);
  *context->out << remains.text;
  if ((remains.num_damaged > 0 || !remains.has_latest) && context->exit_code == 0)
    context->exit_code = ExitCode(absl::DataLossError(""));
  return remains.num_damaged;
}

absl::Status Verify(const CheckpointArguments& arguments, CliContext* context) {
  if (!arguments.all_steps) {
    const absl::Status status = VerifyOne(arguments.path, arguments, context);
    SayRemains(arguments.path, context);
    return status;
  }
  // All rows go to one stream, so that a reader sees them in their order.
  int64_t num_sound = 0, num_damaged = 0;
  for (const int64_t step : store::CommittedSteps(arguments.path)) {
    const std::string path =
        (std::filesystem::path(arguments.path) / store::StepFolderName(step)).string();
    const absl::Status status = VerifyOne(path, arguments, context);
    if (status.ok()) {
      ++num_sound;
      continue;
    }
    if (std::error_code error; !std::filesystem::exists(path, error)) {
      *context->out << path << ": removed by a run meanwhile\n";
      continue;
    }
    ++num_damaged;
    // The advice of the error is this command, and the other rows say what is sound.
    *context->out << path << ": damaged: " << checkpoint::WithoutAdvice(status) << "\n";
    if (context->exit_code == 0) context->exit_code = ExitCode(status);
  }
  num_damaged += SayRemains(arguments.path, context);
  if (num_sound + num_damaged == 0) return checkpoint::ListText(arguments.path).status();
  *context->out << num_sound << " sound, " << num_damaged << " damaged\n";
  return absl::OkStatus();
}

absl::Status Compare(const CheckpointArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors a, checkpoint::Open(arguments.path));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors b, checkpoint::Open(arguments.other));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::CheckpointDiff diff, checkpoint::Diff(a, b));
  *context->out << checkpoint::DiffText(diff, arguments.all ? 0 : kRowsShown);
  if (!diff.tensors.empty()) context->exit_code = kExitDiffers;
  return absl::OkStatus();
}

absl::Status Export(const CheckpointArguments& arguments, CliContext* context) {
  if (static_cast<int64_t>(arguments.file_bytes_max) < 1) {
    return Rejected({"W0929", "--max-shard-size", "a size of at least 1 byte",
                     absl::StrCat(static_cast<int64_t>(arguments.file_bytes_max)), "5GiB"});
  }
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors from, checkpoint::Open(arguments.path));
  WEIR_RETURN_IF_ERROR(CheckIsNotOneOfSeveral(from.reader->path()));
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", arguments.out,
                                                   from.reader->shards() == nullptr
                                                       ? store::FilesOfWeights(from.reader->path())
                                                       : store::FilesOfCheckpoint(arguments.path)));
  checkpoint::ExportOrder order{arguments.out, static_cast<int64_t>(arguments.file_bytes_max)};
  if (arguments.all) order.what = checkpoint::ExportOrder::What::kAll;
  if (arguments.averages) order.what = checkpoint::ExportOrder::What::kAverages;
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                        checkpoint::ExportSafetensors(from, order));
  *context->out << paths.back() << ": "
                << (arguments.all        ? "weights and optimizer states"
                    : arguments.averages ? "averages of weights"
                                         : "weights")
                << " of step " << from.facts.step;
  if (paths.size() > 1)
    *context->out << ", in " << Plural(static_cast<int64_t>(paths.size()) - 1, "file");
  *context->out << "\n";
  if (const std::string strays = weights::StrayText(arguments.out, paths); !strays.empty())
    *context->out << "note: " << strays << "\n";
  return absl::OkStatus();
}

// A checkpoint must not be written over its source, and not into another checkpoint.
absl::Status CheckOut(const CheckpointArguments& arguments) {
  std::error_code error;
  const std::filesystem::path out = std::filesystem::weakly_canonical(arguments.out, error);
  const std::filesystem::path in = std::filesystem::weakly_canonical(arguments.path, error);
  if (out != in && out != in.parent_path())
    return train::CheckOutsideOfCheckpoints("-o", arguments.out);
  return Rejected({"W0926", "-o " + arguments.out, "a folder that the command does not read",
                   arguments.path + ", in which a checkpoint would be replaced", "another name"});
}

// Opens the checkpoint that is written again. Refuses before all of it is read if the new one has
// no place.
absl::StatusOr<checkpoint::OpenTensors> OpenSource(const CheckpointArguments& arguments) {
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors from, checkpoint::Open(arguments.path));
  WEIR_RETURN_IF_ERROR(CheckIsNotOneOfSeveral(from.reader->path()));
  WEIR_RETURN_IF_ERROR(
      checkpoint::CheckPlace(arguments.out, from.facts.step, arguments.existing()));
  return checkpoint::OpenSound(arguments.path);
}

absl::Status Import(const CheckpointArguments& arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(CheckOut(arguments));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors from, OpenSource(arguments));
  WEIR_ASSIGN_OR_RETURN(const auto tensors, checkpoint::AllOf(from));
  WEIR_ASSIGN_OR_RETURN(
      const std::string written,
      checkpoint::WriteFolder(arguments.out, from.facts, tensors, arguments.existing()));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors opened, checkpoint::Open(written));
  *context->out << written << ": " << checkpoint::SummaryText(opened) << "\n";
  return absl::OkStatus();
}

absl::Status Edit(const CheckpointArguments& arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(CheckOut(arguments));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors from, OpenSource(arguments));
  WEIR_ASSIGN_OR_RETURN(auto tensors, checkpoint::AllOf(from));
  WEIR_ASSIGN_OR_RETURN(tensors,
                        checkpoint::Apply(arguments.edits, std::move(tensors), arguments.path));
  std::vector<checkpoint::OpenTensors> others;
  for (const std::string& path : arguments.add) {
    WEIR_ASSIGN_OR_RETURN(checkpoint::OpenTensors other, checkpoint::OpenSound(path));
    WEIR_ASSIGN_OR_RETURN(const int64_t added, checkpoint::AddMissing(other, &tensors));
    *context->out << Plural(added, "tensor") << " added from " << path << "\n";
    others.push_back(std::move(other));
  }
  WEIR_ASSIGN_OR_RETURN(
      const std::string written,
      checkpoint::WriteFolder(arguments.out, from.facts, tensors, arguments.existing()));
  WEIR_ASSIGN_OR_RETURN(const checkpoint::OpenTensors opened, checkpoint::Open(written));
  *context->out << written << ": " << checkpoint::SummaryText(opened) << "\n";
  return absl::OkStatus();
}

CLI::Option* AddPath(CLI::App* verb, const std::string& name, std::string* path,
                     const std::string& about) {
  return verb->add_option(name, *path, about)->required();
}

constexpr char kAnyCheckpoint[] =
    "A run's folder (its latest checkpoint), one checkpoint of it, or safetensors";

void AddOverwrite(CLI::App* verb, bool* overwrite) {
  verb->add_flag("--overwrite", *overwrite,
                 "Replace a checkpoint of the same step that is in the folder");
}

void AddReaders(CLI::App* app, CliContext* context) {
  auto list = std::make_shared<CheckpointArguments>();
  CLI::App* verb =
      AddVerb(app, context, "ls",
              "List the checkpoints of a run, and what is damaged or left over. Reads no values: "
              "`verify` does",
              "  weir checkpoint ls run", [=] { return List(*list, context); });
  AddPath(verb, "DIR", &list->path, "The folder that the run was given as --checkpoint");

  auto show = std::make_shared<CheckpointArguments>();
  verb = AddVerb(app, context, "show", "Print what a checkpoint holds, tensor by tensor",
                 "  weir checkpoint show run\n"
                 "  weir checkpoint show run/step-000000120 --all",
                 [=] { return Show(*show, context); });
  AddPath(verb, "PATH", &show->path, kAnyCheckpoint);
  verb->add_flag("--all", show->all, absl::StrCat("All tensors [the first ", kRowsShown, "]"));

  auto verify = std::make_shared<CheckpointArguments>();
  verb = AddVerb(app, context, "verify",
                 "Read a checkpoint as a whole, and check each byte and each tensor of it",
                 "  weir checkpoint verify run\n"
                 "  weir checkpoint verify run --all-steps",
                 [=] { return Verify(*verify, context); });
  AddPath(verb, "PATH", &verify->path, kAnyCheckpoint);
  verb->add_flag("--all-steps", verify->all_steps,
                 "Every checkpoint of the folder, and how many are sound");
  verb->add_flag("--here", verify->only_here,
                 "Only the files on this host, where hosts share no disk");

  auto diff = std::make_shared<CheckpointArguments>();
  verb =
      AddVerb(app, context, "diff",
              "Compare two checkpoints tensor by tensor, whatever their layouts are. The exit code "
              "is 0 if they are equal, and 1 if they differ. Of a checkpoint and a file of weights "
              "alone, the weights are compared",
              "  weir checkpoint diff run/step-000000100 run/step-000000120\n"
              "  weir checkpoint diff run model.safetensors",
              [=] { return Compare(*diff, context); });
  AddPath(verb, "A", &diff->path, kAnyCheckpoint);
  AddPath(verb, "B", &diff->other, "Likewise");
  verb->add_flag("--all", diff->all,
                 absl::StrCat("All tensors that differ [the first ", kRowsShown, "]"));
}

void AddWriters(CLI::App* app, CliContext* context) {
  auto exported = std::make_shared<CheckpointArguments>();
  CLI::App* verb =
      AddVerb(app, context, "export", "Write the weights of a checkpoint for other programs",
              "  weir checkpoint export run --safetensors -o model.safetensors\n"
              "  weir checkpoint export run -o model.safetensors --max-shard-size 2GB",
              [=] { return Export(*exported, context); });
  AddPath(verb, "PATH", &exported->path, kAnyCheckpoint);
  verb->add_flag("--safetensors", exported->as_safetensors,
                 "Write safetensors, the only format so far");
  AddPath(verb, "-o,--out", &exported->out, "The new file")->type_name("PATH");
  CLI::Option* const all =
      verb->add_flag("--all", exported->all,
                     "Also optimizer states and the place in the data: a checkpoint for --resume");
  verb->add_flag("--average", exported->averages,
                 "In place of each weight its average, which a run with training.average has")
      ->excludes(all);
  CLI::Validator size = CLI::AsSizeValue(true);
  size.description("");  // the units would fill a line of the help
  verb->add_option(
          "--max-shard-size", exported->file_bytes_max,
          "Begin another file at this size (500MB, 2GiB), with an index beside the files [5GiB]")
      ->type_name("SIZE")
      ->transform(size);

  auto imported = std::make_shared<CheckpointArguments>();
  verb = AddVerb(app, context, "import", "Write a file of safetensors as a checkpoint folder",
                 "  weir checkpoint import model.safetensors -o run",
                 [=] { return Import(*imported, context); });
  AddPath(verb, "FILE", &imported->path, "Safetensors, or an index of them");
  AddPath(verb, "-o,--out", &imported->out, "The folder of checkpoints")->type_name("DIR");
  AddOverwrite(verb, &imported->overwrite);

  auto edit = std::make_shared<CheckpointArguments>();
  verb = AddVerb(
      app, context, "edit",
      "Write a checkpoint again with other tensors. A weight takes its optimizer states along",
      "  weir checkpoint edit run -o new --rename layers.{i}.wq=blocks.{i}.wq\n"
      "  weir checkpoint edit run -o new --drop head --add deeper.safetensors",
      [=] { return Edit(*edit, context); });
  AddPath(verb, "PATH", &edit->path, kAnyCheckpoint);
  AddPath(verb, "-o,--out", &edit->out, "The folder of the new checkpoint")->type_name("DIR");
  AddOverwrite(verb, &edit->overwrite);
  verb->add_option(
          "--drop", edit->edits.drop,
          "Leave these tensors out; may be repeated. NAME is a name, or a pattern in which "
          "{i} is a number and {*}, once, is any text: layers.{i}.{*}")
      ->type_name("NAME")
      ->allow_extra_args(false);
  verb->add_option(
          "--rename", edit->edits.rename,
          "Name tensors anew, after --drop; may be repeated. OLD is such a name or pattern, "
          "and NEW may have the {i} and {*} of OLD")
      ->type_name("OLD=NEW")
      ->allow_extra_args(false);
  verb->add_option("--cast", edit->edits.cast,
                   "Round reals to F32, BF16 or F16; may be repeated. NAME is as for --drop")
      ->type_name("NAME=TYPE")
      ->allow_extra_args(false);
  verb->add_option("--add", edit->add,
                   "Take the tensors that lack from this file or checkpoint; may be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false);
}

}  // namespace

void AddCheckpointVerbs(CLI::App* app, CliContext* context) {
  CLI::App* checkpoints = app->add_subcommand(
      "checkpoint", "Look at the checkpoints of a run, check them, and convert them");
  checkpoints->footer(
      "Examples:\n"
      "  weir checkpoint ls run\n"
      "  weir checkpoint verify run\n"
      "  weir checkpoint export run --safetensors -o model.safetensors");
  checkpoints->require_subcommand(1);
  AddReaders(checkpoints, context);
  AddWriters(checkpoints, context);
}

}  // namespace weir::cli
