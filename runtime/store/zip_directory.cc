#include "runtime/store/zip_directory.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::store {
namespace {

// Layouts: APPNOTE.TXT of PKWARE, sections 4.3.7 to 4.3.16.
constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr int64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22;
constexpr int64_t kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr int64_t kCommentMax = 0xffff;
constexpr uint64_t kDirectoryBytesMax = 64 << 20;
constexpr uint32_t kIn64 = 0xffffffff;

template <class T>
T Number(const std::vector<uint8_t>& bytes, int64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

absl::Status Broken(const WatchedFile& file, const std::string& found) {
  return Rejected({"W0790", file.path(), "a whole zip archive, as numpy.savez writes", found,
                   "copy or save the file again"});
}

absl::StatusOr<std::vector<uint8_t>> BytesAt(const WatchedFile& file, uint64_t begin,
                                             uint64_t size) {
  const auto all = static_cast<uint64_t>(file.size());
  if (begin > all || size > all - begin)
    return Broken(file, absl::StrCat("a part at byte ", begin, " beyond the ", all, " bytes"));
  std::vector<uint8_t> bytes(size);
  WEIR_RETURN_IF_ERROR(
      file.ReadAt(static_cast<int64_t>(begin), static_cast<int64_t>(size), bytes.data()));
  return bytes;
}

struct Directory {
  uint64_t entries = 0, size = 0, begin = 0;
};

absl::StatusOr<Directory> FindDirectory(const WatchedFile& file) {
  const int64_t tail_size = std::min(file.size(), kEndBytes + kCommentMax);
  const int64_t tail_begin = file.size() - tail_size;
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<uint8_t> tail,
      BytesAt(file, static_cast<uint64_t>(tail_begin), static_cast<uint64_t>(tail_size)));
  int64_t end = tail_size - kEndBytes;
  for (; end >= 0; --end) {
    if (Number<uint32_t>(tail, end) == kEndSignature &&
        end + kEndBytes + Number<uint16_t>(tail, end + 20) == tail_size)
      break;
  }
  if (end < 0) return Broken(file, "no end of the list of members");
  Directory found{Number<uint16_t>(tail, end + 10), Number<uint32_t>(tail, end + 12),
                  Number<uint32_t>(tail, end + 16)};
  if (found.begin != kIn64 && found.size != kIn64 && found.entries != 0xffff) return found;
  const int64_t locator_at = tail_begin + end - kLocator64Bytes;
  if (locator_at < 0) return Broken(file, "no list of members above 4 GiB");
  WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> locator,
                        BytesAt(file, static_cast<uint64_t>(locator_at), kLocator64Bytes));
  if (Number<uint32_t>(locator, 0) != kLocator64Signature) return found;  // exactly 65,535 members
  WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> end64,
                        BytesAt(file, Number<uint64_t>(locator, 8), kEnd64Bytes));
  if (Number<uint32_t>(end64, 0) != kEnd64Signature)
    return Broken(file, "no list of members above 4 GiB");
  return Directory{Number<uint64_t>(end64, 32), Number<uint64_t>(end64, 40),
                   Number<uint64_t>(end64, 48)};
}

// Replaces the numbers of an entry that lie in its 64-bit part: size and place of the header.
absl::Status ReadWideNumbers(const WatchedFile& file, const std::vector<uint8_t>& bytes,
                             int64_t begin, int64_t end, uint32_t plain_size, uint64_t* size,
                             uint64_t* place) {
  for (int64_t at = begin; at + 4 <= end;) {
    const uint16_t kind = Number<uint16_t>(bytes, at);
    const int64_t part_end = at + 4 + Number<uint16_t>(bytes, at + 2);
    if (part_end > end) break;
    if (kind == 1) {
      int64_t next = at + 4;
      if (plain_size == kIn64) next += 8;  // the size when unpacked comes first
      for (uint64_t* number : {size, place}) {
        if (*number != kIn64) continue;
        if (next + 8 > part_end) return Broken(file, "a member without its size");
        *number = Number<uint64_t>(bytes, next);
        next += 8;
      }
      return absl::OkStatus();
    }
    at = part_end;
  }
  return Broken(file, "a member without its size");
}

}  // namespace

absl::StatusOr<bool> IsZip(const WatchedFile& file) {
  if (file.size() < kEndBytes) return false;
  uint32_t signature = 0;
  WEIR_RETURN_IF_ERROR(file.ReadAt(0, 4, reinterpret_cast<uint8_t*>(&signature)));
  return signature == kLocalSignature || signature == kEndSignature;
}

absl::StatusOr<std::vector<ZipMember>> ZipMembersOf(const WatchedFile& file, int64_t members_max) {
  WEIR_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(file));
  if (directory.entries > static_cast<uint64_t>(members_max) || directory.size > kDirectoryBytesMax)
    return Rejected({"W0790", file.path(),
                     absl::StrCat("an archive of at most ", members_max, " members"),
                     absl::StrCat(directory.entries, " members"),
                     "save one array with a row for each sample, not an array for each sample"});
  WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                        BytesAt(file, directory.begin, directory.size));
  const auto size = static_cast<int64_t>(bytes.size());
  std::vector<ZipMember> members;
  int64_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (at + kEntryBytes > size || Number<uint32_t>(bytes, at) != kEntrySignature)
      return Broken(file, absl::StrCat("no entry of member ", i));
    const int64_t name_begin = at + kEntryBytes;
    const int64_t extra_begin = name_begin + Number<uint16_t>(bytes, at + 28);
    const int64_t extra_end = extra_begin + Number<uint16_t>(bytes, at + 30);
    if (extra_end > size) return Broken(file, absl::StrCat("a cut entry of member ", i));
    ZipMember member;
    member.name.assign(bytes.begin() + name_begin, bytes.begin() + extra_begin);
    const bool is_encrypted = (Number<uint16_t>(bytes, at + 8) & 1) != 0;
    member.is_stored = Number<uint16_t>(bytes, at + 10) == 0 && !is_encrypted;
    uint64_t packed = Number<uint32_t>(bytes, at + 20), place = Number<uint32_t>(bytes, at + 42);
    if (packed == kIn64 || place == kIn64) {
      WEIR_RETURN_IF_ERROR(ReadWideNumbers(file, bytes, extra_begin, extra_end,
                                           Number<uint32_t>(bytes, at + 24), &packed, &place));
    }
    if (member.is_stored) {
      WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> local, BytesAt(file, place, kLocalBytes));
      const uint64_t begin = place + static_cast<uint64_t>(kLocalBytes) +
                             Number<uint16_t>(local, 26) + Number<uint16_t>(local, 28);
      const auto all = static_cast<uint64_t>(file.size());
      if (Number<uint32_t>(local, 0) != kLocalSignature || begin > all || packed > all - begin)
        return Broken(file, absl::StrCat("member ", member.name, " beyond the end"));
      member.begin = static_cast<int64_t>(begin);
      member.size = static_cast<int64_t>(packed);
    }
    members.push_back(std::move(member));
    at = extra_end + Number<uint16_t>(bytes, at + 32);
  }
  return members;
}

}  // namespace weir::store
