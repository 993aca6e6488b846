// A SimulatedDisk is a file system in memory that forgets, when power is lost, what a real one may
// forget. It is a FileSystem for checkpoints and not a model of any one product: it promises what
// runtime/store/file_system.h says, and nothing more.
//
//   a file      has what programs read (the page cache), what is on the disk, and the writes since
//               the last flush. A loss of power keeps any sectors of these writes, in any order;
//               the rest of the file has its old bytes or zeros, and its old length or its new one.
//   a folder    has names, names on the disk, and the changes since the last flush. A loss of power
//               keeps none, all, the first few, or any of these changes. A rename is one change.
//   a kill      of the process keeps what programs read, and ends locks.
//
// A flush that fails loses what it was to flush, as on Linux: the next one succeeds without writing
// it. Everything follows from the seed. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/store/file_system.h"

namespace weir::disk {

class SimulatedDisk final : public store::FileSystem {
 public:
  struct Options {
    uint64_t seed = 1;
    bool exchanges_names = true;
  };
  enum class Loss : uint8_t { kPower, kProcess };

  // The disk has one folder, "/data", and the name of the folder is on the disk.
  explicit SimulatedDisk(const Options& options);

  // Counts all operations since the disk was made, and those that failed.
  int64_t operations() const { return operations_; }
  // Ends the process or the power at operation number `operation` (of which the first is 1): it and
  // all later ones have no effect and return EIO, but a write may have a part of its effect.
  void CrashAt(int64_t operation) { crash_at_ = operation; }
  // Lets one operation fail with `error`. A write has a part of its effect.
  void FailAt(int64_t operation, int error);
  bool has_crashed() const { return has_crashed_; }
  // Returns the operation at which the disk crashed or failed last, for people.
  const std::string& last_fault() const { return last_fault_; }
  // Begins anew after a crash. Files that were opened before are of no use any more.
  void Restart(Loss loss);
  // Drops a crash or failure that has not come.
  void Calm() { crash_at_ = fail_at_ = -1; }

  int Create(const std::string& path, std::unique_ptr<store::OpenedFile>* file) override;
  int Open(const std::string& path, std::unique_ptr<store::OpenedFile>* file) override;
  int MakeFolder(const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Exchange(const std::string& a, const std::string& b) override;
  int RemoveFile(const std::string& path) override;
  int RemoveFolder(const std::string& path) override;
  Kind KindOf(const std::string& path) override;
  std::vector<std::string> NamesIn(const std::string& path) override;
  absl::StatusOr<store::FileBytes> Map(const std::string& path,
                                       const std::string& purpose) override;
  std::string NewToken() override;

 private:
  friend class SimulatedFile;
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  // The new owners of some names; null: nobody.
  using Change = std::vector<std::pair<std::string, std::shared_ptr<Node>>>;
  struct Write {
    int64_t position = 0;
    std::string bytes;
  };
  struct Node {
    bool is_folder = false;
    std::string bytes, bytes_on_disk;  // of a file
    std::vector<Write> writes;         // since the last flush
    Names names, names_on_disk;        // of a folder
    std::vector<Change> changes;       // since the last flush
    int shared_locks = 0, exclusive_locks = 0;
  };
  // A name in a folder.
  struct Place {
    std::shared_ptr<Node> folder;  // null: there is no such folder
    std::string name;
    std::shared_ptr<Node> node;  // null: nobody has the name
  };

  // Counts an operation. Returns 0 if it may take place, else the error that it returns.
  int Begin(const std::string& operation);
  uint64_t Draw(uint64_t bound) { return random_() % bound; }
  Place Find(const std::string& path) const;
  static void Apply(const Change& change, Names* names);
  static void Put(Node* folder, Change change);
  void LosePower(Node* node);

  const Options options_;
  std::mt19937_64 random_;
  std::shared_ptr<Node> root_;
  int64_t operations_ = 0, crash_at_ = -1, fail_at_ = -1;
  int fail_error_ = 0;
  bool has_crashed_ = false;
  int64_t epoch_ = 0;    // of the process: files that were opened in another are of no use
  uint64_t tokens_ = 0;  // so many NewToken has returned
  std::string last_fault_;
};

}  // namespace weir::disk
