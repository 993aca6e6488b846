#include "tests/disk/simulated_disk.h"

#include <errno.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace weir::disk {
namespace {

// Sectors are small, so that the small files of tests have several.
constexpr size_t kSectorBytes = 64;

void WriteInto(std::string* file, int64_t position, absl::string_view bytes) {
  const auto begin = static_cast<size_t>(position);
  if (file->size() < begin + bytes.size()) file->resize(begin + bytes.size(), '\0');
  std::copy(bytes.begin(), bytes.end(), file->begin() + position);
}

}  // namespace

class SimulatedFile final : public store::OpenedFile {
 public:
  SimulatedFile(SimulatedDisk* disk, std::string path, std::shared_ptr<SimulatedDisk::Node> node)
      : disk_(disk), path_(std::move(path)), node_(std::move(node)), epoch_(disk->epoch_) {}
  ~SimulatedFile() override {
    if (epoch_ != disk_->epoch_) return;
    if (holds_shared_) --node_->shared_locks;
    if (holds_exclusive_) --node_->exclusive_locks;
  }

  int TryLock(Lock lock) override {
    if (const int error = Begin("lock")) return error;
    const bool is_shared = lock == Lock::kShared;
    if (node_->exclusive_locks > 0 || (!is_shared && node_->shared_locks > 0)) return EWOULDBLOCK;
    ++(is_shared ? node_->shared_locks : node_->exclusive_locks);
    (is_shared ? holds_shared_ : holds_exclusive_) = true;
    return 0;
  }

  int Reserve(int64_t bytes) override {
    const size_t old = node_->bytes.size(), size = static_cast<size_t>(bytes);
    if (const int error = Begin("reserve")) return error;
    if (size > old) Put(static_cast<int64_t>(old), std::string(size - old, '\0'));
    return 0;
  }

  int WriteAt(int64_t position, const void* data, int64_t bytes) override {
    std::string text(static_cast<const char*>(data), static_cast<size_t>(bytes));
    const bool may_write = epoch_ == disk_->epoch_ && !disk_->has_crashed_;
    if (const int error = Begin("write")) {
      text.resize(disk_->Draw(text.size() + 1));
      if (may_write && !text.empty()) Put(position, std::move(text));
      return error;
    }
    Put(position, std::move(text));
    return 0;
  }

  int Flush() override {
    if (const int error = Begin("flush")) {
      if (!disk_->has_crashed_ && epoch_ == disk_->epoch_) node_->writes.clear();
      return error;
    }
    if (node_->is_folder) {
      node_->names_on_disk = node_->names;
      node_->changes.clear();
      return 0;
    }
    // Writes that an earlier flush has lost stay lost.
    for (const SimulatedDisk::Write& write : node_->writes)
      WriteInto(&node_->bytes_on_disk, write.position, write.bytes);
    node_->writes.clear();
    return 0;
  }

  // The simulation counts IsAt as no operation, because it does not touch the disk.
  bool IsAt(const std::string& path) override { return disk_->Find(path).node == node_; }

 private:
  int Begin(const char* operation) {
    const int error = disk_->Begin(absl::StrCat(operation, " ", path_));
    return epoch_ == disk_->epoch_ ? error : EIO;
  }
  void Put(int64_t position, std::string bytes) {
    WriteInto(&node_->bytes, position, bytes);
    node_->writes.push_back({position, std::move(bytes)});
  }

  SimulatedDisk* const disk_;
  const std::string path_;
  const std::shared_ptr<SimulatedDisk::Node> node_;
  const int64_t epoch_;
  bool holds_shared_ = false, holds_exclusive_ = false;
};

SimulatedDisk::SimulatedDisk(const Options& options)
    : options_(options), random_(options.seed), root_(std::make_shared<Node>()) {
  root_->is_folder = true;
  auto data = std::make_shared<Node>();
  data->is_folder = true;
  root_->names["data"] = root_->names_on_disk["data"] = data;
}

void SimulatedDisk::FailAt(int64_t operation, int error) {
  fail_at_ = operation;
  fail_error_ = error;
}

