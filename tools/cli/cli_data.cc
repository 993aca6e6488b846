// weir data: says what a file of data is, and makes files of tokens of texts.
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/idx_file.h"
#include "runtime/store/npy_header.h"
#include "runtime/store/stored_array.h"
#include "runtime/store/token_file.h"
#include "runtime/store/watched_file.h"
#include "tools/cli/cli_verbs.h"
#include "tools/train/output_paths.h"

extern char** environ;

namespace weir::cli {
namespace {

constexpr int64_t kPieceElements = 1 << 16;
constexpr int64_t kFirstValues = 8;
constexpr char kPurpose[] = "data to show";

// Whole numbers up to 2^53 keep all their digits.
std::string NumberText(double value) {
  return value == std::floor(value) && std::abs(value) < 0x1p53
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrCat(value);
}

// The numbers of a file, as far as they have been seen.
struct Seen {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = -std::numeric_limits<double>::infinity();
  int64_t not_numbers = 0, infinite = 0;
  std::vector<std::string> first;

  void Add(double value) {
    if (first.size() < static_cast<size_t>(kFirstValues)) first.push_back(NumberText(value));
    if (std::isnan(value)) ++not_numbers;
    if (std::isinf(value)) ++infinite;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  std::string Text() const {
    if (first.empty()) return "no values";
    return absl::StrCat("values ", NumberText(smallest), " to ", NumberText(largest),
                        not_numbers > 0 ? absl::StrCat(", ", not_numbers, " not a number") : "",
                        infinite > 0 ? absl::StrCat(", ", infinite, " infinite") : "", ", first ",
                        absl::StrJoin(first, " "));
  }
};

absl::StatusOr<Seen> SeenIn(const store::StoredArray& array) {
  Seen seen;
  const int64_t size = NumElements(array.shape());
  std::vector<double> piece;
  for (int64_t begin = 0; begin < size; begin += kPieceElements) {
    piece.resize(static_cast<size_t>(std::min(kPieceElements, size - begin)));
    WEIR_RETURN_IF_ERROR(
        array.ReadNumbers(begin, static_cast<int64_t>(piece.size()), piece.data()));
    for (double value : piece) seen.Add(value);
    // The numbers in holes are 0, and the first of a long hole have been seen if the file begins
    // with it.
    const int64_t next = begin + static_cast<int64_t>(piece.size());
    const int64_t after = array.SkipHole(next);
    if (after > next) seen.Add(0);
    begin += after - next;
  }
  return seen;
}

std::string Quoted(const std::string& path) { return absl::StrCat("\"", path, "\""); }

absl::Status ShowTokens(const store::TokenFile& file, const std::string& type,
                        CliContext* context) {
  Seen seen;
  std::vector<int32_t> piece;
  for (int64_t begin = 0; begin < file.size(); begin += kPieceElements) {
    piece.resize(static_cast<size_t>(std::min(kPieceElements, file.size() - begin)));
    WEIR_RETURN_IF_ERROR(file.ReadAt(begin, static_cast<int64_t>(piece.size()), piece.data()));
    for (int32_t token : piece) seen.Add(token);
  }
  *context->out << file.path() << ": " << Plural(file.size(), "token") << ", " << file.form()
                << "\n  " << seen.Text() << "\n"
                << "next: data { tokens { path: " << Quoted(file.path())
                << (type.empty() ? "" : " type: " + type) << " } }\n";
  return absl::OkStatus();
}

absl::Status ShowArrays(const std::string& path,
                        const std::map<std::string, store::StoredArray>& arrays,
                        CliContext* context) {
  *context->out << path << ": " << Plural(static_cast<int64_t>(arrays.size()), "array") << "\n";
  for (const auto& [name, array] : arrays) {
    WEIR_ASSIGN_OR_RETURN(const Seen seen, SeenIn(array));
    *context->out << "  " << name << "  " << array.TypeText() << "  " << seen.Text() << "\n";
  }
  *context->out << "next: data { arrays { path: " << Quoted(path) << " } }\n";
  return absl::OkStatus();
}

absl::Status ShowNpy(const std::string& path, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const store::StoredArray array, store::OpenNpyArray(path, kPurpose));
  WEIR_ASSIGN_OR_RETURN(const Seen seen, SeenIn(array));
  const std::string name = std::filesystem::path(path).stem().string();
  *context->out << path << ": " << array.TypeText() << "\n  " << seen.Text() << "\n"
                << "next: data { arrays { array { name: " << Quoted(name)
                << " path: " << Quoted(path) << " } } }\n";
  // A row of ids from 0 may also be one long text, which is cut into windows.
  if (array.shape().size() == 1 && seen.smallest >= 0 && seen.largest < 0x1p31 &&
      store::TokenFile::Open(path, kPurpose, store::TokenType::kFound).ok()) {
    *context->out << "  or, if the numbers are the tokens of one long text: data { tokens { path: "
                  << Quoted(path) << " } }\n";
  }
  return absl::OkStatus();
}

// Shows a file without a form of its own: a text.
absl::Status ShowText(const store::WatchedFile& file, CliContext* context) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min<int64_t>(file.size(), kPieceElements)));
  WEIR_RETURN_IF_ERROR(file.ReadAt(0, static_cast<int64_t>(bytes.size()), bytes.data()));
  if (std::find(bytes.begin(), bytes.end(), 0) != bytes.end()) {
    return Rejected({"W0796", file.path(), "a text, arrays, or a file of tokens with a header",
                     "bytes without a header", "--type u16 or --type u32, if they are tokens"});
  }
  if (bytes.empty()) {
    return Rejected(
        {"W0796", file.path(), "a file of data", "an empty file", "copy or save the file again"});
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  *context->out << file.path() << ": text of " << Plural(file.size(), "byte") << "\n  first line "
                << Quoted(std::string(text.substr(0, std::min<size_t>(text.find('\n'), 60))))
                << "\nnext: data { text { path: " << Quoted(file.path())
                << " held_out: 0.1 } }, or weir data build " << file.path() << " -o tokens.npy\n";
  return absl::OkStatus();
}

