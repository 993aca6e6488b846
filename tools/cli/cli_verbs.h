// The verbs of the command line. Each function adds one verb or a few verbs to the parser. A verb
// does its work in its callback and leaves the outcome in the context.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/cli/cli.h"
#include "tools/job/job_places.h"
#include "tools/sandbox/process_limits.h"
#include "tools/sandbox/sandbox.h"

namespace weir::cli {

// The reader of a verb's text on `err`: people, in lines that fit the terminal, or a program.
enum class Reader : uint8_t { kPeople, kProgram };

struct CliContext {
  std::ostream* out = nullptr;         // printable: control characters are escaped
  std::ostream* err = nullptr;         // likewise
  std::string program;                 // its name as typed
  std::vector<std::string> arguments;  // as typed, behind the name of the program
  // The streams behind `out` and `err`, for raw bytes and for a Console, which escapes by itself.
  std::ostream* raw_out = nullptr;
  std::ostream* raw_err = nullptr;
  absl::Status status;  // of the verb that ran
  int exit_code = 0;    // if status is ok
  Reader reader = Reader::kPeople;
  bool results_are_files = false;  // else they are the text on `out`
  int columns = 0;                 // width of a line on `err`
  job::JobSource source;           // the job that was read last, for the places of errors
  CliSandbox sandbox = CliSandbox::kOff;

  // Confines the process for good, if `sandbox` is on. A verb calls Confine after it has opened its
  // inputs, when it only reads and computes from then on. Returns what is in place.
  sandbox::SandboxFacts Confine(const sandbox::SandboxRules& rules, sandbox::CpuTime time) const;
};

// Returns the exit code of a verb that has returned `status`.
int ExitCodeOf(const CliContext& context, const absl::Status& status);

// Values of --rules.
inline constexpr char kRulesAuto[] = "auto", kRulesWritten[] = "written";

// The place of a job and the changes that the command line makes to the job.
struct JobArguments {
  std::string path;
  std::string mesh;
  bool has_mesh = false;
  std::vector<std::string> set;
  std::string device;  // empty: as the job says
  std::string rules;   // kRulesAuto, kRulesWritten; empty: as the job says
  // kOpened: the verb opens the data of the job, whose paths must then be allowed (data_paths.h).
  enum class Data : uint8_t { kOpened, kNotOpened } data = Data::kOpened;
  std::vector<std::string> allowed_paths;
  CliContext* context = nullptr;  // of the verb that the arguments belong to

  // Adds the positional JOB, and the flags.
  void AddTo(CLI::App* verb, CliContext* of, Data opens);
  // Adds --mesh, --set, --device and --collectives, and --allow-path if the verb opens the data.
  // Returns the options.
  std::vector<CLI::Option*> AddFlagsTo(CLI::App* verb, CliContext* of, Data opens);
  // Adds --rules, of a verb that settles rules (planned_job.h).
  CLI::Option* AddRulesFlag(CLI::App* verb);
  // Returns what people call the job: its name, else its file, else "the job of standard input".
  std::string Title(const proto::Job& job) const;
  // Returns the job with the changes of the command line.
  absl::StatusOr<proto::Job> Read() const;
};

// Returns the error of a trace that lacks what a replay or a comparison needs (W0537), if `status`
// is one (kFailedPrecondition); else `status`.
absl::Status OfTrace(const std::string& path, const absl::Status& status);

// Adds a verb with a description, examples and the work to do.
CLI::App* AddVerb(CLI::App* app, CliContext* context, const std::string& name,
                  const std::string& about, const std::string& examples,
                  std::function<absl::Status()> work);

void AddCheckVerb(CLI::App* app, CliContext* context);  // check
void AddPlanVerb(CLI::App* app, CliContext* context);   // plan
void AddTrainVerb(CLI::App* app, CliContext* context);  // train
// worker, agent: the processes of a job, which no user starts
void AddWorkerVerbs(CLI::App* app, CliContext* context);
void AddEvalVerb(CLI::App* app, CliContext* context);
void AddGenerateVerb(CLI::App* app, CliContext* context);  // generate
void AddZooVerbs(CLI::App* app, CliContext* context);      // zoo gpt | llama | mlp
void AddOpsVerb(CLI::App* app, CliContext* context);       // ops
void AddDimsVerb(CLI::App* app, CliContext* context);      // dims
void AddWeightsVerbs(CLI::App* app, CliContext* context);  // weights check | convert
void AddLoraVerbs(CLI::App* app, CliContext* context);     // lora add | extract | join | merge
// checkpoint ls | show | verify | diff | export | import | edit
void AddCheckpointVerbs(CLI::App* app, CliContext* context);
void AddDataVerbs(CLI::App* app, CliContext* context);     // data show | build
void AddImportVerb(CLI::App* app, CliContext* context);    // import
void AddExportVerb(CLI::App* app, CliContext* context);    // export
void AddSearchVerb(CLI::App* app, CliContext* context);    // search
void AddSimVerbs(CLI::App* app, CliContext* context);      // sim, calibrate
void AddTraceVerbs(CLI::App* app, CliContext* context);    // trace report | diff | chrome
void AddMetricsVerbs(CLI::App* app, CliContext* context);  // metrics csv
void AddTopVerb(CLI::App* app, CliContext* context);       // top
void AddViewVerb(CLI::App* app, CliContext* context);      // view
void AddDoctorVerb(CLI::App* app, CliContext* context);    // doctor
void AddLaunchVerb(CLI::App* app, CliContext* context);    // launch
void AddExplainVerb(CLI::App* app, CliContext* context);   // explain

}  // namespace weir::cli
