// weir generate, in this process or in several.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "compiler/dims/decode_job.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/input_file.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/job_weights.h"
#include "tools/cli/planned_job.h"
#include "tools/cli/train_arguments.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet_generation.h"
#include "tools/fleet/rank_spread.h"
#include "tools/hosts/find_hosts.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/signal_watch.h"
#include "tools/sim/product_ways.h"
#include "tools/train/generator.h"
#include "tools/weights/averages.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

using train::Tokens;

constexpr int64_t kPromptBytesMax = int64_t{64} << 20;
constexpr size_t kPromptsMax = 65536;

struct GenerateArguments {
  JobArguments job;
  train::GenerateOptions options;
  std::vector<std::string> prompts;  // texts
  std::string prompt_ids;            // a file of JSON lines; empty: none
  std::vector<std::string> stops;
  std::vector<std::string> stop_ids;  // a list of token ids in each
  FleetArguments fleet;
  bool json = false;
  bool without_cache = false;
  bool averages = false;
  bool stats = false;
};

absl::StatusOr<std::string> ReadPromptFile(const std::string& path) {
  const store::InputFile::Naming naming = {"W0771",
                                           "a readable file of prompts, a list of token "
                                           "ids in each line",
                                           "echo '[1, 15, 7]' > prompts.jsonl"};
  WEIR_ASSIGN_OR_RETURN(const store::InputFile file, store::InputFile::Open(path, naming));
  if (file.size() > kPromptBytesMax) {
    return Rejected({"W0771", path, absl::StrCat("at most ", kPromptBytesMax, " bytes of prompts"),
                     absl::StrCat(file.size(), " bytes"), "several runs, each with some of them"});
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t read = ::read(file.descriptor(), text.data() + got, text.size() - got);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Missing({"W0771", path, naming.expected, ::strerror(errno), ""});
    if (read == 0) break;
    got += static_cast<size_t>(read);
  }
  text.resize(got);
  return text;
}

absl::StatusOr<std::vector<Tokens>> ReadPromptIds(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadPromptFile(path));
  std::vector<Tokens> prompts;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == absl::string_view::npos) continue;
    const auto refused = [&] {
      return Rejected({"W0771", absl::StrCat(path, ", line ", number),
                       "a list of token ids, each from 0 to below 2^31",
                       std::string(line.substr(0, 60)), "[1, 15, 7]"});
    };
    // The parser takes a zero byte for the end of the text.
    if (line.find('\0') != absl::string_view::npos) return refused();
    const nlohmann::json ids =
        nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (!ids.is_array()) return refused();
    Tokens& prompt = prompts.emplace_back();
    for (const nlohmann::json& id : ids) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) return refused();
      prompt.push_back(id.get<int32_t>());
    }
    if (prompts.size() > kPromptsMax) {
      return Rejected({"W0771", path, absl::StrCat("at most ", kPromptsMax, " prompts"), "more",
                       "several runs, each with some of them"});
    }
  }
  if (!prompts.empty()) return prompts;
  return Rejected(
      {"W0771", path, "at least one line with a list of token ids", "none", "[1, 15, 7]"});
}

const char* Name(train::Generated::End end) {
  switch (end) {
    case train::Generated::End::kLength: return "length";
    case train::Generated::End::kStop: return "stop";
    case train::Generated::End::kInterrupted: return "interrupted";
  }
  return "";
}

std::string TextOf(const Tokens& tokens) {
  std::string text;
  for (const int32_t token : tokens) text.push_back(static_cast<char>(token));
  return text;
}

