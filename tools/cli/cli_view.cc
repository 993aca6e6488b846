// weir view: shows a run in a browser, or writes the page that shows it.
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/whole_file.h"
#include "tools/cli/cli_verbs.h"
#include "tools/launch/signal_watch.h"
#include "tools/live/live_reader.h"
#include "tools/sandbox/run_confined.h"
#include "tools/trace/trace_reader.h"
#include "tools/view/run_bundle.h"
#include "tools/view/view_page.h"
#include "tools/view/view_server.h"

extern char** environ;

namespace weir::cli {
namespace {

constexpr int kRunsMax = 2;
constexpr int kLookMs = 500;
constexpr int kLooksAfterEnd = 6;

struct ViewArguments {
  std::vector<std::string> paths;  // one trace, or two to compare
  const CLI::Option* attach = nullptr;
  std::string run;   // of --attach; empty: the only one
  std::string page;  // --export
  int port = 0;
  bool no_open = false;
  bool ends_with_run = false;
};

// Reads a trace of any author, so the work is done in the sandbox.
absl::StatusOr<std::string> ReadRun(const ViewArguments& arguments, CliSandbox sandbox) {
  std::vector<std::unique_ptr<store::MappedFile>> files;
  for (const std::string& path : arguments.paths) {
    WEIR_ASSIGN_OR_RETURN(files.emplace_back(),
                          store::MappedFile::Open(path, "trace of `weir train --trace`"));
  }
  const auto title_of = [&arguments](size_t i) {
    return std::filesystem::path(arguments.paths[i]).filename().string();
  };
  std::string bundle;
  const auto read = [&]() -> absl::Status {
    std::vector<trace::TraceReader> readers(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      WEIR_RETURN_IF_ERROR(readers[i].Read(files[i]->text(), arguments.paths[i]));
    }
    absl::StatusOr<std::string> made =
        readers.size() == 1 ? view::MakeRunBundle(readers[0], title_of(0))
                            : view::MakeRunBundle(readers[0], title_of(0), readers[1], title_of(1));
    if (!made.ok()) return OfTrace(absl::StrJoin(arguments.paths, " or "), made.status());
    bundle = *std::move(made);
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(sandbox == CliSandbox::kOn ? sandbox::RunConfined(read) : read());
  return bundle;
}

absl::Status Export(const ViewArguments& arguments, const std::string& bundle, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(const std::string page, view::WholePage(bundle));
  WEIR_RETURN_IF_ERROR(store::WriteWholeFile(arguments.page, [&page](std::ostream& file) {
    file << page;
    return absl::OkStatus();
  }));
  out << "page written to " << arguments.page << " (" << BytesText(static_cast<double>(page.size()))
      << "); any browser opens it, without a network\n";
  return absl::OkStatus();
}

// Opens the address in the user's browser, where there is a desktop.
void OpenBrowser(const std::string& address) {
  if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return;
  std::string program = "xdg-open", argument = address;
  char* const words[] = {program.data(), argument.data(), nullptr};
  pid_t process = -1;
  if (::posix_spawnp(&process, words[0], nullptr, nullptr, words, environ) == 0)
    ::waitpid(process, nullptr, 0);
}

// Ends the process at once, because a connection that sends slowly would hold the server's end up.
[[noreturn]] void EndNow(std::ostream& out) {
  out.flush();
  std::_Exit(0);
}

// Serves until Ctrl-C, or until `is_over` says so.
absl::Status Serve(const ViewArguments& arguments, const view::ViewServer& server,
                   const std::string& what, const std::function<bool()>& is_over,
                   std::ostream& out) {
  launch::SignalWatch watch(launch::SecondSignal::kEndsTheProcess);
  out << server.address() << "\n"
      << "shows " << what << " to browsers of this machine; Ctrl-C ends it" << std::endl;
  if (!arguments.no_open) OpenBrowser(server.address());
  pollfd signal = {watch.descriptor(), POLLIN, 0};
  while (!watch.interrupted() && !is_over()) (void)::poll(&signal, 1, kLookMs);
  EndNow(out);
}

absl::Status Attach(const ViewArguments& arguments, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(auto reader, live::FindRun(arguments.run));
  WEIR_ASSIGN_OR_RETURN(const live::LiveState state, reader->State());
  const std::string what = absl::StrCat("the run of ", state.title, ", process ", reader->pid());
  // The page asks once a second, and may learn the end before the server goes.
  const std::shared_ptr<const live::LiveReader> run = std::move(reader);
  int looks_left = kLooksAfterEnd;
  const auto is_over = [&] { return !run->IsAlive() && looks_left-- == 0; };
  WEIR_ASSIGN_OR_RETURN(const auto server, view::ViewServer::StartLive(run, arguments.port));
  return Serve(
      arguments, *server, what,
      arguments.ends_with_run ? std::function<bool()>(is_over) : [] { return false; }, out);
}

absl::Status View(const ViewArguments& arguments, const CliContext& context) {
  if (arguments.attach->count() > 0) return Attach(arguments, *context.out);
  if (arguments.paths.empty())
    throw CLI::RequiredError("FILE, or --attach for a run that goes on,");
  if (arguments.paths.size() > kRunsMax)
    throw CLI::ArgumentMismatch::AtMost("FILE", kRunsMax, arguments.paths.size());
  WEIR_ASSIGN_OR_RETURN(std::string bundle, ReadRun(arguments, context.sandbox));
  if (!arguments.page.empty()) return Export(arguments, bundle, *context.out);
  WEIR_ASSIGN_OR_RETURN(const auto server,
                        view::ViewServer::Start(std::move(bundle), arguments.port));
  return Serve(
      arguments, *server, absl::StrJoin(arguments.paths, " and "), [] { return false; },
      *context.out);
}

}  // namespace

void AddViewVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<ViewArguments>();
  CLI::App* verb = AddVerb(
      app, context, "view", "Show a run in a browser: what held it up, act by act",
      "  weir view run.pftrace\n  weir view run.pftrace --export run.html\n"
      "  weir view before.pftrace after.pftrace    two runs side by side\n"
      "  weir view --attach          the run of yours that goes on on this machine\n"
      "  weir view --attach 4711     one of several, by its process id or its name\n"
      "The page is served on this machine alone, under an address with a secret. From another "
      "machine:\n  ssh -L 8080:127.0.0.1:8080 HOST weir view run.pftrace --port 8080",
      [arguments, context] { return View(*arguments, *context); });
  CLI::Option* files =
      verb->add_option("FILE", arguments->paths,
                       "Trace written by weir train --trace or weir sim --trace; with a second "
                       "one, the page compares them")
          ->expected(-1);
  CLI::Option* attach = verb->add_option("--attach", arguments->run,
                                         "Show a run of this user on this machine as it goes on")
                            ->type_name("[RUN]")
                            ->expected(0, 1)
                            ->excludes(files);
  arguments->attach = attach;
  verb->add_option("--export", arguments->page,
                   "Write one page that any browser opens from disk, and serve nothing")
      ->excludes(attach);
  verb->add_option("--port", arguments->port, "Port of the loopback interface [any free one]")
      ->check(CLI::Range(1, 65535));
  verb->add_flag("--no-open", arguments->no_open, "Print the address, and open no browser");
  verb->add_flag("--ends-with-run", arguments->ends_with_run,
                 "End a few seconds after the run of --attach, as weir train --view wants it")
      ->needs(attach);
}

}  // namespace weir::cli
