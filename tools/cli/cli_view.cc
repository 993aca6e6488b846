// weir view: shows a run in a browser, or writes the page that shows it.
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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

struct ViewArguments {
  std::string path;
  bool attaches = false;
  std::string run;   // of --attach; empty: the only one
  std::string page;  // --export
  int port = 0;
  bool no_open = false;
};

// Reads a trace of any author, so the work is done in the sandbox.
absl::StatusOr<std::string> ReadRun(const std::string& path, CliSandbox sandbox) {
  WEIR_ASSIGN_OR_RETURN(auto file, store::MappedFile::Open(path, "trace of `weir train --trace`"));
  std::string bundle;
  const auto read = [&]() -> absl::Status {
    trace::TraceReader reader;
    WEIR_RETURN_IF_ERROR(reader.Read(absl::string_view(reinterpret_cast<const char*>(file->data()),
                                                       static_cast<size_t>(file->size())),
                                     path));
    const std::string title = std::filesystem::path(path).filename().string();
    WEIR_ASSIGN_OR_RETURN(bundle, view::MakeRunBundle(reader, title));
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

// Serves until Ctrl-C.
absl::Status Serve(const ViewArguments& arguments, const view::ViewServer& server,
                   const std::string& what, std::ostream& out) {
  launch::SignalWatch watch(launch::SecondSignal::kEndsTheProcess);
  out << server.address() << "\n"
      << "shows " << what << " to browsers of this machine; Ctrl-C ends it" << std::endl;
  if (!arguments.no_open) OpenBrowser(server.address());
  pollfd signal = {watch.descriptor(), POLLIN, 0};
  while (!watch.interrupted()) (void)::poll(&signal, 1, -1);
  return absl::OkStatus();
}

absl::Status Attach(const ViewArguments& arguments, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(auto reader, live::FindRun(arguments.run));
  WEIR_ASSIGN_OR_RETURN(const live::LiveState state, reader->State());
  const std::string what = absl::StrCat("the run of ", state.title, ", process ", reader->pid());
  WEIR_ASSIGN_OR_RETURN(const auto server,
                        view::ViewServer::StartLive(std::move(reader), arguments.port));
  return Serve(arguments, *server, what, out);
}

absl::Status View(const ViewArguments& arguments, const CliContext& context) {
  if (arguments.attaches) return Attach(arguments, *context.out);
  WEIR_ASSIGN_OR_RETURN(std::string bundle, ReadRun(arguments.path, context.sandbox));
  if (!arguments.page.empty()) return Export(arguments, bundle, *context.out);
  WEIR_ASSIGN_OR_RETURN(const auto server,
                        view::ViewServer::Start(std::move(bundle), arguments.port));
  return Serve(arguments, *server, arguments.path, *context.out);
}

}  // namespace

void AddViewVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<ViewArguments>();
  CLI::App* verb = AddVerb(
      app, context, "view", "Show a run in a browser: what held it up, act by act",
      "  weir view run.pftrace\n  weir view run.pftrace --export run.html\n"
      "  weir view --attach          the run of yours that goes on on this machine\n"
      "  weir view --attach 4711     one of several, by its process id or its name\n"
      "The page is served on this machine alone, under an address with a secret. From another "
      "machine:\n  ssh -L 8080:127.0.0.1:8080 HOST weir view run.pftrace --port 8080",
      [arguments, context] { return View(*arguments, *context); });
  CLI::App* run = verb->add_option_group("The run, one of");
  run->add_option("FILE", arguments->path,
                  "Trace written by weir train --trace or weir sim --trace");
  CLI::Option* attach = run->add_option("--attach", arguments->run,
                                        "Show a run of this user on this machine as it goes on")
                            ->type_name("[RUN]")
                            ->expected(0, 1);
  run->require_option(1);
  attach->each([arguments](const std::string&) { arguments->attaches = true; });
  verb->add_option("--export", arguments->page,
                   "Write one page that any browser opens from disk, and serve nothing");
  verb->add_option("--port", arguments->port, "Port of the loopback interface [any free one]")
      ->check(CLI::Range(1, 65535));
  verb->add_flag("--no-open", arguments->no_open, "Print the address, and open no browser");
}

}  // namespace weir::cli