struct ShowArguments {
  std::string path;
  std::string type;
};

absl::Status ShowData(const ShowArguments& arguments, CliContext* context) {
  const std::string& path = arguments.path;
  if (!arguments.type.empty()) {
    const bool is_u16 = arguments.type == "u16";
    WEIR_ASSIGN_OR_RETURN(
        const auto tokens,
        store::TokenFile::Open(path, kPurpose,
                               is_u16 ? store::TokenType::kU16 : store::TokenType::kU32));
    return ShowTokens(*tokens, is_u16 ? "U16" : "U32", context);
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error) || absl::EndsWith(path, ".npz") ||
      absl::EndsWith(path, ".safetensors")) {
    WEIR_ASSIGN_OR_RETURN(const auto arrays, store::ArraysIn(path, kPurpose));
    return ShowArrays(path, arrays, context);
  }
  WEIR_ASSIGN_OR_RETURN(const auto file, store::WatchedFile::Open(path, kPurpose));
  std::vector<uint8_t> begin(static_cast<size_t>(std::min<int64_t>(file->size(), 8)));
  WEIR_RETURN_IF_ERROR(file->ReadAt(0, static_cast<int64_t>(begin.size()), begin.data()));
  if (store::IsNpy(begin)) return ShowNpy(path, context);
  const auto tokens = store::TokenFile::Open(path, kPurpose, store::TokenType::kFound);
  if (tokens.ok()) return ShowTokens(**tokens, "", context);
  const bool is_gzip = begin.size() > 1 && begin[0] == 0x1f && begin[1] == 0x8b;
  if (is_gzip || (begin.size() > 3 && begin[0] == 0 && begin[1] == 0 && begin[2] == 8)) {
    const int dimensions = is_gzip || begin[3] == 3 ? 3 : 1;
    auto images = store::ReadIdxFile(path, dimensions, kPurpose);
    if (!images.ok() && is_gzip) images = store::ReadIdxFile(path, 1, kPurpose);
    if (!images.ok()) return images.status();
    Seen seen;
    for (uint8_t value : images->data) seen.Add(value);
    *context->out << path << ": IDX u8" << ToText(images->shape) << "\n  " << seen.Text() << "\n";
    return absl::OkStatus();
  }
  return ShowText(*file, context);
}

struct BuildArguments {
  std::vector<std::string> inputs;
  // Options of the package for Python, with their values.
  std::map<std::string, std::string> options;
};

