#include "tools/cli/cli.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <iterator>
#include <new>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/wrap_text.h"
#include "runtime/limits/process_limits.h"
#include "tools/cli/cli_verbs.h"
#include "tools/console/console.h"
#include "tools/errors/error_pages.h"
#include "tools/hosts/find_hosts.h"
#include "tools/job/data_paths.h"
#include "tools/job/job_file.h"
#include "tools/job/text_bounds.h"
#include "tools/train/job_device.h"

namespace weir::cli {
namespace {

constexpr char kVersion[] = "weir 0.1.0";

constexpr char kFooter[] =
    "A first run:\n"
    "  weir zoo gpt --data book.txt > gpt.textproto   write a small language model as a job\n"
    "  weir plan gpt.textproto --mesh dp=2,tp=2       see how it lies over four devices\n"
    "  weir train gpt.textproto --save gpt.safetensors\n"
    "  weir generate gpt.textproto --init gpt.safetensors --prompt 'Once '\n\n"
    "Exit codes: 0 done, 2 wrong usage, 3 loss or gradients not finite, 65 job rejected,\n"
    "            66 input missing or damaged, or output not written,\n"
    "            69 the machine refused something or was in the way, 70 internal error,\n"
    "            130 interrupted,\n"
    "            128 + N signal N ended the process of the job that failed first (137: SIGKILL).";

// Returns the names of the verbs for people: those in a group, which help shows.
std::vector<std::string> VerbNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb :
       app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); })) {
    names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> FlagNames(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// Returns the verb that the arguments name, as deep as they go: "zoo", then "gpt".
CLI::App* DeepestVerb(CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string FullName(const CLI::App* verb) {
  std::string name = verb->get_name();
  for (verb = verb->get_parent(); verb != nullptr; verb = verb->get_parent())
    name = verb->get_name() + " " + name;
  return name;
}

// Returns the flag of the verb that an unknown flag means, without the dashes of both; "": none.
std::string MeantFlag(const CLI::App& verb, const std::string& flag) {
  // These flags name files of weights. Each verb has its own of them.
  constexpr absl::string_view kOfWeights[] = {"weights", "init", "resume"};
  const std::vector<std::string> names = FlagNames(verb);
  const auto is_name = [&names](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::string nearest = Nearest(flag, names);
  const bool is_of_weights =
      std::find(std::begin(kOfWeights), std::end(kOfWeights), flag) != std::end(kOfWeights);
  const auto meant = std::find_if(std::begin(kOfWeights), std::end(kOfWeights), is_name);
  return is_of_weights && meant != std::end(kOfWeights) ? std::string(*meant) : nearest;
}

// Returns the message of CLI11 with the nearest flag or verb added.
std::string UsageText(CLI::App* app, const CLI::ParseError& error) {
  CLI::App* verb = DeepestVerb(app);
  std::string text = absl::StrCat(FullName(verb), ": ", error.what());
  std::vector<std::string> remaining = verb->remaining();
  for (const std::string& word : remaining) {
    if (word == "--") break;  // what follows is a program with flags of its own
    bool is_flag = word.size() > 1 && word[0] == '-';
    std::string bare = word.substr(0, word.find('='));
    std::string nearest = is_flag ? MeantFlag(*verb, std::string(absl::StripPrefix(bare, "--")))
                                  : Nearest(bare, VerbNames(*verb));
    if (is_flag && !nearest.empty()) nearest = "--" + nearest;
    if (is_flag) text = absl::StrCat(FullName(verb), ": unknown flag ", bare);
    if (!is_flag && !VerbNames(*verb).empty())
      text = absl::StrCat(FullName(verb), ": unknown verb ", bare);
    if (!nearest.empty()) absl::StrAppend(&text, ". Try: ", nearest);
    if (is_flag || !nearest.empty()) break;
  }
  return absl::StrCat(text, "\nSee: ", FullName(verb), " --help\n");
}

// Returns a message for a first word that is no verb. CLI11 would only say that a verb is required.
std::string UnknownVerb(const CLI::App& app, const std::vector<std::string>& args) {
  if (args.empty() || args[0].empty() || args[0][0] == '-') return "";
  const auto is_named = [&](const CLI::App* verb) { return verb->get_name() == args[0]; };
  if (!app.get_subcommands(is_named).empty()) return "";
  const std::vector<std::string> names = VerbNames(app);
  const std::string nearest = Nearest(args[0], names);
  return absl::StrCat("weir: unknown verb ", args[0],
                      ". Try: ", nearest.empty() ? "one of " + absl::StrJoin(names, ", ") : nearest,
                      "\nSee: weir --help\n");
}

// Adds the fields of the data that `assignment` has changed, or names in full.
void AddSaid(const std::vector<job::DataPath>& before, const std::vector<job::DataPath>& after,
             const std::string& assignment, std::set<std::string>* said) {
  for (const job::DataPath& now : after) {
    const bool was_there = std::any_of(before.begin(), before.end(), [&](const job::DataPath& old) {
      return old.field == now.field && old.path == now.path;
    });
    if (!was_there || absl::StartsWith(assignment, now.field + "=")) said->insert(now.field);
  }
}

// Returns an error as people read it: the advice and the reference stand on separate lines.
std::string ErrorText(const CliContext& context) {
  const absl::Status status = job::WithPlace(context.source, context.status);
  const std::vector<Problem> problems = ProblemsOf(status);
  std::vector<std::string> lines;
  for (const Problem& problem : problems) lines.push_back(ProblemText(problem, "\n  "));
  if (lines.empty()) lines.emplace_back(status.message());
  std::string text = absl::StrCat("weir: ", absl::StrJoin(lines, "\n"), "\n");
  if (!problems.empty())
    absl::StrAppend(&text, "  See: weir explain ", problems.front().code, "\n");
  return WrapText(text, context.columns);
}

// Turns `weir help train` into `weir train --help`.
std::vector<std::string> HelpAsFlag(std::vector<std::string> args) {
  if (args[0] != "help") return args;
  args.erase(args.begin());
  args.push_back("--help");
  return args;
}

// Returns an error if the results of a verb could not be written, such as to a full disk. A reader
// of a pipe that has gone, such as head, wants no more. The result of a run is its files.
absl::Status CheckResultsWritten(const CliContext& context) {
  context.out->flush();
  context.raw_out->flush();
  struct stat output = {};
  if (context.results_are_files || !context.raw_out->fail()) return absl::OkStatus();
  if (::fstat(STDOUT_FILENO, &output) != 0 || S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode))
    return absl::OkStatus();
  return Missing(
      {"W0096", "standard output", "room for the results of this command",
       "that not all of them could be written: a full disk, or an output that takes none",
       "another file, or another disk"});
}

int Finish(CliContext context) {
  if (context.status.ok()) context.status = CheckResultsWritten(context);
  if (context.status.ok()) return context.exit_code;
  if (context.reader == Reader::kPeople) {
    *context.err << ErrorText(context);
  } else {
    *context.err << "weir: " << std::string(context.status.message()) << "\n";
  }
  const int code = ExitCodeOf(context, context.status);
  if (code == 70)
    *context.err << "This is a fault of weir (" << context.status.code() << "), not of the job.\n";
  return code;
}

}  // namespace

int ExitCodeOf(const CliContext& context, const absl::Status& status) {
  if (status.ok()) return context.exit_code;
  return absl::IsOutOfRange(status) ? kExitNonfinite : ExitCode(status);
}

sandbox::SandboxFacts CliContext::Confine(const sandbox::SandboxRules& rules,
                                          sandbox::CpuTime time) const {
  if (sandbox == CliSandbox::kOff) return {0, false, "it is switched off (WEIR_SANDBOX)"};
  sandbox::LimitProcess(time);
  return sandbox::EnterSandbox(rules);
}

void JobArguments::AddTo(CLI::App* verb, CliContext* of, Data opens) {
  verb->add_option("JOB", path, "Job file (protobuf text); - is standard input")->required();
  AddFlagsTo(verb, of, opens);
}

std::vector<CLI::Option*> JobArguments::AddFlagsTo(CLI::App* verb, CliContext* of, Data opens) {
  context = of;
  data = opens;
  std::vector<CLI::Option*> options;
  options.push_back(verb->add_option_function<std::string>(
                            "--mesh",
                            [this](const std::string& text) {
                              mesh = text;
                              has_mesh = true;
                            },
                            "Devices, replacing the job's mesh: dp=2,tp=2; '' is one device")
                        ->type_name("AXES"));
  options.push_back(
      verb->add_option(
              "--set", set,
              "Change a field of the job: training.steps=10, graph.dim[hidden].size=64; repeatable")
          ->type_name("PATH=VALUE")
          ->allow_extra_args(false));
  options.push_back(
      verb->add_option("--device", device,
                       "Kind of all devices, replacing runtime.device: cpu, cuda, or auto, which "
                       "takes GPUs where this machine has any")
          ->type_name("KIND"));
  options.push_back(
      verb->add_option_function<std::string>(
              "--collectives",
              [this](const std::string& what) {
                set.push_back(absl::StrCat("runtime.collectives=", what));
              },
              "What does sums and gathers of groups of ranks, replacing "
              "runtime.collectives: exchanges; local, one operation of the group in one "
              "process; nccl, NCCL's operations between GPUs; or auto, nccl where it is cheaper")
          ->type_name("WHAT"));
  if (opens == Data::kNotOpened) return options;
  options.push_back(
      verb->add_option(
              "--allow-path", allowed_paths,
              "Let the job name data in this folder, too [its own folder, the current one, "
              "/usr/share]; repeatable")
          ->type_name("DIR")
          ->allow_extra_args(false));
  return options;
}

CLI::Option* JobArguments::AddRulesFlag(CLI::App* verb) {
  return verb
      ->add_option("--rules", rules,
                   "auto: lay the model out by rules that a search finds, in place of the job's "
                   "(--set rules=auto keeps those and adds to them); written: by the job's alone")
      ->type_name("HOW")
      ->check(CLI::IsMember({kRulesAuto, kRulesWritten}));
}

absl::StatusOr<proto::Job> JobArguments::Read() const {
  WEIR_ASSIGN_OR_RETURN(std::string text, job::ReadJobText(path));
  WEIR_ASSIGN_OR_RETURN(proto::Job job, job::ParseJob(text, job::JobName(path)));
  WEIR_RETURN_IF_ERROR(job::CheckSetBounds(text, set));
  if (text.size() > job::kPlacedJobBytesMax) text = std::string();
  context->source = {job::JobName(path), std::move(text), set, has_mesh, mesh};
  const auto order_of = [&job] {
    return std::vector<std::string>(job.mesh().rank_order().begin(), job.mesh().rank_order().end());
  };
  const std::vector<std::string> order_written = order_of();
  bool sets_order = false;
  std::set<std::string> said;  // data fields that the command line sets
  for (const std::string& assignment : set) {
    const std::vector<job::DataPath> before = job::DataPathsOf(job);
    WEIR_RETURN_IF_ERROR(job::SetField(assignment, &job));
    AddSaid(before, job::DataPathsOf(job), assignment, &said);
    sets_order = sets_order || absl::StartsWith(assignment, "mesh.rank_order");
  }
  if (data == Data::kOpened) {
    std::vector<job::DataPath> written = job::DataPathsOf(job);
    std::erase_if(written, [&](const job::DataPath& named) { return said.count(named.field) > 0; });
    WEIR_RETURN_IF_ERROR(job::CheckDataPaths(written, {path, allowed_paths}));
  }
  if (rules == kRulesAuto) {
    job.clear_rule();
    job.set_rules(proto::Job::AUTO);
  } else if (rules == kRulesWritten) {
    job.clear_rules();
  }
  if (!device.empty()) job.mutable_runtime()->set_device(device);
  WEIR_RETURN_IF_ERROR(train::SettleDevice(&job));
  if (!has_mesh) return job;
  const std::vector<std::string> order = order_of();
  WEIR_RETURN_IF_ERROR(job::SetMesh(mesh, &job));
  // A wrong order that the job file has goes with its mesh. One of the command line is about this
  // mesh, so it stays, and is refused as any wrong field.
  if (sets_order || order != order_written)
    job.mutable_mesh()->mutable_rank_order()->Assign(order.begin(), order.end());
  return job;
}

std::string JobArguments::Title(const proto::Job& job) const {
  if (!job.name().empty()) return job.name();
  return path == "-" ? "the job of standard input" : path;
}

absl::Status OfTrace(const std::string& path, const absl::Status& status) {
  if (!absl::IsFailedPrecondition(status)) return status;
  return Damaged({"W0537", path, "a trace of all ranks with whole steps",
                  std::string(status.message()),
                  "weir trace report FILE, or weir view FILE, shows what this trace has"});
}

CLI::App* AddVerb(CLI::App* app, CliContext* context, const std::string& name,
                  const std::string& about, const std::string& examples,
                  std::function<absl::Status()> work) {
  CLI::App* verb = app->add_subcommand(name, about);
  verb->footer("Examples:\n" + examples);
  verb->callback([context, work = std::move(work)] { context->status = work(); });
  return verb;
}

int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           CliSandbox sandbox, const std::string& program) {
  CliContext context;
  context.sandbox = sandbox;
  context.program = program;
  context.arguments = args;
  console::PrintableStream printable_out(&out), printable_err(&err);
  context.out = &printable_out;
  context.err = &printable_err;
  context.raw_out = &out;
  context.raw_err = &err;
  context.columns = console::TextColumns(STDERR_FILENO);  // in a sandbox this query is forbidden
  CLI::App app("Weir: distributed training and running of neural networks.", "weir");
  app.set_version_flag("--version", kVersion);
  app.footer(kFooter);
  app.require_subcommand(1);
  AddCheckVerb(&app, &context);
  AddPlanVerb(&app, &context);
  AddTrainVerb(&app, &context);
  AddWorkerVerbs(&app, &context);
  AddEvalVerb(&app, &context);
  AddGenerateVerb(&app, &context);
  AddZooVerbs(&app, &context);
  AddOpsVerb(&app, &context);
  AddDimsVerb(&app, &context);
  AddWeightsVerbs(&app, &context);
  AddLoraVerbs(&app, &context);
  AddCheckpointVerbs(&app, &context);
  AddDataVerbs(&app, &context);
  AddImportVerb(&app, &context);
  AddExportVerb(&app, &context);
  AddSearchVerb(&app, &context);
  AddSimVerbs(&app, &context);
  AddTraceVerbs(&app, &context);
  AddMetricsVerbs(&app, &context);
  AddTopVerb(&app, &context);
  AddViewVerb(&app, &context);
  AddDoctorVerb(&app, &context);
  AddLaunchVerb(&app, &context);
  AddExplainVerb(&app, &context);
  if (args.empty()) {
    printable_out << app.help();
    return kExitUsage;
  }
  std::vector<std::string> words = HelpAsFlag(args);
  if (std::string unknown = UnknownVerb(app, words); !unknown.empty()) {
    if (!hosts::IsSaidByFirstTask()) printable_err << unknown;
    return kExitUsage;
  }
  try {
    // CLI11 takes the words in reverse order.
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    printable_out << app.help();  // of the given verb, with the names before it
    return 0;
  } catch (const CLI::CallForVersion&) {
    printable_out << kVersion << "\n";
    return 0;
  } catch (const CLI::ParseError& error) {
    if (!hosts::IsSaidByFirstTask()) printable_err << UsageText(&app, error);
    return kExitUsage;
  } catch (const std::bad_alloc&) {
    context.status = limits::Refused("this process", "memory", ENOMEM);
  } catch (const std::system_error& error) {  // mostly a failed thread
    context.status =
        limits::ShortageAdvice(error.code().value()).empty()
            ? absl::InternalError(absl::StrCat("unexpected exception: ", error.what()))
            : limits::Refused("this process", "what it asked the system for", error.code().value());
  } catch (const std::exception& error) {
    context.status = absl::InternalError(absl::StrCat("unexpected exception: ", error.what()));
  }
  return Finish(context);
}

}  // namespace weir::cli
