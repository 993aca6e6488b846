// The hosts of a job, as a user lists them: on the command line (`--hosts a,b:2`) or in a file
// (`--hostfile F`). Resolves no name and reaches no host.
//
// A host is a name, an IPv4 address, or an IPv6 address. One pattern may stand for several hosts:
// `n[1-4,7]` is n1, n2, n3, n4 and n7, and `n[01-10]` keeps the zeros. A pattern in brackets that
// has a colon in it is an IPv6 address.
//
//   --hosts      n[1-4],big:8,[fe80::1]:2         with commas; `:N` gives the number of slots
//   --hostfile   # a comment                      a line for each host or pattern
//                n[1-4] slots=2                   or `n1:2`, and `n1` alone
//                fe80::1 slots=2
//
// A slot is room for one process of the job. A host that is listed without slots has as many as the
// job needs there.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::hosts {

inline constexpr int kHostsMax = 65'536;
inline constexpr int64_t kHostFileBytesMax = 4 << 20;

// Who has listed a host: a flag, a file or a variable of the user's, or a scheduler, whose tasks or
// nodes the hosts are. It decides where a user asks for more.
enum class ListedBy : uint8_t { kFlag, kFile, kVariable, kMpirun, kMpiexec, kSrun, kAllocation };

struct ListedHost {
  std::string name;   // as launchers take it; an IPv6 address without brackets
  int slots = 0;      // 0: as many as needed
  std::string where;  // for messages: "--hosts, entry 2", "hosts.txt, line 3"
  ListedBy by = ListedBy::kFlag;
};
using HostList = IdVector<HostId, ListedHost>;

// Parses the value of `--hosts`, or of `source`, which messages name. Rejected (W0870) with the
// entry if an entry is no host, (W0871) if a host is listed twice.
absl::StatusOr<HostList> ParseHosts(const std::string& text, const std::string& source = "--hosts",
                                    ListedBy by = ListedBy::kFlag);

// Parses the text of a host file. `file` names the file in messages. Rejected as ParseHosts
// rejects, with the line.
absl::StatusOr<HostList> ParseHostFile(const std::string& text, const std::string& file);

// Reads and parses a host file. kNotFound, or Rejected (W0870) for a file of more than
// kHostFileBytesMax bytes.
absl::StatusOr<HostList> ReadHostFile(const std::string& path);

// Returns the hosts that a pattern stands for: "n[1-3]" gives n1, n2 and n3. `where` is for
// messages. Slurm writes lists of hosts as such patterns with commas between them.
absl::StatusOr<std::vector<std::string>> ExpandPattern(const std::string& pattern,
                                                       const std::string& where);

// Returns a host with its slots as an entry of a list: "a:2", "[fe80::1]:2". Without the slots if
// `slots` is 0. A host with a port has the same form.
std::string EntryText(const std::string& name, int slots);

// Splits at the commas that are outside of brackets.
std::vector<std::string> SplitPatterns(const std::string& text);

}  // namespace weir::hosts
