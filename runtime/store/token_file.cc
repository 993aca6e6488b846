#include "runtime/store/token_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/store/npy_header.h"

namespace weir::store {
namespace {

constexpr int64_t kPieceTokens = 1 << 16;
constexpr int64_t kLlmcHeaderBytes = 256 * 4;
constexpr int32_t kLlmcU16 = 20240520, kLlmcU32 = 20240801;
constexpr char kMegatronMagic[] = "MMIDIDX";

struct Form {
  std::string name;  // "llm.c"; empty: none
  std::string type;  // "u16"
  int64_t width = 1;
  int64_t begin = 0;    // of the tokens, in bytes
  int64_t tokens = -1;  // by the header; -1: the rest of the file
};

template <class T>
T Number(const std::vector<uint8_t>& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// Reads the first bytes of the file, at most `most`.
absl::StatusOr<std::vector<uint8_t>> Begin(const WatchedFile& file, int64_t most) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(most, file.size())));
  WEIR_RETURN_IF_ERROR(file.ReadAt(0, static_cast<int64_t>(bytes.size()), bytes.data()));
  return bytes;
}

absl::Status Damaged(const std::string& path, const std::string& expected, const std::string& found,
                     const std::string& hint = "") {
  return Rejected({"W0909", path, expected, found, hint});
}

absl::StatusOr<Form> LlmcForm(const std::string& path, const std::vector<uint8_t>& bytes) {
  const bool is_u16 = Number<int32_t>(bytes, 0) == kLlmcU16;
  const int32_t version = Number<int32_t>(bytes, 4), expected = is_u16 ? 1 : 7;
  if (version != expected) {
    return Damaged(path, absl::StrCat("version ", expected, " of a token file of llm.c"),
                   absl::StrCat("version ", version));
  }
  const int32_t tokens = Number<int32_t>(bytes, 8);
  if (tokens < 0)
    return Damaged(path, "a number of tokens in the header of llm.c", absl::StrCat(tokens));
  return Form{"llm.c", is_u16 ? "u16" : "u32", is_u16 ? 2 : 4, kLlmcHeaderBytes, tokens};
}

absl::StatusOr<Form> NpyForm(const std::string& path, const std::vector<uint8_t>& bytes) {
  WEIR_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader("W0909", path, bytes));
  if (header.shape.size() != 1) {
    return Damaged(path, "an array of NumPy with one dimension",
                   absl::StrCat("shape ", header.shape_text),
                   "save the array with .reshape(-1), or use data { arrays } for samples of their "
                   "own");
  }
  const int64_t tokens = header.shape[0];
  static constexpr struct {
    const char* descr;
    const char* name;
    int64_t width;
  } kTypes[] = {{"'|u1'", "u8", 1},
                {"'<u2'", "u16", 2},
                {"'<u4'", "u32", 4},
                {"'<i4'", "i32", 4},
                {"'<i8'", "i64", 8}};
  for (const auto& known : kTypes) {
    if (header.descr == known.descr)
      return Form{"npy", known.name, known.width, header.begin, tokens};
  }
  return Damaged(path, "an array of NumPy of type u1, u2, u4, i4 or i8, little-endian",
                 header.descr, "save the array with .astype(\"uint16\")");
}

// Returns the form that the index beside FILE.bin tells; nullopt: there is no index.
absl::StatusOr<std::optional<Form>> MegatronForm(const std::string& path) {
  if (!absl::EndsWith(path, ".bin")) return std::nullopt;
  const std::string index = absl::StrCat(absl::StripSuffix(path, ".bin"), ".idx");
  std::error_code error;
  if (!std::filesystem::exists(index, error)) return std::nullopt;
  WEIR_ASSIGN_OR_RETURN(const auto file, WatchedFile::Open(index, "index of tokens"));
  WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, Begin(*file, 18));
  if (bytes.size() < 18 || std::memcmp(bytes.data(), kMegatronMagic, 7) != 0)
    return Damaged(index, "an index of Megatron, which begins with MMIDIDX", "other bytes");
  const uint64_t version = Number<uint64_t>(bytes, 9);
  if (version != 1) {
    return Damaged(index, "version 1 of an index of Megatron", absl::StrCat("version ", version));
  }
  switch (bytes[17]) {
    case 1: return Form{"Megatron", "u8", 1};
    case 4: return Form{"Megatron", "i32", 4};
    case 5: return Form{"Megatron", "i64", 8};
    case 8: return Form{"Megatron", "u16", 2};
    default: break;
  }
  return Damaged(index, "tokens of type u8, i32, i64 or u16 (codes 1, 4, 5, 8)",
                 absl::StrCat("type code ", bytes[17]));
}