// The exit code by which Python says that it has no package `weir`.
constexpr int kNoPackage = 97;
// The first argument is a folder that may hold the package. The current folder holds no package of
// Weir, whatever its files are called.
constexpr char kStart[] =
    "import sys\n"
    "sys.path = [path for path in sys.path if path] + [sys.argv[1]]\n"
    "try:\n"
    "  from weir.token_files import main\n"
    "except ImportError:\n"
    "  sys.exit(97)\n"
    "sys.exit(main(sys.argv[2:]))\n";

// Returns the package in the tree in which Bazel has built this program.
std::string PackageInTree() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  // TREE/bazel-out/CONFIGURATION/bin/tools/weir
  return (program.parent_path() / "../../../../tools/python").lexically_normal().string();
}

absl::Status NoPython(const std::string& expected, const std::string& found,
                      const std::string& hint) {
  return Missing({"W0796", "data build", expected, found, hint});
}

absl::Status BuildData(const BuildArguments& arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(train::CheckOutsideOfCheckpoints("-o", arguments.options.at("--out")));
  std::vector<std::string> words = {"python3", "-c", kStart, PackageInTree()};
  for (const auto& [option, value] : arguments.options) {
    if (!value.empty()) words.push_back(absl::StrCat(option, "=", value));
  }
  words.push_back("--");
  words.insert(words.end(), arguments.inputs.begin(), arguments.inputs.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  context->out->flush();
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0) {
    return NoPython("Python, whose libraries read tokenizers",
                    absl::StrCat("no python3 that starts (", strerror(error), ")"),
                    "apt install python3");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  context->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (context->exit_code != kNoPackage) return absl::OkStatus();
  return NoPython("the package weir in the Python of this environment", "none in python3",
                  "python3 -m pip install ./tools/python, in the tree of Weir");
}

void AddBuildVerb(CLI::App* data, CliContext* context) {
  auto build = std::make_shared<BuildArguments>();
  CLI::App* verb = AddVerb(
      data, context, "build", "Make a file of tokens of texts, by the package for Python",
      "  weir data build book.txt -o tokens.npy\n"
      "  weir data build corpus.jsonl --tokenizer tokenizer.json --held-out 0.01 -o tokens.npy",
      [build, context] { return BuildData(*build, context); });
  verb->add_option("FILE", build->inputs,
                   "Texts, or files .jsonl with a document in each line; tokens follow in this "
                   "order")
      ->required();
  const auto option = [&](const char* names, const char* type, const char* about) {
    const std::string all = names;
    return verb->add_option(names, build->options[all.substr(all.find("--"))], about)
        ->type_name(type);
  };
  option("-o,--out", "PATH", "The new file: .npy, or .bin for numbers without a header")
      ->required();
  option("--tokenizer", "PATH",
         "tokenizer.json, a .model of SentencePiece, a folder with one of them, or bytes [bytes]");
  option("--held-out", "SHARE",
         "The share that goes to NAME.held_out.npy: of documents of .jsonl, and of the end of each "
         "text [0]");
  option("--field", "KEY", "The key of the text in a line of .jsonl [text]");
  option("--separator", "TOKEN",
         "The token after each document: its text, its id, or none [the one of the tokenizer]");
  option("--type", "TYPE", "u16 or u32 [u16 if all ids fit]");
  option("--seed", "N", "The draw of held-out documents [0]");
}

}  // namespace

void AddDataVerbs(CLI::App* app, CliContext* context) {
  CLI::App* data = app->add_subcommand("data", "Show files of data, and make files of tokens");
  data->footer(
      "Examples:\n"
      "  weir data show tokens.npy\n"
      "  weir data build book.txt -o tokens.npy");
  data->require_subcommand(1);
  AddBuildVerb(data, context);

  auto show = std::make_shared<ShowArguments>();
  CLI::App* verb =
      AddVerb(data, context, "show",
              "Say what a file of data is: its kind, type, size, range and first values",
              "  weir data show tokens.npy\n"
              "  weir data show raw.bin --type u16",
              [show, context] { return ShowData(*show, context); });
  verb->add_option("FILE", show->path, "A file of data, or a folder of .npy files")
      ->type_name("PATH")
      ->required();
  verb->add_option("--type", show->type, "Of a file of tokens without a header: u16 or u32")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"u16", "u32"}));
}

}  // namespace weir::cli