// Returns the line of one prompt. The text is left out if a token is no byte.
std::string JsonLine(size_t prompt, const Tokens& tokens, train::Generated::End end) {
  nlohmann::ordered_json line;
  line["prompt"] = prompt;
  line["tokens"] = tokens;
  if (std::all_of(tokens.begin(), tokens.end(), [](int32_t token) { return token < 256; }))
    line["text"] = TextOf(tokens);
  line["end"] = Name(end);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Returns the line of --stats. The rate leaves out the run that reads the first prompts.
std::string StatsLine(const train::Generated& generated, size_t prompts) {
  const double seconds = generated.seconds - generated.first_seconds;
  const int64_t tokens = generated.tokens - generated.first_tokens;
  std::string line = absl::StrFormat("%d tokens in %.3f s", generated.tokens, generated.seconds);
  if (generated.first_tokens > 0) {
    const bool is_of_each = generated.first_tokens == static_cast<int64_t>(prompts);
    absl::StrAppendFormat(&line, ", the first of %s in %.3f s",
                          is_of_each ? "each prompt" : Plural(generated.first_tokens, "prompt"),
                          generated.first_seconds);
  }
  if (tokens > 0 && seconds > 0)
    absl::StrAppendFormat(&line, ", then %.1f tokens/s", static_cast<double>(tokens) / seconds);
  absl::StrAppendFormat(&line, "; %d with the cache", generated.cached_tokens);
  if (generated.pages == 0) return line;
  absl::StrAppendFormat(&line, "; of %d pages of %d positions, at most %d in use", generated.pages,
                        compiler::kPageSize, generated.peak_pages);
  if (generated.read_again > 0)
    absl::StrAppendFormat(&line, "; %s a sequence was read again",
                          Plural(generated.read_again, "time"));
  return line;
}

// Runs the generation. `on_token` sees each token as it comes.
absl::StatusOr<train::Generated> GenerateAndReport(
    const proto::Job& job, const GenerateArguments& arguments, CliContext* context,
    const std::function<void(size_t, int32_t)>& on_token) {
  WEIR_ASSIGN_OR_RETURN(const train::Generated generated,
                        train::Generate(job, arguments.options, on_token));
  if (arguments.stats)
    *context->err << StatsLine(generated, arguments.options.prompts.size()) << "\n";
  return generated;
}

// One prompt: each byte appears when it comes. The prompt comes with the first byte, so that a job
// that cannot generate prints only its error.
absl::Status StreamText(const proto::Job& job, const GenerateArguments& arguments,
                        CliContext* context, std::ostream& out) {
  bool has_begun = false;
  const auto begin = [&] {
    if (!std::exchange(has_begun, true)) out << TextOf(arguments.options.prompts[0]);
  };
  const absl::Status status = GenerateAndReport(job, arguments, context, [&](size_t, int32_t byte) {
                                begin();
                                out << static_cast<char>(byte) << std::flush;
                              }).status();
  if (status.ok()) begin();
  if (has_begun) out << "\n" << std::flush;
  return status;
}

// Several prompts, or JSON: everything appears at the end, in the order of the prompts.
absl::Status PrintAll(const proto::Job& job, const GenerateArguments& arguments,
                      CliContext* context, std::ostream& out) {
  std::vector<Tokens> tokens(arguments.options.prompts.size());
  WEIR_ASSIGN_OR_RETURN(
      const train::Generated generated,
      GenerateAndReport(job, arguments, context,
                        [&](size_t prompt, int32_t token) { tokens[prompt].push_back(token); }));
  for (size_t p = 0; p < tokens.size(); ++p) {
    if (arguments.json) {
      *context->raw_out << JsonLine(p, tokens[p], generated.ends[p]) << "\n";
    } else {
      out << TextOf(arguments.options.prompts[p]) << TextOf(tokens[p]) << "\n";
    }
  }
  return absl::OkStatus();
}

// Returns the token ids of "7" or "13,10".
absl::StatusOr<Tokens> ReadStopIds(const std::string& text) {
  Tokens tokens;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int32_t token = 0;
    if (!absl::SimpleAtoi(part, &token) || token < 0) {
      return Rejected({"W0780", "--stop-ids", "token ids from 0 to below 2^31 with commas between",
                       absl::StrCat("\"", text, "\""), "--stop-ids 2, or --stop-ids 13,10"});
    }
    tokens.push_back(token);
  }
  return tokens;
}

// Fills the options that the arguments hold as text.
absl::Status ReadOptions(GenerateArguments* arguments) {
  train::GenerateOptions& options = arguments->options;
  WEIR_ASSIGN_OR_RETURN(options.init, weights::WeightFileOf(options.init));
  options.job_file = arguments->job.path;
  if (arguments->job.has_mesh) options.devices = train::GenerationDevices::kMeshOfJob;
  options.values = weights::ValuesOf(arguments->averages);
  if (arguments->without_cache) options.cache = train::GenerateOptions::Cache::kNever;
  if (!arguments->prompt_ids.empty()) {
    WEIR_ASSIGN_OR_RETURN(options.prompts, ReadPromptIds(arguments->prompt_ids));
    options.alphabet = train::GenerateOptions::Alphabet::kAll;
    arguments->json = true;
  } else if (!arguments->prompts.empty()) {
    options.prompts.clear();
    for (const std::string& text : arguments->prompts)
      options.prompts.push_back(train::TokensOf(text));
  }
  for (const std::string& stop : arguments->stops) options.stops.push_back(train::TokensOf(stop));
  for (const std::string& ids : arguments->stop_ids) {
    WEIR_ASSIGN_OR_RETURN(Tokens stop, ReadStopIds(ids));
    options.stops.push_back(std::move(stop));
  }
  return absl::OkStatus();
}

