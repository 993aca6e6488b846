#include "tools/view/view_page.h"

#include <openssl/sha.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"

namespace weir::view {
namespace {

constexpr char kServed[] = "'self'";
constexpr char kFromDisk[] = "'none'";

// Returns the hash of an inline script or style as a content policy names it.
std::string PolicyHash(absl::string_view text) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash);
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(hash), sizeof(hash))),
      "'");
}

// `run`: the element with the run, or nothing. `connects`: what the page may ask.
std::string Page(Shows shows, absl::string_view run, absl::string_view connects) {
  const std::string script = absl::StrReplaceAll(kPageScript, {{"</script", "<\\/script"}});
  const std::string policy =
      absl::StrCat("default-src 'none'; script-src ", PolicyHash(script), "; style-src ",
                   PolicyHash(kPageStyle), "; img-src data:; worker-src blob:; connect-src ",
                   connects, "; base-uri 'none'; form-action 'none'");
  // The run may be large and holds no marks of the frame, so the frame is filled around it.
  const std::string frame =
      absl::StrReplaceAll(kPageFrame, {{"@SHOWS@", shows == Shows::kLive ? "live" : "recorded"},
                                       {"@POLICY@", policy},
                                       {"@STYLE@", kPageStyle},
                                       {"@SCRIPT@", script}});
  constexpr absl::string_view kMark = "@RUN@";
  const size_t at = frame.find(kMark.data());
  return absl::StrCat(absl::string_view(frame).substr(0, at), run,
                      absl::string_view(frame).substr(at + kMark.size()));
}

absl::StatusOr<std::string> Packed(absl::string_view bytes) {
  constexpr int kGzip = 16 + MAX_WBITS;
  constexpr int kMemoryLevel = 8;
  z_stream stream = {};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemoryLevel,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::InternalError("a run could not be packed");
  }
  std::string packed;
  std::string piece(size_t{1} << 20, '\0');
  size_t taken = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    const size_t more =
        std::min<size_t>(bytes.size() - taken, std::numeric_limits<uInt>::max() / 2);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
    stream.avail_in = static_cast<uInt>(more);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    result = ::deflate(&stream, taken + more == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    taken += more - stream.avail_in;
    packed.append(piece, 0, piece.size() - stream.avail_out);
  }
  ::deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError("a run could not be packed");
  return packed;
}

}  // namespace

std::string ServedPage(Shows shows) { return Page(shows, "", kServed); }

absl::StatusOr<std::string> WholePage(absl::string_view bundle) {
  WEIR_ASSIGN_OR_RETURN(const std::string packed, Packed(bundle));
  return Page(Shows::kRecorded,
              absl::StrCat("<script id=\"run\" type=\"application/octet-stream\">",
                           absl::Base64Escape(packed), "</script>"),
              kFromDisk);
}

}  // namespace weir::view