int SimulatedDisk::Begin(const std::string& operation) {
  ++operations_;
  if (operations_ == crash_at_) {
    has_crashed_ = true;
    last_fault_ = absl::StrCat("crash at operation ", operations_, ": ", operation);
  }
  if (has_crashed_) return EIO;
  if (operations_ != fail_at_) return 0;
  last_fault_ = absl::StrCat("error ", fail_error_, " at operation ", operations_, ": ", operation);
  return fail_error_;
}

void SimulatedDisk::Restart(Loss loss) {
  Calm();
  has_crashed_ = false;
  ++epoch_;
  if (loss == Loss::kPower) LosePower(root_.get());
  // Locks ended with the process.
  std::vector<Node*> nodes = {root_.get()};
  while (!nodes.empty()) {
    Node* const node = nodes.back();
    nodes.pop_back();
    node->shared_locks = node->exclusive_locks = 0;
    for (const auto& [name, inner] : node->names) nodes.push_back(inner.get());
  }
}

void SimulatedDisk::LosePower(Node* node) {
  if (!node->is_folder) {
    const size_t lengths[] = {node->bytes_on_disk.size(), node->bytes.size()};
    const size_t length = lengths[Draw(2)];
    const uint64_t kept_of_four = Draw(5);  // sectors
    std::vector<Write> sectors;
    for (const Write& write : node->writes) {
      for (size_t at = 0; at < write.bytes.size(); at += kSectorBytes) {
        if (Draw(4) < kept_of_four) {
          sectors.push_back(
              {write.position + static_cast<int64_t>(at), write.bytes.substr(at, kSectorBytes)});
        }
      }
    }
    std::shuffle(sectors.begin(), sectors.end(), random_);
    for (const Write& sector : sectors)
      WriteInto(&node->bytes_on_disk, sector.position, sector.bytes);
    node->bytes_on_disk.resize(length, '\0');
    node->bytes = node->bytes_on_disk;
    node->writes.clear();
    return;
  }
  enum : uint64_t { kNone, kAll, kFirst, kAny, kWays };
  const uint64_t way = Draw(kWays);
  const uint64_t first = Draw(node->changes.size() + 1);
  for (size_t i = 0; i < node->changes.size(); ++i) {
    if (way == kAll || (way == kFirst && i < first) || (way == kAny && Draw(2) == 0))
      Apply(node->changes[i], &node->names_on_disk);
  }
  node->changes.clear();
  node->names = node->names_on_disk;
  for (const auto& [name, inner] : node->names) LosePower(inner.get());
}

void SimulatedDisk::Apply(const Change& change, Names* names) {
  for (const auto& [name, node] : change) {
    if (node == nullptr) {
      names->erase(name);
    } else {
      (*names)[name] = node;
    }
  }
}

void SimulatedDisk::Put(Node* folder, Change change) {
  Apply(change, &folder->names);
  folder->changes.push_back(std::move(change));
}

SimulatedDisk::Place SimulatedDisk::Find(const std::string& path) const {
  Place place{nullptr, "", root_};
  for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (place.node == nullptr || !place.node->is_folder) return {};
    place.folder = place.node;
    place.name = std::string(part);
    const auto found = place.folder->names.find(place.name);
    place.node = found == place.folder->names.end() ? nullptr : found->second;
  }
  return place;
}

int SimulatedDisk::Create(const std::string& path, std::unique_ptr<store::OpenedFile>* file) {
  if (const int error = Begin("create " + path)) return error;
  const Place place = Find(path);
  if (place.folder == nullptr) return ENOENT;
  if (place.node != nullptr) return place.node->is_folder ? EISDIR : EEXIST;
  auto node = std::make_shared<Node>();
  Put(place.folder.get(), {{place.name, node}});
  *file = std::make_unique<SimulatedFile>(this, path, std::move(node));
  return 0;
}