absl::Status GenerateAndPrint(const proto::Job& job, GenerateArguments& arguments,
                              const launch::SignalWatch& signals, CliContext* context) {
  train::GenerateOptions& options = arguments.options;
  options.note = [context](const std::string& text) { *context->err << text << "\n"; };
  // A file or a pipe gets the model's bytes. A terminal gets printable text, because it would obey
  // some bytes.
  std::ostream& out = ::isatty(STDOUT_FILENO) ? *context->out : *context->raw_out;
  // Nobody wants more tokens if the reader of a pipe has gone.
  options.interrupted = [&] { return signals.interrupted().load() || out.fail(); };
  const bool is_one_text = options.prompts.size() == 1 && !arguments.json;
  return is_one_text ? StreamText(job, arguments, context, out)
                     : PrintAll(job, arguments, context, out);
}

// Generates in this process, or on the hosts found; then `*fleet` becomes the processes there.
absl::Status GenerateOn(const hosts::FoundHosts& found, GenerateArguments arguments,
                        const launch::SignalWatch& signals, console::Console* console,
                        std::unique_ptr<fleet::Fleet>* fleet, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(proto::Job job, arguments.job.Read());
  WEIR_RETURN_IF_ERROR(SettleRulesConfined(&job));
  WEIR_ASSIGN_OR_RETURN(const std::string products, sim::SettleProducts(&job));
  if (!products.empty()) console->Say(products);
  WEIR_RETURN_IF_ERROR(ReadOptions(&arguments));
  train::GenerateOptions& options = arguments.options;
  WEIR_ASSIGN_OR_RETURN(const std::string note,
                        NoteOfAdapters(job, options.init, options.job_file));
  if (!note.empty()) console->Say(note);
  if (arguments.fleet.processes == 0 && found.agents.empty())
    return GenerateAndPrint(job, arguments, signals, context);
  options.devices = train::GenerationDevices::kMeshOfJob;
  proto::Job without_data = job;  // whose files nobody reads
  without_data.clear_data();
  WEIR_ASSIGN_OR_RETURN(fleet::FleetOptions processes,
                        arguments.fleet.Options(without_data, found, console));
  processes.input_files = InputsOfWeights(options.init, options.job_file);
  fleet::TellHosts(processes, &job);
  fleet::FleetGeneration runner(processes, options.threads, fleet);
  options.runner = &runner;
  const absl::Status status = GenerateAndPrint(job, arguments, signals, context);
  if (*fleet == nullptr) return status;
  const launch::FailureReport report = (*fleet)->Finish(status);
  *context->err << report.text << std::flush;
  (*fleet)->AwaitRemaining();
  if (report.text.empty()) return status;
  context->exit_code = report.exit_code;
  return absl::OkStatus();
}

absl::Status RunGenerate(const GenerateArguments& arguments, CliContext* context) {
  console::Console console(::isatty(STDERR_FILENO) ? console::Console::Style::kTerminal
                                                   : console::Console::Style::kPlain,
                           context->raw_err,
                           [] { return console::TerminalColumns(STDERR_FILENO); });
  console::ConsoleLines agent_lines(&console);
  WEIR_ASSIGN_OR_RETURN(hosts::FoundHosts found,
                        hosts::FindHosts(arguments.fleet.hosts, &agent_lines));
  if (found.served.has_value()) {
    context->exit_code = *found.served;
    return absl::OkStatus();
  }
  if (!found.line.empty()) console.Say(found.line);
  launch::SignalWatch signals(launch::SecondSignal::kEndsTheProcess);
  std::unique_ptr<fleet::Fleet> fleet;
  const absl::Status status = GenerateOn(found, arguments, signals, &console, &fleet, context);
  if (signals.interrupted().load()) context->exit_code = launch::kExitInterrupted;
  const int exit_code = ExitCodeOf(*context, status);
  if (fleet != nullptr) fleet->TellEnd(exit_code);
  fleet.reset();
  found.TellEnd(exit_code);
  return status;
}

