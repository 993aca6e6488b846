// weir explain: shows the pages of the error codes.
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/base/wrap_text.h"
#include "tools/cli/cli_verbs.h"
#include "tools/console/console.h"
#include "tools/errors/error_pages.h"

namespace weir::cli {
namespace {

absl::Status Explain(const std::string& code, std::ostream& out) {
  const int columns = console::TextColumns(STDOUT_FILENO);
  if (code.empty()) {
    out << errors::ListErrors(columns);
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const std::string page, errors::ExplainError(code, columns));
  out << page;
  return absl::OkStatus();
}

}  // namespace

void AddExplainVerb(CLI::App* app, CliContext* context) {
  auto code = std::make_shared<std::string>();
  CLI::App* verb = AddVerb(app, context, "explain",
                           "Say what an error code means and what to do, or list all codes",
                           "  weir explain W0426\n  weir explain",
                           [code, context] { return Explain(*code, *context->out); });
  verb->add_option("CODE", *code, "The code that an error message begins with, such as W0426");
}

}  // namespace weir::cli
