#include "tools/job/data_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/base/status.h"

namespace weir::job {

std::filesystem::path ResolvedPath(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return {};
  std::filesystem::path resolved = std::filesystem::weakly_canonical(absolute, error);
  return error ? std::filesystem::path() : resolved;
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kSystemData[] = "/usr/share";

// Texts of a data kind are paths, but for the names of arrays.
bool IsPath(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && field.name() != "name";
}

void AddTexts(const Message& message, const std::string& where, std::vector<DataPath>* found) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string place = absl::StrCat(where, ".", std::string(field->name()),
                                             field->is_repeated() ? absl::StrCat("[", i, "]") : "");
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        AddTexts(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                      : reflection->GetMessage(message, field),
                 place, found);
      } else if (IsPath(*field)) {
        std::string text = field->is_repeated() ? reflection->GetRepeatedString(message, field, i)
                                                : reflection->GetString(message, field);
        if (!text.empty()) found->push_back({place, std::move(text)});
      }
    }
  }
}

void ReplaceTexts(const std::function<std::string(const std::string&)>& replace, Message* message) {
  const Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_text = IsPath(*field);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const int count = field->is_repeated() ? reflection->FieldSize(*message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (is_message) {
        ReplaceTexts(replace, field->is_repeated()
                                  ? reflection->MutableRepeatedMessage(message, field, i)
                                  : reflection->MutableMessage(message, field));
      } else if (is_text && field->is_repeated()) {
        reflection->SetRepeatedString(message, field, i,
                                      replace(reflection->GetRepeatedString(*message, field, i)));
      } else if (is_text) {
        reflection->SetString(message, field, replace(reflection->GetString(*message, field)));
      }
    }
  }
}

const FieldDescriptor* KindOf(const proto::Data& data) {
  return data.GetReflection()->GetOneofFieldDescriptor(
      data, proto::Data::descriptor()->FindOneofByName("kind"));
}

bool LiesIn(const std::filesystem::path& file, const std::filesystem::path& folder) {
  return !folder.empty() &&
         std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first ==
             folder.end();
}

// Returns the folders that are allowed without a flag.
std::vector<std::filesystem::path> ImpliedFolders(const std::string& job_path) {
  std::vector<std::filesystem::path> folders = {ResolvedPath("."), ResolvedPath(kSystemData)};
  if (job_path != "-")
    folders.push_back(ResolvedPath(std::filesystem::absolute(job_path).parent_path()));
  std::erase_if(folders,
                [](const std::filesystem::path& folder) { return folder == folder.root_path(); });
  return folders;
}

// Returns the files of arrays in a folder, at most 256 (runtime/store/stored_array.h); none if
// `path` is no folder.
std::vector<std::string> FilesIn(const std::string& path) {
  constexpr size_t kFilesMax = 256;
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end;
       !error && it != end && files.size() < kFilesMax; it.increment(error)) {
    if (it->path().extension() == ".npy") files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<DataPath> DataPathsOf(const proto::Job& job) {
  std::vector<DataPath> found;
  const Reflection* reflection = job.data().GetReflection();
  const FieldDescriptor* kind = KindOf(job.data());
  if (kind != nullptr)
    AddTexts(reflection->GetMessage(job.data(), kind),
             absl::StrCat("data.", std::string(kind->name())), &found);
  return found;
}

std::vector<std::string> DataFilesOf(const proto::Job& job) {
  std::vector<std::string> files;
  for (const DataPath& data : DataPathsOf(job)) {
    if (std::error_code ignored; std::filesystem::is_directory(data.path, ignored)) {
      for (std::string& file : FilesIn(data.path)) files.push_back(std::move(file));
      continue;
    }
    files.push_back(data.path);
    std::filesystem::path index = data.path;
    if (!job.data().has_tokens() || index.extension() != ".bin") continue;
    index.replace_extension(".idx");
    std::error_code error;
    if (std::filesystem::exists(index, error)) files.push_back(index.string());
  }
  return files;
}

void ReplaceDataPaths(const std::function<std::string(const std::string&)>& replace,
                      proto::Data* data) {
  const FieldDescriptor* kind = KindOf(*data);
  if (kind != nullptr) ReplaceTexts(replace, data->GetReflection()->MutableMessage(data, kind));
}

namespace {

absl::Status CheckPath(const std::string& field, const std::string& path,
                       const std::vector<std::filesystem::path>& folders,
                       const DataPathRules& rules) {
  const std::filesystem::path file = ResolvedPath(path);
  if (std::any_of(folders.begin(), folders.end(),
                  [&](const auto& folder) { return LiesIn(file, folder); }))
    return absl::OkStatus();
  const bool is_link = !file.empty() && file != std::filesystem::absolute(path).lexically_normal();
  return Rejected(
      {"W0813",
       absl::StrCat(rules.job_path == "-" ? "standard input" : rules.job_path, ", ", field),
       absl::StrCat("a file in the folder of the job, in the current folder or in ", kSystemData),
       absl::StrCat(path, is_link ? absl::StrCat(", which is ", file.string()) : ""),
       absl::StrCat("--allow-path ", file.parent_path().string(),
                    ", if you trust the job with the files there")});
}

}  // namespace

absl::Status CheckDataPaths(const std::vector<DataPath>& paths, const DataPathRules& rules) {
  std::vector<std::filesystem::path> folders = ImpliedFolders(rules.job_path);
  for (const std::string& allowed : rules.allowed) {
    const std::filesystem::path folder = ResolvedPath(allowed);
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) {
      return Rejected({"W0814", "--allow-path", "a folder", allowed,
                       "check the path; relative paths count from the current directory"});
    }
    folders.push_back(folder);
  }
  for (const DataPath& named : paths) {
    WEIR_RETURN_IF_ERROR(CheckPath(named.field, named.path, folders, rules));
    // A link in a folder of arrays counts as the file to which the link points.
    for (const std::string& file : FilesIn(named.path))
      WEIR_RETURN_IF_ERROR(CheckPath(named.field, file, folders, rules));
  }
  return absl::OkStatus();
}

}  // namespace weir::job