void AddSamplingOptions(CLI::App* verb, train::GenerateOptions* options) {
  verb->add_option("--max-tokens,--tokens", options->max_tokens, "Tokens to add to each prompt")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--temperature", options->sampling.temperature,
                   "0: always the likeliest; 1: as the model says")
      ->type_name("T")
      ->capture_default_str();
  verb->add_option("--top-k", options->sampling.top_k, "Only the K likeliest tokens; 0: all")
      ->type_name("K")
      ->capture_default_str();
  verb->add_option("--top-p", options->sampling.top_p,
                   "Only the likeliest tokens that together have probability P; 1: all")
      ->type_name("P")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Seed of the choice")
      ->type_name("N")
      ->check(IsCount())
      ->capture_default_str();
}

}  // namespace

void AddGenerateVerb(CLI::App* app, CliContext* context) {
  auto generate = std::make_shared<GenerateArguments>();
  CLI::App* verb = AddVerb(
      app, context, "generate", "Continue prompts with a trained language model",
      "  weir generate gpt.textproto --init gpt.safetensors --prompt 'Once upon' --tokens 300\n"
      "  weir generate gpt.textproto --init gpt.safetensors --temperature 0\n"
      "  weir generate gpt.textproto --init gpt.safetensors --mesh tp=2 --prompt A --prompt B\n"
      "  weir generate llama.textproto --init folder/ --prompt-ids prompts.jsonl --stop-ids 2 > "
      "out.jsonl\n"
      "  weir generate llama.textproto --init folder/ --mesh tp=2,pp=2 --processes 4",
      [generate, context] { return RunGenerate(*generate, context); });
  generate->job.AddTo(verb, context, JobArguments::Data::kNotOpened);
  generate->job.AddRulesFlag(verb);
  verb->add_option("--init", generate->options.init,
                   "The weights: safetensors, an index of them, or a folder")
      ->type_name("PATH")
      ->required()
      ->check(CLI::Validator(
          [](std::string& path) {
            return std::string(path.empty() ? "expected the path of weights; found nothing" : "");
          },
          ""));
  verb->add_flag("--average", generate->averages,
                 "In place of each weight its average, which a run with training.average has");
  CLI::Option* prompt = verb->add_option("--prompt", generate->prompts,
                                         "Text to continue, again for each prompt [a new line]")
                            ->type_name("TEXT")
                            ->allow_extra_args(false);
  verb->add_option("--prompt-ids", generate->prompt_ids,
                   "Prompts as JSON lines, a list of token ids in each; sets --json")
      ->type_name("FILE")
      ->excludes(prompt);
  AddSamplingOptions(verb, &generate->options);
  verb->add_option(
          "--batch", generate->options.batch,
          absl::StrCat("Sequences at a time; when one ends, the next prompt takes its place "
                       "[all, at most ",
                       train::kBatchDefault, "]"))
      ->type_name("N")
      ->check(IsCount(1));
  verb->add_option(
          "--cache-tokens", generate->options.cache_tokens,
          "Positions that the cache has for all sequences together [so many that none has to give "
          "its pages back]")
      ->type_name("N")
      ->check(IsCount(1));
  verb->add_option("--stop", generate->stops, "End a sequence after this text, again for each text")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--stop-ids", generate->stop_ids,
                   "End a sequence after this token id, or these in a row: 2, or 13,10; again for "
                   "each other end")
      ->type_name("LIST")
      ->allow_extra_args(false);
  verb->add_flag("--json", generate->json,
                 "Print a JSON line for each prompt, with its new tokens, instead of text");
  verb->add_flag("--no-cache", generate->without_cache,
                 "Run the whole window again for each token");
  verb->add_flag("--stats", generate->stats,
                 "Say on standard error how fast it was, and what the cache held");
  verb->add_option("--threads", generate->options.threads, "Threads per device [cores / devices]")
      ->type_name("N")
      ->check(IsCount(1));
  generate->fleet.AddTo(verb);
}

}  // namespace weir::cli
