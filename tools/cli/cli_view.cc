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
  std::string other;  // to compare with; empty: none
  std::string page;   // --export
  int port = 0;
  bool no_open = false;
};

// Reads a trace of any author, so the work is done in the sandbox.
absl::StatusOr<std::string> ReadRun(const ViewArguments& arguments, CliSandbox sandbox) {
  constexpr char kWhat[] = "trace of `weir train --trace`";
  WEIR_ASSIGN_OR_RETURN(auto file, store::MappedFile::Open(arguments.path, kWhat));
  std::unique_ptr<store::MappedFile> other_file;
  if (!arguments.other.empty()) {
    WEIR_ASSIGN_OR_RETURN(other_file, store::MappedFile::Open(arguments.other, kWhat));
  }
  const auto read_into = [](const store::MappedFile& from, const std::string& path,
                            trace::TraceReader* reader) {
    return reader->Read(absl::string_view(reinterpret_cast<const char*>(from.data()),
                                          static_cast<size_t>(from.size())),
                        path);
  };
  const auto title_of = [](const std::string& path) {
    return std::filesystem::path(path).filename().string();
  };
  std::string bundle;
  const auto read = [&]() -> absl::Status {
    trace::TraceReader reader, other;
    WEIR_RETURN_IF_ERROR(read_into(*file, arguments.path, &reader));
    if (other_file == nullptr) {
      WEIR_ASSIGN_OR_RETURN(bundle, view::MakeRunBundle(reader, title_of(arguments.path)));
      return absl::OkStatus();
    }
    WEIR_RETURN_IF_ERROR(read_into(*other_file, arguments.other, &other));
    WEIR_ASSIGN_OR_RETURN(bundle, view::MakeRunBundle(reader, title_of(arguments.path), other,
                                                      title_of(arguments.other)));
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

absl::Status Serve(const ViewArguments& arguments, std::string bundle, std::ostream& out) {
  launch::SignalWatch watch(launch::SecondSignal::kEndsTheProcess);
  WEIR_ASSIGN_OR_RETURN(const auto server,
                        view::ViewServer::Start(std::move(bundle), arguments.port));
  out << server->address() << "\n"
      << "shows " << arguments.path << " to browsers of this machine; Ctrl-C ends it" << std::endl;
  if (!arguments.no_open) OpenBrowser(server->address());
  pollfd signal = {watch.descriptor(), POLLIN, 0};
  while (!watch.interrupted()) (void)::poll(&signal, 1, -1);
  return absl::OkStatus();
}

absl::Status View(const ViewArguments& arguments, const CliContext& context) {
  WEIR_ASSIGN_OR_RETURN(std::string bundle, ReadRun(arguments, context.sandbox));
  if (!arguments.page.empty()) return Export(arguments, bundle, *context.out);
  return Serve(arguments, std::move(bundle), *context.out);
}

}  // namespace

void AddViewVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<ViewArguments>();
  CLI::App* verb = AddVerb(
      app, context, "view", "Show a run in a browser: what held it up, act by act",
      "  weir view run.pftrace\n  weir view run.pftrace --export run.html\n"
      "  weir view before.pftrace after.pftrace    two runs side by side\n"
      "The page is served on this machine alone, under an address with a secret. From another "
      "machine:\n  ssh -L 8080:127.0.0.1:8080 HOST weir view run.pftrace --port 8080",
      [arguments, context] { return View(*arguments, *context); });
  verb->add_option("FILE", arguments->path,
                   "Trace written by weir train --trace or weir sim --trace")
      ->required();
  verb->add_option("OTHER", arguments->other, "A trace to compare with it");
  verb->add_option("--export", arguments->page,
                   "Write one page that any browser opens from disk, and serve nothing");
  verb->add_option("--port", arguments->port, "Port of the loopback interface [any free one]")
      ->check(CLI::Range(1, 65535));
  verb->add_flag("--no-open", arguments->no_open, "Print the address, and open no browser");
}

}  // namespace weir::cli