absl::StatusOr<std::optional<Form>> FormOf(const WatchedFile& file) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, Begin(file, kNpyHeaderBytesMax));
  std::optional<Form> form;
  if (IsNpy(bytes)) {
    WEIR_ASSIGN_OR_RETURN(form, NpyForm(file.path(), bytes));
    return form;
  }
  if (static_cast<int64_t>(bytes.size()) >= kLlmcHeaderBytes) {
    const int32_t magic = Number<int32_t>(bytes, 0);
    if (magic == kLlmcU16 || magic == kLlmcU32) {
      WEIR_ASSIGN_OR_RETURN(form, LlmcForm(file.path(), bytes));
      return form;
    }
  }
  return MegatronForm(file.path());
}

Form Plain(TokenType type) {
  switch (type) {
    case TokenType::kU8: return {"", "bytes", 1};
    case TokenType::kU16: return {"", "u16", 2};
    case TokenType::kU32:
    case TokenType::kFound: break;
  }
  return {"", "u32", 4};
}

template <class T>
int64_t FirstOutside(const uint8_t* bytes, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    const auto wide = static_cast<int64_t>(value);
    if (wide < 0 || wide > std::numeric_limits<int32_t>::max()) return i;
    out[i] = static_cast<int32_t>(wide);
  }
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           const std::string& purpose,
                                                           TokenType type) {
  auto tokens = std::unique_ptr<TokenFile>(new TokenFile());
  WEIR_ASSIGN_OR_RETURN(tokens->file_, WatchedFile::Open(path, purpose));
  std::optional<Form> form;
  // Bytes are text, whatever the text begins with.
  if (type != TokenType::kU8) {
    WEIR_ASSIGN_OR_RETURN(form, FormOf(*tokens->file_));
  }
  if (!form.has_value() && type == TokenType::kFound) {
    return Damaged(path, "a header of NumPy or llm.c, or an index of Megatron beside the file",
                   "none of them", "data { tokens { type: U16 } }, or U32");
  }
  if (form.has_value() && type != TokenType::kFound && form->type != Plain(type).type) {
    return Damaged(path, absl::StrCat("tokens of type ", Plain(type).type, ", as the job says"),
                   absl::StrCat(form->type, " by the header of the file (", form->name, ")"),
                   "leave `type` out");
  }
  if (!form.has_value()) form = Plain(type);
  const int64_t bytes = tokens->file_->size() - form->begin;
  if (form->tokens >= 0 && form->tokens > bytes / form->width) {
    return Damaged(path, absl::StrCat(form->tokens, " tokens, as the header says"),
                   absl::StrCat(bytes / form->width), "copy the file again");
  }
  if (form->tokens < 0 && bytes % form->width != 0) {
    return Damaged(path, absl::StrCat("a whole number of tokens of ", form->width, " bytes"),
                   absl::StrCat(bytes, " bytes"), "");
  }
  tokens->header_bytes_ = form->begin;
  tokens->width_ = form->width;
  tokens->size_ = form->tokens >= 0 ? form->tokens : bytes / form->width;
  tokens->form_ = form->name.empty() ? form->type : absl::StrCat(form->name, " ", form->type);
  return tokens;
}

int64_t TokenFile::SkipHole(int64_t begin) const {
  const int64_t byte = file_->SkipHole(header_bytes_ + begin * width_);
  return std::clamp((byte - header_bytes_) / width_, begin, size_);
}

absl::Status TokenFile::ReadAt(int64_t begin, int64_t count, int32_t* out) const {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(count, kPieceTokens) * width_));
  for (int64_t done = 0; done < count;) {
    const int64_t piece = std::min(count - done, kPieceTokens);
    WEIR_RETURN_IF_ERROR(
        file_->ReadAt(header_bytes_ + (begin + done) * width_, piece * width_, bytes.data()));
    int64_t outside = -1;
    if (width_ == 1) outside = FirstOutside<uint8_t>(bytes.data(), piece, out + done);
    if (width_ == 2) outside = FirstOutside<uint16_t>(bytes.data(), piece, out + done);
    // A negative i32 and a large u32 are outside alike.
    if (width_ == 4) outside = FirstOutside<uint32_t>(bytes.data(), piece, out + done);
    if (width_ == 8) outside = FirstOutside<int64_t>(bytes.data(), piece, out + done);
    if (outside >= 0) {
      return Rejected({"W0051", absl::StrCat(path(), ", token ", begin + done + outside),
                       "a token from 0 to below 2^31", "a value outside", ""});
    }
    done += piece;
  }
  return absl::OkStatus();
}

}  // namespace weir::store
