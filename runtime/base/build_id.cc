#include "runtime/base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"

namespace weir {
namespace {

constexpr char kNone[] = "none";

size_t RoundedUp(size_t bytes) { return (bytes + 3) / 4 * 4; }  // notes are padded to words

// Searches the notes of one segment.
bool FindIn(const char* notes, size_t size, std::string* id) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof(note));
    const size_t whole = sizeof(note) + RoundedUp(note.n_namesz) + RoundedUp(note.n_descsz);
    if (whole > size) return false;
    const char* name = notes + sizeof(note);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      *id =
          absl::BytesToHexString(absl::string_view(name + RoundedUp(note.n_namesz), note.n_descsz));
      return true;
    }
    notes += whole;
    size -= whole;
  }
  return false;
}

// The first object of the list is the program itself; the rest are libraries.
int VisitProgram(dl_phdr_info* info, size_t, void* id) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const char* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    if (FindIn(notes, segment.p_memsz, static_cast<std::string*>(id))) break;
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id = kNone;
  dl_iterate_phdr(&VisitProgram, &id);
  return id;
}

}  // namespace weir
