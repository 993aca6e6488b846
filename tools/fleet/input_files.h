// The files that every worker of a job reads: its data, and the weights or checkpoint that it
// starts from. A worker on another host reads the file of that host, which must be the starter's,
// or a copy that the starter has shipped there. Thread rule: pure functions over values and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::fleet {

// Two equal files have the same FileFingerprint: the size, and a hash of blocks that are spread
// evenly over the file. Files of at most kBlocksMax blocks are read whole. The hash is no CRC: all
// messages of one length that end in their own CRC, as the index of a checkpoint does, have one
// CRC, whatever stands before or after them.
struct FileFingerprint {
  static constexpr int64_t kBlockBytes = 64 << 10;
  static constexpr int64_t kBlocksMax = 64;

  int64_t size = -1;  // -1: there is no such file
  uint32_t sum = 0;

  bool operator==(const FileFingerprint& other) const {
    return size == other.size && sum == other.sum;
  }
};

// Returns the fingerprint of the file; of an index of weights (store::IsWeightIndex) with all files
// that the index names; or of the index of a checkpoint folder alone: two hosts may have different
// shards of one checkpoint.
FileFingerprint FingerprintOf(const std::string& path);

// Returns "12.5 KiB (12800 bytes, checksum 0123abcd)" or "no such file", for people.
std::string FingerprintText(const FileFingerprint& file);

// A file as a host has it.
struct FileOnHost {
  std::string path;
  std::string host;
  FileFingerprint found;
};
// The starter takes the fingerprint of its own file at one of these times.
enum class OwnFile : uint8_t { kAsTheRunBegan, kNow };
// Rejected (W0883) with the first file of each host that differs from that of the starter, which
// has or had the fingerprint `own`.
absl::Status CheckSameFile(const FileFingerprint& own, OwnFile when,
                           const std::vector<FileOnHost>& on_hosts);

// A file that is shipped, and where its copy goes from the copy of the input (ShippedPath): "" is
// the place of that copy, "index.pb" is in it, and "../m-1.safetensors" is beside it.
struct ShippedFile {
  std::string from;
  std::string place;
};
// Returns what is shipped of an input: a file itself, an index of weights with the files that it
// names beside it, or the files of a checkpoint folder.
std::vector<ShippedFile> FilesToShip(const std::string& path);
// Returns the path of the copy of a file, where `to` is the copy of the input.
std::string PathOfCopy(const ShippedFile& file, const std::string& to);

// Returns the path of the copy of the `index`-th shipped file on a host. Hosts may be parts of one
// machine, so their copies have folders of their own, and so has an index of weights, whose files
// have the names that it says.
std::string ShippedPath(const std::string& log_directory, const std::string& host, size_t index,
                        const std::string& path);

}  // namespace weir::fleet