int SimulatedDisk::Open(const std::string& path, std::unique_ptr<store::OpenedFile>* file) {
  if (const int error = Begin("open " + path)) return error;
  const Place place = Find(path);
  if (place.node == nullptr) return ENOENT;
  *file = std::make_unique<SimulatedFile>(this, path, place.node);
  return 0;
}

int SimulatedDisk::MakeFolder(const std::string& path) {
  if (const int error = Begin("make " + path)) return error;
  const Place place = Find(path);
  if (place.folder == nullptr) return ENOENT;
  if (place.node != nullptr) return EEXIST;
  auto node = std::make_shared<Node>();
  node->is_folder = true;
  Put(place.folder.get(), {{place.name, std::move(node)}});
  return 0;
}

int SimulatedDisk::Rename(const std::string& from, const std::string& to) {
  if (const int error = Begin(absl::StrCat("rename ", from, " to ", to))) return error;
  const Place source = Find(from), target = Find(to);
  if (source.node == nullptr || target.folder == nullptr) return ENOENT;
  if (source.folder != target.folder) return EXDEV;  // checkpoints do not need it
  if (target.node != nullptr) {
    if (target.node->is_folder != source.node->is_folder)
      return target.node->is_folder ? EISDIR : ENOTDIR;
    if (target.node->is_folder && !target.node->names.empty()) return ENOTEMPTY;
  }
  Put(source.folder.get(), {{source.name, nullptr}, {target.name, source.node}});
  return 0;
}

int SimulatedDisk::Exchange(const std::string& a, const std::string& b) {
  if (const int error = Begin(absl::StrCat("exchange ", a, " and ", b))) return error;
  if (!options_.exchanges_names) return EINVAL;
  const Place first = Find(a), second = Find(b);
  if (first.node == nullptr || second.node == nullptr) return ENOENT;
  if (first.folder != second.folder) return EXDEV;
  Put(first.folder.get(), {{first.name, second.node}, {second.name, first.node}});
  return 0;
}

int SimulatedDisk::RemoveFile(const std::string& path) {
  if (const int error = Begin("remove " + path)) return error;
  const Place place = Find(path);
  if (place.node == nullptr) return ENOENT;
  if (place.node->is_folder) return EISDIR;
  Put(place.folder.get(), {{place.name, nullptr}});
  return 0;
}

int SimulatedDisk::RemoveFolder(const std::string& path) {
  if (const int error = Begin("remove folder " + path)) return error;
  const Place place = Find(path);
  if (place.node == nullptr) return ENOENT;
  if (!place.node->is_folder) return ENOTDIR;
  if (!place.node->names.empty()) return ENOTEMPTY;
  Put(place.folder.get(), {{place.name, nullptr}});
  return 0;
}

store::FileSystem::Kind SimulatedDisk::KindOf(const std::string& path) {
  if (Begin("look at " + path) != 0) return Kind::kNone;
  const Place place = Find(path);
  if (place.node == nullptr) return Kind::kNone;
  return place.node->is_folder ? Kind::kFolder : Kind::kFile;
}

std::vector<std::string> SimulatedDisk::NamesIn(const std::string& path) {
  std::vector<std::string> names;
  if (Begin("list " + path) != 0) return names;
  const Place place = Find(path);
  if (place.node == nullptr) return names;
  for (const auto& [name, node] : place.node->names) names.push_back(name);
  return names;
}

absl::StatusOr<store::FileBytes> SimulatedDisk::Map(const std::string& path,
                                                    const std::string& purpose) {
  const int error = Begin("read " + path);
  const Place place = error == 0 ? Find(path) : Place{};
  if (place.node == nullptr || place.node->is_folder)
    return Missing({"W0040", path, "a readable file (" + purpose + ")", "none", ""});
  auto bytes = std::make_shared<const std::string>(place.node->bytes);
  return store::FileBytes{reinterpret_cast<const uint8_t*>(bytes->data()),
                          static_cast<int64_t>(bytes->size()), bytes};
}

std::string SimulatedDisk::NewToken() {
  return absl::StrCat(absl::Hex(++tokens_, absl::kZeroPad16));
}

}  // namespace weir::disk
